//go:build !unix

package main

import (
	"context"
	"os"
	"syscall"
)

// waitReadable waits until ctx ends: nothing tells here whether a read would wait.
func waitReadable(ctx context.Context, _ *os.File) bool {
	<-ctx.Done()
	return false
}

// showSignal never comes.
const showSignal = syscall.Signal(-1)

// nonBlocking is nothing here.
const nonBlocking = 0

// waitWritable does not wait: nothing tells here whether a write would.
func waitWritable(context.Context, *os.File) bool { return true }
