package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Check finds out what would keep a recording from being created, as far as that is known before.
func Check(path string, o Options) error {
	if o.MaxBytes == 0 {
		return checkPlace(path, o.Replace)
	}
	for _, name := range Segments(path) {
		if err := checkPlace(name, o.Replace); err != nil {
			return err
		}
		// Whoever asks for a ring does not name its files: what is none of a ring is not removed.
		if !isRecording(name) {
			return fmt.Errorf("%s has the name of a file of the ring, but is no recording: it is not removed", name)
		}
	}
	return nil
}

// checkPlace tells whether a recording may begin where name is. What keeps nothing, like a device, is never in the way.
func checkPlace(name string, replace bool) error {
	f, err := os.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil || !info.Mode().IsRegular():
		return err
	case !replace:
		return &fs.PathError{Op: "record to", Path: name, Err: fs.ErrExist}
	}
	return claim(f)
}

// isRecording tells whether a file begins like a recording, or is empty, as one is that had no room.
func isRecording(name string) bool {
	f, err := os.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	begin := make([]byte, len(magic))
	n, err := io.ReadFull(f, begin)
	return err == io.EOF || string(begin[:n]) == magic
}

// removeSegments removes what an earlier ring of that name left.
func removeSegments(path string) error {
	for _, name := range Segments(path) {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// begin begins a file, which nobody else may read or write as long as this one does: it may hold what processes pass to the kernel.
func begin(name string, replace bool) (*os.File, error) {
	flags := os.O_WRONLY | os.O_CREATE | nonBlocking // no wait for the reader of a FIFO
	if info, err := os.Stat(name); !replace && (err != nil || info.Mode().IsRegular()) {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		if err = claim(f); err == nil {
			err = errors.Join(f.Truncate(0), f.Chmod(0o600))
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
