package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// signals are the contexts that end when the user asks the process to end: the first signal interrupts a run, the second one cuts its end short.
type signals struct{ interrupted, cut context.Context }

// sameSignal is how soon a second signal comes that is the first one: timeout(1) sends it to its command, and to its process group.
const sameSignal = 100 * time.Millisecond

// catchSignals catches the signals that ask the process to end, until release is called. The third one kills it as usual. A write to a closed
// pipe becomes an error, so that the probes are detached regularly in that case, too.
func catchSignals(ctx context.Context) (s signals, release func()) {
	interrupted, interrupt := context.WithCancel(ctx)
	cut, cutShort := context.WithCancel(context.Background())
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		all = append(all, syscall.SIGHUP)
	}
	caught, broken := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(caught, all...)
	signal.Notify(broken, syscall.SIGPIPE)
	released := make(chan struct{})
	go func() {
		for _, act := range []func(os.Signal){
			func(os.Signal) { interrupt() },
			func(os.Signal) { cutShort() },
			die,
		} {
			select {
			case sig := <-caught:
				act(sig)
			case <-released:
				return
			}
			untilClosed(released, sameSignal)
			forget(caught)
		}
	}()
	return signals{interrupted, cut}, func() {
		close(released)
		signal.Stop(caught)
		signal.Stop(broken)
		interrupt() // what waits for it; maps that stay may be named later
	}
}

// die ends the process by a signal, also where the interactive mode catches it.
func die(sig os.Signal) {
	signal.Reset(sig)
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(sig)
	}
}

// untilClosed waits until ended is closed, or for so long.
func untilClosed(ended <-chan struct{}, so time.Duration) {
	select {
	case <-ended:
	case <-time.After(so):
	}
}

// forget leaves out a signal that came meanwhile.
func forget(caught <-chan os.Signal) {
	select {
	case <-caught:
	default:
	}
}
