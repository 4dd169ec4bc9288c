package recording

import (
	"fmt"
	"os"
	"time"
)

// Interrupt ends a Next that waits for a pipe; Next then returns an error. It may be called from another goroutine.
func (r *Recording) Interrupt() {
	for _, f := range r.files {
		if source, ok := f.source.(*os.File); ok {
			_ = source.SetReadDeadline(time.Now()) // a regular file has none, and no wait
		}
	}
}

// CheckOutput returns an error if the output file is one that is read: by its name, if that is not empty, or by a link.
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
