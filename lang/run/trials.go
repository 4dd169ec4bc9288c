package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"trace/lang"
	"trace/lang/exec"
	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/symbols"
)

// Trials are the tests of a program, or its benchmarks. They need no events, so they run in user space, without privileges.
type Trials struct {
	options Options
	kind    ir.ClauseKind
	program *ir.Program
	exec    *exec.Run
	printer *output.Printer
	out     Outputs
	failed  bool
}

// NewTrials checks a program whose tests should run, or whose benchmarks.
func NewTrials(o Options, kind ir.ClauseKind) (*Trials, error) {
	if !o.Format.HasTrials() {
		return nil, fmt.Errorf("-f %s has no results of tests: use -f text or -f json", o.Format)
	}
	catalog, err := probes.Load()
	if err != nil {
		return nil, err
	}
	program, err := lang.Compile(o.Name, o.Text, catalog.Probes(), o.compile())
	if err == nil {
		err = program.Only(kind)
	}
	return &Trials{options: o, kind: kind, program: program}, err
}

// Program returns what runs of the program.
func (t *Trials) Program() *ir.Program { return t.program }

// Run runs the begin clauses, the tests one after the other, and the end clauses. It ends early with ctx.
func (t *Trials) Run(ctx context.Context, out Outputs) (*Ended, error) {
	t.out = out.orDiscard(ctx)
	started := symbols.BootClock()
	plan, err := lang.Prepare(t.program, plan.Options{Recorded: true, MapKeys: t.options.MapKeys, Started: started, CPUs: 1})
	if err != nil {
		return nil, err
	}
	t.printer = t.out.printer(t.options.Format, event.NewWallClock(time.Now().Add(-time.Duration(started))))
	t.printer.Show(t.options.Columns, nil, t.program.Raw)
	o := exec.Options{Sink: t.printer, Unshown: true, Now: symbols.BootClock, Context: ctx, Cut: t.out.Cut, Unnamed: t.out.Unnamed, Warn: t.out.message}
	if t.exec, err = lang.Start(plan, o); err != nil {
		return nil, err
	}
	defer noteLeft(ctx, ctx, t.out.Note, t.whatIsLeft)()
	began := time.Now()
	err = errors.Join(t.out.Data.begin(), t.printer.Begin(), t.exec.Begin())
	if err == nil {
		err = t.all(ctx)
	}
	err = errors.Join(unlessEnough(err), unlessEnough(t.exec.End()), unlessEnough(t.printer.End()))
	return &Ended{Run: t.exec, printer: t.printer, Report: Report{Began: began, Ended: time.Now(), TrialsFailed: t.failed, Cut: t.exec.Cut()}}, err
}

// whatIsLeft returns what was interrupted: nothing more begins.
func (t *Trials) whatIsLeft() (left Left) {
	left.Clause, left.Busy = t.exec.Busy()
	return left
}

// all runs all tests, or all benchmarks.
func (t *Trials) all(ctx context.Context) error {
	all := t.exec.Trials(t.kind)
	var names []string
	for _, c := range all {
		names = append(names, c.Trial())
	}
	var results []output.Tested
	for _, c := range all {
		if ctx.Err() != nil {
			return nil
		}
		var err error
		if t.kind == ir.OnBench {
			err = t.measure(c, names)
		} else if results, err = t.test(c, results); err == nil {
			err = t.printer.Tested(results, len(all))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// test runs a test, and adds its result.
func (t *Trials) test(c *ir.Clause, results []output.Tested) ([]output.Tested, error) {
	var text bytes.Buffer
	trial, err := t.exec.Try(c, 1, t.printer.AsText(&text), func(message string) { fmt.Fprintln(&text, message) })
	t.failed = t.failed || !trial.Passed()
	return append(results, output.Tested{Name: c.Trial(), Passed: trial.Passed(), Took: trial.Took, Output: text.String()}), err
}

// enough is the time for which a benchmark runs at least.
const enough = time.Millisecond

// measure runs a benchmark more and more often until it takes long enough. Like in bpftrace, one that fails has no result, and fails the
// run; one that returns a value other than 0 is skipped.
func (t *Trials) measure(c *ir.Clause, names []string) error {
	for runs := 1; ; {
		trial, err := t.exec.Try(c, runs, t.printer.AsText(io.Discard), func(string) {})
		switch {
		case err != nil:
			return err
		case trial.Failed:
			t.failed = true
			t.out.message(false, fmt.Sprintf("ERROR: Benchmark '%s' failed.", c.Trial()))
			return nil
		case trial.Returned != 0:
			return nil
		case trial.Took >= enough:
			return t.printer.Measured(output.Measured{Name: c.Trial(), Each: trial.Took / time.Duration(runs), Runs: runs}, names)
		}
		runs *= more(trial.Took)
	}
}

// more returns how many times as often a benchmark runs that took so long: bpftrace's steps.
func more(took time.Duration) int {
	switch {
	case took < time.Microsecond:
		return 1000
	case took < 10*time.Microsecond:
		return 100
	case took < 100*time.Microsecond:
		return 10
	}
	return 2
}
