//go:build !unix

package run

import (
	"context"
	"os"
)

// WaitReadable waits until ctx ends: this system cannot report whether a read would wait.
func WaitReadable(ctx context.Context, _ *os.File) bool {
	<-ctx.Done()
	return false
}

// nonBlocking has no effect here.
const nonBlocking = 0

// waitWritable does not wait: this system cannot report whether a write would wait.
func waitWritable(context.Context, *os.File) bool { return true }
