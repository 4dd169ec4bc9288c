package lang

import (
	"trace/lang/check"
	"trace/lang/exec"
	"trace/lang/ir"
	"trace/lang/plan"
	"trace/lang/syntax"
	"trace/probes/event"
)

// A program goes through the passes of this file from first to last. -d ast, -d plan and -d bpf print what each one makes.

// Compile parses a program and checks it against the probes of the catalog: text -> syntax tree -> typed program. Mistakes are
// returned as a [syntax.ErrorList] that gives name as the file.
func Compile(name, text string, catalog []*event.Probe, o check.Options) (*ir.Program, error) {
	tree, err := parse(name, text)
	if err != nil {
		return nil, check.NameProbes(err, catalog)
	}
	return check.Program(tree, catalog, o)
}

// Prepare divides a program between the kernel and user space, and generates the kernel's code: typed program -> plan.
func Prepare(program *ir.Program, o plan.Options) (*plan.Plan, error) { return plan.New(program, o) }

// Start creates the maps of a plan and prepares what runs in user space: plan -> run. The caller attaches the probes and passes
// their events to the run.
func Start(p *plan.Plan, o exec.Options) (*exec.Run, error) { return exec.Start(p, o) }

// Params returns the params that a program declares. Each is a flag of the command line.
func Params(name, text string) ([]ir.Param, error) {
	tree, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	return check.Params(tree)
}

// TakesArguments reports whether a program reads arguments by number.
func TakesArguments(name, text string) bool {
	tree, err := parse(name, text)
	return err == nil && check.TakesArguments(tree)
}

// Groups returns the groups of the probes that a program names. It returns nil if any group may be meant: the program names no
// probe, uses a pattern for the group, imports files, or has mistakes.
func Groups(text string) []string {
	tree, err := syntax.Parse("", text)
	if err != nil {
		return nil
	}
	return check.Groups(tree)
}
