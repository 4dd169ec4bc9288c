package probes

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"trace/probes/event"
)

// BenchmarkGetppid shows what a probe adds to a system call: the difference to the one that is not traced. A reader drains the
// ring buffer on the other CPU; what it cannot keep up with is lost, and reported as a metric.
func BenchmarkGetppid(b *testing.B) {
	h := detect(b)
	enter := h.catalog.Match("syscall:enter")[0]
	b.Run("untraced", getppid)
	for i, v := range h.variantsOf(enter) {
		b.Run("reject/"+v.name(), func(b *testing.B) {
			benchmarkGetppid(b, func() (*Session, error) {
				return attachOnly(h, i, Request{Probe: enter, Code: rejectAll()}, AttachOptions{})
			})
		})
	}
	for _, test := range []struct {
		name string
		want want
	}{
		{"reject-by-pid", want{probe: enter, pid: 1}},
		{"no-fields", want{probe: enter}},
		{"one-field", want{probe: enter, fields: []*event.Field{enter.Field("nr")}}},
		{"all-fields", want{probe: enter, fields: enter.Fields}},
	} {
		b.Run(test.name, func(b *testing.B) {
			reqs, o := requestsFor(test.want)
			benchmarkGetppid(b, func() (*Session, error) { return Attach(context.Background(), h, reqs, o) })
		})
	}
}

func benchmarkGetppid(b *testing.B, attach func() (*Session, error)) {
	s, err := attach()
	if errors.Is(err, unix.EPERM) {
		b.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	read := make(chan error, 1)
	go func() { read <- s.Read(ctx, func(*event.Event) error { return nil }) }()
	getppid(b)
	losses, err := s.Losses()
	cancel()
	if err := errors.Join(err, <-read); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(100*float64(losses[0].Lost())/float64(max(losses[0].Delivered+losses[0].Lost(), 1)), "%lost")
}

func getppid(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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
		p := h.catalog.Match("syscall:exit")[0]
		s := attachWants(b, h, want{probe: p, fields: p.Fields})
		if err := s.Detach(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGet reads a field of an event.
func BenchmarkGet(b *testing.B) {
	p := load(b).Match("nvme:complete_rq")[0]
	l := event.NewLayout(0, p, p.Fields, nil)
	var e event.Event
	if err := event.Decode([]*event.Layout{l}, sampleOf(l, make([]byte, p.Size)), &e); err != nil {
		b.Fatal(err)
	}
	f := p.Field("nsecs")
	for b.Loop() {
		e.Get(f)
	}
}
