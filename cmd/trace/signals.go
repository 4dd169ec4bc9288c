package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// catchSignals ends the returned context at the first signal that asks the process to end; the second one kills it as usual. A write to a
// closed pipe becomes an error, so that the probes are detached regularly in that case, too.
func catchSignals(ctx context.Context) (context.Context, func()) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, release := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, release)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return ctx, func() {
		release()
		signal.Stop(broken)
	}
}
