//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang"
	"trace/lang/exec"
	"trace/lang/ir"
	"trace/lang/output"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/kernel"
	"trace/probes/recording"
)

// attach runs the begin clauses and attaches the probes. Clauses whose code the kernel rejects run in user space.
func (l *Live) attach(ctx context.Context) (*probes.Session, error) {
	began := time.Now()
	rejected := map[*event.Probe]bool{}
	for {
		session, err := l.tryAttach(ctx, rejected)
		var refusal *probes.RejectedError
		if !errors.As(err, &refusal) || rejected[refusal.Probe] {
			if err != nil {
				return session, err
			}
			attached := l.attachedAs(session, time.Since(began))
			l.report.LeftOut = attached.LeftOut
			l.out.Note(attached)
			l.attached = l.now()
			l.host.Release()
			l.collects()
			go returnMemory()
			return session, errors.Join(l.exec.Attached(l.attached), l.writeAttached(session))
		}
		rejected[refusal.Probe] = true
		l.out.Note(l.rejection(refusal))
		if err := errors.Join(l.exec.Close(), l.divide(rejected)); err != nil {
			return nil, err
		}
	}
}

// collectLess lets the collector of garbage run seldom until all is attached: what a start allocates is a few megabytes, and soon free. The
// function that it returns ends that, too.
func (l *Live) collectLess() func() {
	before := debug.SetGCPercent(400)
	l.collects = sync.OnceFunc(func() { debug.SetGCPercent(before) })
	return l.collects
}

// writeAttached writes what is attached to the data.
func (l *Live) writeAttached(session *probes.Session) error {
	l.messages = messages{exec: l.exec, printers: l.printers()}
	if l.options.Quiet {
		return nil
	}
	return l.messages.attached(len(session.Attached()))
}

// rejection describes what the kernel rejected. The verifier follows up to a million instructions on all paths together
// (kernel/bpf/verifier.c, BPF_COMPLEXITY_LIMIT_INSNS). A rejection for any other reason means wrong code.
func (l *Live) rejection(err *probes.RejectedError) Rejected {
	return Rejected{Probe: err.Probe.String(), Clauses: l.clausesOf(err.Probe), Err: err.Err, Large: errors.Is(err, unix.E2BIG)}
}

// clausesOf returns the clauses of a probe.
func (l *Live) clausesOf(p *event.Probe) []string {
	var all []string
	for _, c := range l.program.Clauses {
		for _, probe := range c.Probes {
			if probe == p {
				all = append(all, fmt.Sprintf("%q", c))
			}
		}
	}
	return all
}

// attachedAs describes what is attached.
func (l *Live) attachedAs(session *probes.Session, took time.Duration) Attached {
	a := Attached{
		Took: took, StacksUnwatched: l.exec.StacksUnwatched(), Missing: session.Notes(), Refused: session.Refused(), Read: l.host.ReadOfProcesses(),
	}
	for _, p := range session.Attached() {
		a.Probes = append(a.Probes, AttachedProbe{p.Probe.String(), p.Variant})
	}
	if len(a.Probes) == 0 {
		a.Clauses = len(l.program.Clauses)
	}
	for _, o := range l.plan.LeftOut {
		a.LeftOut = append(a.LeftOut, recording.LeftOut{Probes: []string{o.Probe.String()}, Why: o.Why})
	}
	for _, err := range session.Skipped() {
		if l.program.Missing == ir.MissingIgnored && !err.Refused {
			continue
		}
		left := recording.LeftOut{Why: err.Reason}
		for _, p := range err.Probes {
			left.Probes = append(left.Probes, p.String())
		}
		a.LeftOut = append(a.LeftOut, left)
	}
	return a
}

// tryAttach attaches the current plan. If the kernel has rejected code of some probes before, it does not repeat the output of the begin clauses.
func (l *Live) tryAttach(ctx context.Context, rejected map[*event.Probe]bool) (*probes.Session, error) {
	requests := l.plan.Requests()
	for i := range requests {
		requests[i].Reduced = rejected[requests[i].Probe]
	}
	if err := checkMemory(l.plan.MapBytes()); err != nil {
		return nil, err
	}
	if err := probes.Available(l.host, requests); err != nil { // before a begin clause prints anything
		return nil, err
	}
	exec, err := lang.Start(l.plan, l.runOptions(ctx, len(rejected) > 0))
	if err != nil {
		return nil, l.permitted(err)
	}
	l.exec = exec
	l.left.exec.Store(exec)
	if !l.options.DryRun {
		if err := l.exec.Begin(); err != nil {
			return nil, err
		}
	}
	l.out.Note(Attaching{0, len(requests)})
	l.session, err = probes.Attach(ctx, l.host, requests, probes.AttachOptions{
		RingBytes: l.options.RingBytes, Roots: l.roots(), Descendants: l.options.Filter.PID != 0, Cgroup: l.options.Filter.Cgroup, Questions: l.exec.Questions(),
		Process: l.only(), Group: l.options.Filter.PGID, Namespace: l.options.Filter.PIDNS, Burst: probes.Burst(l.options.Burst),
		Maps: l.exec.Maps(), Layouts: l.plan.Layouts(),
		Progress: func(done, all int) { l.out.Note(Attaching{done, all}) },
	})
	return l.session, l.permitted(err)
}

// share returns which part of the events of traps was seen.
func (l *Live) share(from, to uint64) (share float64, ok bool) {
	if l.session == nil {
		return 0, false
	}
	return l.session.Share(from, to)
}

// runOptions are where the program prints, and what takes its events.
func (l *Live) runOptions(ctx context.Context, again bool) exec.Options {
	l.openPrinters()
	l.printer.Show(l.options.Columns, l.program.Printed(), l.program.Raw)
	o := exec.Options{Sink: l.out.Sink(l.printer), Now: l.now, Share: l.share, Muted: again, Unshown: l.out.unshown(), Count: l.options.Count, Context: ctx, Interrupted: l.interrupted, Cut: l.out.Cut, Unnamed: l.out.Unnamed, Warn: l.out.message,
		Names: l.options.Names, Hurry: l.options.Hurry}
	if l.shadow != nil {
		l.shadow.Show(l.options.Columns, l.program.Printed(), l.program.Raw)
		o.Shadow = l.shadow
	}
	switch {
	case l.keepsWanted():
		o.Record = l.recorder.event
	case l.recorder != nil:
		o.Keep = l.recorder.event
	}
	return o
}

// openPrinters creates the printers. If attaching is tried again, the output continues after what begin clauses have printed.
func (l *Live) openPrinters() {
	l.first.Reset()
	l.second.Reset()
	switch {
	case l.printer != nil:
	case l.options.Compare:
		l.printer = output.NewPrinter(io.MultiWriter(l.out.Data, &l.first), l.options.Format, l.wall)
		l.shadow = output.NewPrinter(&l.second, l.options.Format, l.wall)
	default:
		l.printer = l.out.printer(l.options.Format, l.wall)
	}
}

// printers returns the printers of the program's output: two in a comparison.
func (l *Live) printers() []*output.Printer {
	if l.shadow == nil {
		return []*output.Printer{l.printer}
	}
	return []*output.Printer{l.printer, l.shadow}
}

// permitted returns which privileges are missing if the kernel refused a map or a BPF program because of them.
func (l *Live) permitted(err error) error {
	var denied *kernel.PermissionError
	if !errors.Is(err, unix.EPERM) || errors.As(err, &denied) {
		return err
	}
	if denied := l.host.Denied(l.plan.Requests()); denied != nil {
		return denied
	}
	return err
}
