package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/run"
	"trace/lang/run/console"
)

// runner is a compiled program: for this machine, or for recordings.
type runner interface {
	Program() *ir.Program
	Run(ctx context.Context, out run.Outputs) (*run.Ended, error)
}

// run returns the options for a run of a program.
func (o options) run(src programText) run.Options {
	return run.Options{
		Name: src.name, Text: src.text, Params: src.params, Arguments: src.arguments, Environ: os.Environ(), Meant: meant, Filter: o.filter, WithoutSelf: !o.self, Raw: o.raw, Unsafe: o.unsafe, Quiet: o.quiet,
		Format: o.format.Format, Columns: o.columns(), Count: o.count, MapKeys: o.mapSize, Cleared: o.live, Speed: o.speed,
		Machine: run.Machine{
			Command: o.command, Timeout: time.Duration(o.timeout), BTF: o.btf, RingBytes: int(o.bufferSize), NoKernel: o.noKernel,
			Compare: o.compare, Counted: o.verbose || o.format.Counts(), CountsFailures: o.failures, Record: o.recorder, Burst: o.burst, DryRun: o.dryRun,
		},
	}
}

// follow runs a program, writes what the format makes from its maps at the end, and reports.
func follow(ctx context.Context, s streams, o options, src programText, program runner) (err error) {
	document, err := openDocument(s, o, src, program.Program())
	if err != nil {
		return err
	}
	asked, release := catchSignals(ctx)
	defer release()
	ctx = asked.interrupted
	file, err := run.OpenForWriting(ctx, o.output)
	if err != nil {
		return err
	}
	view, err := openLive(s, o, src, program.Program())
	if err != nil {
		return err
	}
	defer view.Close()
	c := newConsole(ctx, s, o, view)
	data := view.Through(s.out)
	if isTerminal(data) {
		data = c.Progress.Before(data)
	}
	out := run.Outputs{
		Data: run.NewStream(ctx, file, data), User: c.Err, Document: document, View: view, Note: c.Show, Cut: asked.cut, Unnamed: asked.cut,
		Coloured: o.output == "" && console.HasColours(s.out), Stdin: s.in, Stdout: run.Bare(s.out), Stderr: run.Bare(c.Err),
	}
	var stop func()
	out.Show, stop = askedForMaps()
	defer stop()
	c.Warn(program.Program())
	if !o.recordsOnly && len(o.recordings) == 0 {
		c.ShowCgroups(program.Program())
	}
	ended, err := program.Run(ctx, out)
	c.Progress.Clear()
	if err == nil && ctx.Err() != nil && (ended == nil || ended.Report.Began.IsZero()) {
		s.note("interrupted before anything was attached")
		err = errInterrupted
	}
	if err = mistaken(err); ended == nil {
		return errors.Join(err, unlessUnread(out.Data.Close()))
	}
	err = finish(c, ended, out, err)
	return errors.Join(err, exitOf(ended.Run), verdict(ended.Report, o.strict), s.release(ended))
}

// newConsole returns the console of a run, where the user reads notes.
func newConsole(ctx context.Context, s streams, o options, view *output.Live) *console.Console {
	c := &console.Console{Err: view.Through(run.Patiently(ctx, s.err)), Quiet: o.quiet, Verbose: o.verbose, Strict: o.strict, Live: o.live, NoWarnings: o.noWarnings}
	if !o.quiet && !o.live && isTerminal(s.err) && os.Getenv("TERM") != "dumb" {
		c.Progress = console.NewProgress(s.err)
	}
	return c
}

// askedForMaps returns a channel that receives whenever the user asks for the maps with SIGUSR1.
func askedForMaps() (<-chan os.Signal, func()) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, showSignal)
	return asked, func() { signal.Stop(asked) }
}

// finish writes the output of the end, then the report.
func finish(c *console.Console, ended *run.Ended, out run.Outputs, err error) error {
	if out.Document != nil && !ended.Report.Ended.IsZero() {
		err = errors.Join(err, unlessUnread(writeDocument(c, out.Document, ended, out.Data)))
	}
	err = unlessLost(c, err)
	err = errors.Join(err, unlessUnread(out.Data.Close())) // data comes before the report
	c.Report(ended.Report)
	return err
}

// writeDocument writes a document of the maps.
func writeDocument(c *console.Console, d *output.Document, ended *run.Ended, out *run.Stream) error {
	profiles, err := ended.Profiles()
	if err != nil {
		return err
	}
	c.ShowNegative(profiles)
	return d.Write(out, console.Summary(ended.Report), profiles)
}

// verdict returns the outcome of a run under --strict.
func verdict(r run.Report, strict bool) error {
	var errs []error
	if strict && r.Lost() {
		errs = append(errs, errLost)
	}
	if strict && r.CommandFailed {
		errs = append(errs, errCommandFailed)
	}
	if r.TrialsFailed {
		errs = append(errs, errTrialsFailed)
	}
	return errors.Join(errs...)
}

// release passes the maps to a caller that wants them after the run, or closes them.
func (s streams) release(ended *run.Ended) error {
	if s.keep == nil {
		return ended.Close()
	}
	return s.keep(ended)
}

// unlessUnread returns err, or nil if it means that the reader of the output went away.
func unlessUnread(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
