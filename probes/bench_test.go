package probes

import (
	"context"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkGetppid shows what a probe adds to a system call: the difference to the one that is not traced. A reader drains the
// ring buffer on the other CPU; what it cannot keep up with is lost, and reported as a metric.
func BenchmarkGetppid(b *testing.B) {
	h := detect(b)
	enter := h.catalog.Match("syscall:enter")[0]
	for _, test := range []struct {
		name string
		reqs []Request
	}{
		{name: "untraced"},
		{name: "no-fields", reqs: []Request{{Probe: enter}}},
		{name: "one-field", reqs: []Request{{Probe: enter, Fields: []*Field{enter.Field("nr")}}}},
		{name: "all-fields", reqs: []Request{{Probe: enter, Fields: enter.Fields}}},
	} {
		b.Run(test.name, func(b *testing.B) { benchmarkGetppid(b, h, test.reqs) })
	}
}

func benchmarkGetppid(b *testing.B, h *Host, reqs []Request) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if reqs != nil {
		s := attach(b, h, reqs...)
		ctx, cancel := context.WithCancel(context.Background())
		read := make(chan error, 1)
		go func() { read <- s.Read(ctx, func(*Event) error { return nil }) }()
		defer func() {
			losses, err := s.Losses()
			cancel()
			if err != nil || <-read != nil {
				b.Error(err)
				return
			}
			b.ReportMetric(100*float64(losses[0].Lost())/float64(losses[0].Events), "%lost")
		}()
	}
	b.ResetTimer()
	for range b.N {
		unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
	b.StopTimer()
}

// BenchmarkStart is the time from nothing to attached, and back.
func BenchmarkStart(b *testing.B) {
	for range b.N {
		h := detect(b)
		s := attach(b, h, Request{Probe: h.catalog.Match("syscall:exit")[0], Fields: h.catalog.Match("syscall:exit")[0].Fields})
		if err := s.Detach(); err != nil {
			b.Fatal(err)
		}
	}
}
