//go:build !unix

package main

import (
	"context"
	"os"
)

// waitReadable waits until ctx ends: nothing tells here whether a read would wait.
func waitReadable(ctx context.Context, _ *os.File) bool {
	<-ctx.Done()
	return false
}
