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

// check finds out early what would keep the file from being begun.
func (r *recorder) check() error {
	if r == nil {
		return nil
	}
	return r.explain(recording.Check(r.File, recording.Options{MaxBytes: r.MaxBytes, Replace: r.Replace}))
}

// explain says what to do where a file is in the way.
func (r *recorder) explain(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: choose another name, or let the recording take its place with --force", err)
	}
	return err
}

// open begins the file, once the layouts of the records are known.
func (r *recorder) open() (err error) {
	l := r.live
	if err := l.report.nameHost(); err != nil {
		return err
	}
	r.writer, err = recording.Create(r.File, recording.Options{MaxBytes: r.MaxBytes, Replace: r.Replace}, recording.Header{
		Host: l.report.Host, Kernel: l.report.Kernel, Arch: runtime.GOARCH, Program: r.Program, Boot: l.boot, BootID: bootID(), Started: l.started, Attached: l.attached,
		Intervals: l.exec.Intervals(), SampleRate: l.program.SampleRate(),
	}, r.layouts(), recordedNames{l.exec, l.catalog.Cgroups()})
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
func (r *recorder) layouts() []*event.Layout {
	if r.Only {
		return r.live.plan.Layouts()
	}
	return r.live.plan.RecordedLayouts()
}

// recordedNames are those of this machine.
type recordedNames struct {
	*exec.Run
	cgroups *kernel.Cgroups
}

func (n recordedNames) Cgroup(id uint64) string { return n.cgroups.Path(id) }

// event keeps an event. That it cannot be written ends the run as a whole one: what the maps hold is right.
func (r *recorder) event(e *event.Event) error {
	if err := r.writer.Append(e); err != nil {
		return errEnough // finish tells of the error
	}
	r.events++
	return nil
}

// interval keeps the moment of an interval, likewise.
func (r *recorder) interval(period time.Duration, at uint64) error {
	if err := r.writer.Interval(period, at); err != nil {
		return errEnough
	}
	return nil
}

// keepUp writes what there is once a second until ctx ends, so that a crash costs no more than that.
func (r *recorder) keepUp(ctx context.Context) {
	everySecond(ctx, func() {
		_ = r.writer.Flush() // the next event returns the error, or the end does
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
		if p.Lost+p.Unmatched > 0 {
			lost = append(lost, recording.Loss{Probe: p.Name, Lost: p.Lost, Unmatched: p.Unmatched})
		}
	}
	if stacks := r.live.report.Stacks.Lost(); stacks > 0 {
		lost = append(lost, recording.Loss{Stacks: stacks})
	}
	if err := r.writer.Close(r.live.now(), lost); err != nil { // which may be that of an event before
		return fmt.Errorf("recording: %w", err)
	}
	r.live.report.Recorded, r.live.report.File = r.events, r.File
	return nil
}
