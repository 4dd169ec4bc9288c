package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"trace/lang"
	"trace/probes"
	"trace/probes/recording"
)

const recordLong = `record keeps the events that PROGRAM selects, with all their fields, in a compressed file that holds all that it
takes to read it. Any program runs on it later, on any machine and without root:

  trace record -o nvme.rec 'nvme:*'
  trace -r nvme.rec 'nvme:complete_rq { @[opcode] = hist(latency) }'

--stacks keeps the stacks of each event, so that these programs may use kstack and ustack. What was written is readable at any
moment, also after a crash or when the disk is full.`

// recordCommand writes the events that a program selects to a file.
func recordCommand(s streams) *cobra.Command {
	o := options{bufferSize: probes.DefaultRingBytes}
	var maxSize totalSize
	cmd := &cobra.Command{
		Use:     "record -o FILE [flags] PROGRAM",
		Short:   "keep the events that a program selects in a file; trace -r FILE runs programs on it",
		Long:    recordLong,
		Example: "  trace record -o f 'nvme:*'                       until Ctrl-C\n  trace record -o f --max-size 1GiB 'ib:*, nvme:*'  the last of them, in a ring of files",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output == "" {
				return usagef("record needs -o FILE")
			}
			src, err := programText(cmd, o, nil, args)
			if err != nil {
				return err
			}
			if err := checkOptions(cmd, o); err != nil {
				return err
			}
			return runRecord(cmd.Context(), s, o, src, int64(maxSize))
		},
		ValidArgsFunction: completeProbes,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.output, "output", "o", "", "the `FILE` to write")
	f.BoolVar(&o.stacks, "stacks", false, "keep kstack and ustack of each event, too")
	f.Var(&maxSize, "max-size", "write FILE.1, FILE.2, … and keep the last `SIZE` of them")
	addRunFlags(cmd, &o)
	return cmd
}

// runRecord attaches the probes of a program and writes its events to a file, until something ends it.
func runRecord(ctx context.Context, s streams, o options, src source, maxSize int64) error {
	catalog, err := probes.Load()
	if err != nil {
		return err
	}
	program, err := compile(s, o, src, catalog.Probes())
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
	if t.out, err = openOutput("", s.out); err != nil {
		return err
	}
	t.recorder = &fileRecorder{tracer: t, path: o.output, source: src.text, maxSize: maxSize}
	return t.run(ctx)
}

// fileRecorder writes the events of a tracer to a file.
type fileRecorder struct {
	*tracer
	path, source string
	maxSize      int64
	writer       *recording.Writer
}

// open begins the file, once the layouts of the records are known.
func (r *fileRecorder) open() (err error) {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	kernel, err := probes.KernelRelease()
	if err != nil {
		return err
	}
	r.writer, err = recording.Create(r.path, r.maxSize, recording.Header{
		Host: host, Kernel: kernel, Arch: runtime.GOARCH, Program: r.source, Boot: r.boot, Started: r.started,
	}, r.plan.Layouts(), recordedNames{r.exec, r.catalog.Cgroups()})
	return err
}

// recordedNames are those of this machine.
type recordedNames struct {
	*lang.Run
	cgroups *probes.Cgroups
}

func (n recordedNames) Cgroup(id uint64) string { return n.cgroups.Path(id) }

func (r *fileRecorder) event(e *probes.Event) error { return r.writer.Append(e) }

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
	if err := r.writer.Close(bootClock(), lost); err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	if !r.quiet {
		r.note("recorded %s in %s", plural(r.total, "event"), r.path)
	}
	return nil
}
