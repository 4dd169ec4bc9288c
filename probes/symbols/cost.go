package symbols

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// This file bounds what becomes of a file that is read for names: bytes of memory and work, whatever the file is like.

// Limits of one file. A step is about 10 ns of work: a symbol takes some of them, the instruction of a line table one.
const (
	mostBytes = 32 << 20 // that the tables of a file may take: 1.4 million functions, and an index of its line numbers
	loadSteps = 64 << 20 // to read one kind of its tables: half a second
	findSteps = 8 << 20  // to name one address
)

// errStopped means that nobody waits for names now.
var errStopped = errors.New("stopped")

// tooCostly means that a part of a file was left because of what it takes.
type tooCostly struct{ what string }

func (e *tooCostly) Error() string { return "what there is of names takes more than " + e.what }

// cost is what a file takes.
type cost struct {
	bytes int // of memory that its tables hold
	steps int // of work since the last [cost.begin]
	most  int // steps
	// grow takes memory from what there is for all files, and makes room for it.
	grow    func(bytes int)
	stopped *atomic.Bool
}

// begin begins a piece of work of at most so many steps.
func (c *cost) begin(most int) { c.steps, c.most = 0, most }

// step counts work. An error ends it.
func (c *cost) step(n int) error {
	switch c.steps += n; {
	case n < 0 || c.steps > c.most:
		return &tooCostly{fmt.Sprintf("%d steps of work", c.most)}
	case c.stopped.Load():
		return errStopped
	}
	return nil
}

// take counts bytes before they are allocated. An error forbids it.
func (c *cost) take(n int) error {
	if n < 0 || n > mostBytes-c.bytes {
		return &tooCostly{fmt.Sprintf("%d MiB of memory", mostBytes>>20)}
	}
	c.bytes += n
	c.grow(n)
	return nil
}

// give gives bytes back.
func (c *cost) give(n int) {
	c.bytes -= n
	c.grow(-n)
}
