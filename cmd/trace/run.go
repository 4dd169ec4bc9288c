package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"trace/lang"
	"trace/lang/output"
	"trace/lang/run"
)

// runner is a program that was compiled: for this machine, or for recordings.
type runner interface {
	Program() *lang.Program
	Run(ctx context.Context, out run.Outputs) (*run.Ended, error)
}

// run are the options of a run of a program.
func (o options) run(src source) run.Options {
	return run.Options{
		Name: src.name, Text: src.text, Params: src.params, Words: append(scriptNames(), subcommands...), PID: o.pid, Raw: o.raw,
		Format: o.format.Format, Columns: o.columns(), Count: o.count, MapEntries: o.mapSize, Cleared: o.live, Speed: o.speed,
		Machine: run.Machine{
			Command: o.command, Children: o.children, Timeout: o.timeout, BTF: o.btf, RingBytes: int(o.bufferSize), NoKernel: o.noKernel,
			Compare: o.compare, Counted: o.verbose || o.format.Counts(), Record: o.recorder,
		},
	}
}

// follow runs a program, makes of its maps what the format makes at the end, and reports.
func follow(ctx context.Context, s streams, o options, src source, program runner) (err error) {
	document, err := openDocument(s, o, src, program.Program())
	if err != nil {
		return err
	}
	ctx, release := catchSignals(ctx)
	defer release()
	file, err := run.OpenForWriting(ctx, o.output)
	if err != nil {
		return err
	}
	view, err := openLive(s, o, src, program.Program())
	if err != nil {
		return err
	}
	defer view.Close()
	told := s
	told.err = view.Through(run.Patiently(ctx, s.err))
	c := &console{streams: told, o: o, progress: newProgress(s, o)}
	out := run.Outputs{
		Data: run.NewStream(ctx, file, c.progress.before(view.Through(s.out))), User: c.err, Document: document, View: view, Note: c.tell,
		Stdin: s.in, Stdout: run.Bare(s.out), Stderr: run.Bare(c.err),
	}
	var stop func()
	out.Show, stop = askedForMaps()
	defer stop()
	c.tellCgroups(program.Program())
	ended, err := program.Run(ctx, out)
	c.progress.clear()
	return c.finish(ended, out, mistaken(err))
}

// askedForMaps returns what has something whenever the user asks for the maps with SIGUSR1.
func askedForMaps() (<-chan os.Signal, func()) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, showSignal)
	return asked, func() { signal.Stop(asked) }
}

// finish writes what is made at the end, then the report, and returns how the run ended.
func (c *console) finish(ended *run.Ended, out run.Outputs, err error) error {
	if ended == nil {
		return errors.Join(err, unlessUnread(out.Data.Close()))
	}
	if out.Document != nil && !ended.Report.Ended.IsZero() {
		err = errors.Join(err, unlessUnread(writeDocument(c.streams, out.Document, ended, out.Data)))
	}
	err = unlessLost(c.streams, c.o, err)
	err = errors.Join(err, unlessUnread(out.Data.Close())) // data comes before the report
	c.report(ended.Report)
	return errors.Join(err, asked(ended.Run), c.verdict(ended.Report), c.release(ended))
}

// verdict is what --strict makes of a run.
func (c *console) verdict(r run.Report) error {
	var errs []error
	if c.o.strict && r.Lost() {
		errs = append(errs, errLost)
	}
	if c.o.strict && r.CommandFailed {
		errs = append(errs, errCommandFailed)
	}
	return errors.Join(errs...)
}

// release hands the maps over to whoever wants them after the run, or closes them.
func (c *console) release(ended *run.Ended) error {
	if c.keep == nil {
		return ended.Close()
	}
	return c.keep(ended)
}

// writeDocument makes a document of what the maps hold.
func writeDocument(s streams, d *output.Document, ended *run.Ended, out *run.Stream) error {
	profiles, err := ended.Profiles()
	if err != nil {
		return err
	}
	for _, p := range profiles {
		if p.Negative > 0 {
			s.note("%s: %s with a value below 0 left out of the profile", p.Map, plural(p.Negative, "entry"))
		}
	}
	return d.Write(out, factsOf(ended.Report), profiles)
}

// unlessUnread is err, or nil if it says that nobody reads the output.
func unlessUnread(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
