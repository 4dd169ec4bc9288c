//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"trace/lang"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/kernel"
	"trace/probes/recording"
)

// runRecord attaches the probes of a program and writes its events to a file, until something ends it.
func runRecord(ctx context.Context, s streams, o options, src source, maxSize int64) error {
	program, catalog, err := compileLive(s, o, src)
	if err != nil {
		return err
	}
	if err := program.Selects(); err != nil {
		return programError{err}
	}
	t, err := newTracer(s, o, program, catalog)
	if err != nil {
		return err
	}
	ctx, release := catchSignals(ctx)
	defer release()
	t.out = newStream(ctx, nil, s.out)
	t.err = patiently(ctx, s.err)
	t.recorder = &fileRecorder{tracer: t, path: o.output, source: src.text, maxSize: maxSize}
	return t.run(ctx)
}

// fileRecorder writes the events of a tracer to a file.
type fileRecorder struct {
	*tracer
	path, source string
	maxSize      int64
	writer       *recording.Writer
	events       uint64
}

// check finds out early what would keep the file from being begun.
func (r *fileRecorder) check() error {
	if r == nil {
		return nil
	}
	return r.explain(recording.Check(r.path, recording.Options{MaxBytes: r.maxSize, Replace: r.force}))
}

// explain says what to do where a file is in the way.
func (r *fileRecorder) explain(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: choose another name, or let the recording take its place with --force", err)
	}
	return err
}

// open begins the file, once the layouts of the records are known.
func (r *fileRecorder) open() (err error) {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	version, err := kernel.Version()
	if err != nil {
		return err
	}
	r.writer, err = recording.Create(r.path, recording.Options{MaxBytes: r.maxSize, Replace: r.force}, recording.Header{
		Host: host, Kernel: version, Arch: runtime.GOARCH, Program: r.source, Boot: r.boot, BootID: bootID(), Started: r.started, Attached: r.attached,
		Intervals: r.exec.Intervals(), SampleRate: r.program.SampleRate(),
	}, r.layouts(), recordedNames{r.exec, r.catalog.Cgroups()})
	return r.explain(err)
}

// bootID tells this boot of this machine from all others, "" where /proc does not say it.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// layouts are those of the records that are kept.
func (r *fileRecorder) layouts() []*event.Layout {
	if r.record != "" {
		return r.plan.RecordedLayouts()
	}
	return r.plan.Layouts()
}

// recordedNames are those of this machine.
type recordedNames struct {
	*lang.Run
	cgroups *kernel.Cgroups
}

func (n recordedNames) Cgroup(id uint64) string { return n.cgroups.Path(id) }

// event keeps an event. That it cannot be written ends the run as a whole one: what the maps hold is right.
func (r *fileRecorder) event(e *event.Event) error {
	if err := r.writer.Append(e); err != nil {
		return errEnough // finish tells of the error
	}
	r.events++
	return nil
}

// interval keeps the moment of an interval, likewise.
func (r *fileRecorder) interval(period time.Duration, at uint64) error {
	if err := r.writer.Interval(period, at); err != nil {
		return errEnough
	}
	return nil
}

// keepUp writes what there is once a second until ctx ends, so that a crash costs no more than that.
func (r *fileRecorder) keepUp(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = r.writer.Flush() // the next event returns the error, or the end does
		}
	}
}

// finish ends the file and says what is in it.
func (r *fileRecorder) finish(losses []probes.Losses) error {
	var lost []recording.Loss
	for _, l := range losses {
		if l.Lost()+l.Unmatched > 0 {
			lost = append(lost, recording.Loss{Probe: l.Probe.String(), Lost: l.Lost(), Unmatched: l.Unmatched})
		}
	}
	stacks, err := r.exec.StackLosses()
	if err != nil {
		return err
	}
	if stacks.Lost() > 0 {
		lost = append(lost, recording.Loss{Stacks: stacks.Lost()})
	}
	if err := r.writer.Close(r.now(), lost); err != nil { // which may be that of an event before
		return fmt.Errorf("recording: %w", err)
	}
	if !r.quiet {
		r.note("recorded %s in %s", plural(r.events, "event"), r.path)
	}
	return nil
}
