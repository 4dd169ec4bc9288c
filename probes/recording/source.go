package recording

import (
	"fmt"
	"os"
	"time"
)

// Interrupt ends a wait of Next for what a pipe does not have yet: it returns an error. It may be called from another goroutine.
func (r *Recording) Interrupt() {
	for _, f := range r.files {
		if source, ok := f.source.(*os.File); ok {
			_ = source.SetReadDeadline(time.Now()) // a regular file has none, and no wait
		}
	}
}

// CheckOutput refuses to write to a file that is read: called name, if that is not empty, or linked to.
func (r *Recording) CheckOutput(name string) error {
	written, err := os.Stat(name)
	if name == "" || err != nil {
		return nil // it is new
	}
	for _, f := range r.files {
		source, ok := f.source.(*os.File)
		if !ok {
			continue
		}
		if read, err := source.Stat(); err == nil && written.Mode().IsRegular() && os.SameFile(read, written) {
			return fmt.Errorf("%s is the recording that is read (%s): write to another file", name, f.name)
		}
	}
	return nil
}
