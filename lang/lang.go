package lang

import (
	"trace/lang/check"
	"trace/lang/exec"
	"trace/lang/ir"
	"trace/lang/plan"
	"trace/lang/syntax"
	"trace/probes/event"
)

// A program goes through the passes of this file, from the first to the last. What each makes can be printed: -d ast, -d plan,
// -d bpf.

// Compile parses a program, and checks it against the probes of the catalog: text -> syntax tree -> typed program. Mistakes are a
// [syntax.ErrorList] that calls the text by name.
func Compile(name, text string, catalog []*event.Probe, o check.Options) (*ir.Program, error) {
	tree, err := syntax.Parse(name, text)
	if err != nil {
		return nil, check.NameProbes(err, catalog)
	}
	return check.Program(tree, catalog, o)
}

// Prepare divides a program between the kernel and user space, and makes the code of the one: typed program -> plan.
func Prepare(program *ir.Program, o plan.Options) (*plan.Plan, error) { return plan.New(program, o) }

// Start creates the maps of a plan, and prepares what is left for user space: plan -> run. The caller attaches the probes, and hands
// their events to the run.
func Start(p *plan.Plan, o exec.Options) (*exec.Run, error) { return exec.Start(p, o) }

// Params returns the params of a program: its flags.
func Params(name, text string) ([]ir.Param, error) {
	tree, err := syntax.Parse(name, text)
	if err != nil {
		return nil, err
	}
	return check.Params(tree)
}

// Groups returns the groups of the probes that a program names, or nil if any may be meant: it has none, a pattern for them, or mistakes.
func Groups(text string) []string {
	tree, err := syntax.Parse("", text)
	if err != nil {
		return nil
	}
	return check.Groups(tree)
}
