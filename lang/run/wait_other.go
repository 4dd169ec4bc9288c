//go:build !unix

package run

import (
	"context"
	"os"
)

// WaitReadable waits until ctx ends: nothing tells here whether a read would wait.
func WaitReadable(ctx context.Context, _ *os.File) bool {
	<-ctx.Done()
	return false
}

// nonBlocking is nothing here.
const nonBlocking = 0

// waitWritable does not wait: nothing tells here whether a write would.
func waitWritable(context.Context, *os.File) bool { return true }
