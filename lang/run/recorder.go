//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"trace/lang/exec"
	"trace/probes/event"
	"trace/probes/kernel"
	"trace/probes/recording"
)

// recorder writes the events of a run to a file.
type recorder struct {
	Record
	live   *Live
	writer *recording.Writer
	events uint64
}

// check finds out early whether the file can be created.
func (r *recorder) check() error {
	if r == nil {
		return nil
	}
	return r.explain(recording.Check(r.File, recording.Options{MaxBytes: r.MaxBytes, Replace: r.Replace}))
}

// explain adds what to do if a file is in the way.
func (r *recorder) explain(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: choose another name, or replace the file with --force", err)
	}
	return err
}

// open creates the file. The layouts of the records must be known.
func (r *recorder) open() (err error) {
	l := r.live
	if err := l.report.nameHost(); err != nil {
		return err
	}
	r.writer, err = recording.Create(r.File, recording.Options{MaxBytes: r.MaxBytes, Replace: r.Replace, Wall: l.wall}, recording.Header{
		Host: l.report.Host, Kernel: l.report.Kernel, Arch: runtime.GOARCH, Program: r.Program, Boot: l.wall.Time(0), BootID: bootID(), Started: l.started, Attached: l.attached,
		Intervals: l.exec.Intervals(), SampleRate: l.program.SampleRate(), Periods: l.program.Periods(),
		LeftOut: l.report.LeftOut, Count: l.options.Count,
	}, r.layouts(), recordedNames{l.exec, l.catalog.Cgroups()})
	return r.explain(err)
}

// bootID returns an id of this boot of this machine, or "" if /proc does not have it.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// layouts returns the layouts of the records that are kept.
func (r *recorder) layouts() []*event.Layout {
	if r.Only {
		return r.live.plan.Layouts()
	}
	return r.live.plan.RecordedLayouts()
}

// recordedNames are the names of this machine.
type recordedNames struct {
	*exec.Run
	cgroups *kernel.Cgroups
}

func (n recordedNames) Cgroup(id uint64) (path string, runs event.Workload) {
	return n.cgroups.Path(id), n.cgroups.Workload(id)
}

// event keeps an event. An error ends the run normally, because the maps are right.
func (r *recorder) event(e *event.Event) error {
	if err := r.writer.Append(e); err != nil {
		return ErrEnough // finish returns the error
	}
	r.events++
	return nil
}

// interval keeps the moment of an interval, and handles errors like event.
func (r *recorder) interval(period time.Duration, at uint64) error {
	if err := r.writer.Interval(period, at); err != nil {
		return ErrEnough
	}
	return nil
}

// keepUp flushes the file once a second until ctx ends, so that a crash loses no more.
func (r *recorder) keepUp(ctx context.Context) {
	everySecond(ctx, func() {
		_ = r.writer.Flush() // the next event or the end returns the error
	})
}

// everySecond calls do once a second until ctx ends.
func everySecond(ctx context.Context, do func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// finish ends the file.
func (r *recorder) finish(counts []Probe) error {
	var lost []recording.Loss
	for _, p := range counts {
		if p.Lost+p.Unmatched+p.Gaps > 0 {
			lost = append(lost, recording.Loss{Probe: p.Name, Lost: p.Lost, Unmatched: p.Unmatched, Gaps: p.Gaps})
		}
	}
	if stacks := r.live.report.Stacks.Lost(); stacks > 0 {
		lost = append(lost, recording.Loss{Stacks: stacks})
	}
	if err := r.writer.Close(r.live.now(), lost); err != nil { // it may return an earlier error
		return fmt.Errorf("recording: %w", err)
	}
	r.live.report.Recorded, r.live.report.File = r.events, r.File
	return nil
}
