//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killDelay is how long the command of -c may take to end after it was asked to.
const killDelay = 500 * time.Millisecond

// child is the command of -c. It shares the terminal: what it prints is not data. The nil child never ends.
type child struct {
	cmd     *exec.Cmd
	streams streams
	verbose bool
}

// newChild returns the command, not yet started, or nil if it is empty. It is asked to end when ctx ends.
func newChild(ctx context.Context, s streams, o options) (*child, error) {
	words := strings.Fields(o.command)
	if len(words) == 0 {
		return nil, nil
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		return nil, fmt.Errorf("-c: %w", err)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.err
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = killDelay
	return &child{cmd, s, o.verbose}, nil
}

func (c *child) start() error {
	if c == nil {
		return nil
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("-c: %w", err)
	}
	return nil
}

// wait waits until the command has ended, which it does at the latest soon after its context.
func (c *child) wait(context.Context) bool {
	if c == nil {
		return false
	}
	c.cmd.Wait() // its outcome is its own business
	if c.verbose {
		c.streams.note("%s ended: %v", c.cmd.Args[0], c.cmd.ProcessState)
	}
	return true
}
