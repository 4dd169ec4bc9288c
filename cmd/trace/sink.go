package main

import (
	"cmp"
	"os"
	"sync"
)

// sink is standard output. It remembers the first error of a write, so that commands need not check.
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

func (s *sink) Under() *os.File { return s.file }
