package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
)

// sink is standard output. It remembers the first error of a write, so that a command need not look for it.
type sink struct {
	file *os.File

	mu  sync.Mutex
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = cmp.Or(s.err, err)
	return n, err
}

// failure is the first error.
func (s *sink) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *sink) under() *os.File { return s.file }

// bare is the file below a stream, for a process that gets it, or the stream itself.
func bare(w io.Writer) io.Writer {
	if f := fileOf(w); f != nil {
		return f
	}
	return w
}

// fileOf is the file that a stream is, or nil.
func fileOf(stream any) *os.File {
	switch s := stream.(type) {
	case *os.File:
		return s
	case interface{ under() *os.File }:
		return s.under()
	}
	return nil
}

// patient writes to a file whose reader may take its time, until the run was interrupted: then it gives up a reader that reads nothing
// for a while, so that the end does not wait for it.
type patient struct {
	file        *os.File
	interrupted context.Context

	mu     sync.Mutex
	unread bool // given up
}

// patiently returns a writer to w that an interrupt ends.
func patiently(interrupted context.Context, w io.Writer) io.Writer {
	file := fileOf(w)
	if info, err := fileInfo(file); err != nil || info.Mode().IsRegular() {
		return w // no reader
	}
	return &patient{file: file, interrupted: interrupted}
}

func fileInfo(f *os.File) (os.FileInfo, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	return f.Stat()
}

// errUnread says that nobody reads what is written.
var errUnread = errors.New("nobody reads it")

// pieceBytes can be written at once, without waiting, when a pipe has room for something (PIPE_BUF, pipe(7)).
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

func (w *patient) under() *os.File { return w.file }
