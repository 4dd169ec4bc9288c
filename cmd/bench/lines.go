package main

import (
	"bytes"
	"fmt"
	"sync/atomic"
)

// A lineCounter counts the lines written to it, and the lines that begin with the number of one thread.
type lineCounter struct {
	all, own atomic.Int64
	begin    []byte // of an own line, after the end of another
	tail     []byte // of what was written, too short for begin
}

func newLineCounter(tid int) *lineCounter {
	return &lineCounter{begin: fmt.Appendf(nil, "\n%d ", tid), tail: []byte("\n")}
}

func (c *lineCounter) Write(p []byte) (int, error) {
	c.all.Add(int64(bytes.Count(p, []byte("\n"))))
	text := append(c.tail, p...)
	c.own.Add(int64(bytes.Count(text, c.begin)))
	c.tail = append(text[:0], text[max(0, len(text)-len(c.begin)+1):]...)
	return len(p), nil
}
