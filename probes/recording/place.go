package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Check returns an error that would keep a recording from being created, if it can be found before.
func Check(path string, o Options) error {
	if o.MaxBytes == 0 {
		return checkPlace(path, o.Replace)
	}
	for _, name := range Segments(path) {
		if err := checkPlace(name, o.Replace); err != nil {
			return err
		}
		// The user does not name the files of a ring, so only recordings are removed.
		if !isRecording(name) {
			return fmt.Errorf("%s has the name of a file of the ring, but is not a recording: move it away, or choose another name", name)
		}
	}
	return nil
}

// checkPlace returns an error if name exists and may not be replaced. Devices and other files that keep nothing are always accepted.
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

// isRecording reports whether a file begins like a recording, or is empty, like one whose disk was full.
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

// removeSegments removes the files of an earlier ring with that name.
func removeSegments(path string) error {
	for _, name := range Segments(path) {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// begin creates a file that only its owner may read or write: it may hold what processes pass to the kernel.
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
