package run

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
)

// Bare returns the file below a stream, for a process that inherits it, or the stream itself.
func Bare(w io.Writer) io.Writer {
	if f := FileOf(w); f != nil {
		return f
	}
	return w
}

// FileOf returns the file of a stream, or nil.
func FileOf(stream any) *os.File {
	switch s := stream.(type) {
	case *os.File:
		return s
	case interface{ Under() *os.File }:
		return s.Under()
	}
	return nil
}

// patient writes to a file whose reader may be slow. After an interrupt it gives up on a reader that reads nothing for a while, so
// that the end does not wait for it.
type patient struct {
	file        *os.File
	interrupted context.Context

	mu     sync.Mutex
	unread bool // given up
}

// Patiently returns a writer to w that an interrupt ends.
func Patiently(interrupted context.Context, w io.Writer) io.Writer {
	file := FileOf(w)
	if info, err := fileInfo(file); err != nil || info.Mode().IsRegular() {
		return w // it has no reader
	}
	return &patient{file: file, interrupted: interrupted}
}

func fileInfo(f *os.File) (os.FileInfo, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	return f.Stat()
}

// errUnread means that nobody reads the output.
var errUnread = errors.New("nobody reads it")

// pieceBytes can be written without waiting when a pipe is writable (PIPE_BUF, pipe(7)).
const pieceBytes = 4096

func (w *patient) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n < len(p) {
		if w.unread = w.unread || !waitWritable(w.interrupted, w.file); w.unread {
			return n, errUnread
		}
		done, err := w.file.Write(p[n:min(n+pieceBytes, len(p))])
		if n += done; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (w *patient) Under() *os.File { return w.file }
