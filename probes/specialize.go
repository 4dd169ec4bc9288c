//go:build linux

package probes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
	"trace/probes/rewrite"
)

// specialize keeps in a program what the requests want, and splices in the generated code that it calls. It reports whether the program then
// delivers events: which of two programs does may depend on what is wanted.
func specialize(spec *ebpf.ProgramSpec, w way, requests []*request, constants rewrite.Constants) (delivers bool, err error) {
	f, err := rewrite.New(spec.Instructions)
	if err != nil {
		return false, err
	}
	f.Fold(constantSection, constants)
	delivers = slices.ContainsFunc(requests, func(r *request) bool { return rewrite.Calls(f.Insns, actionName(r.Probe)) })
	frame := rewrite.FrameSize(f.Insns)
	for _, r := range requests {
		// The action comes before the filter: while it is called, its caller's registers are live.
		for _, fn := range []function{r.action(), r.filter()} {
			if !rewrite.Calls(f.Insns, fn.name) {
				continue
			}
			body, err := rewrite.New(withFrames(fn.body, w.frames()))
			if err != nil {
				return false, fmt.Errorf("%s: %w", fn.name, err)
			}
			if err := f.Splice(fn.name, body, frame); err != nil {
				return false, fmt.Errorf("%s: %w", fn.name, err)
			}
			f.Fold(constantSection, constants)
		}
	}
	spec.Instructions, err = f.Function(spec.Name)
	return delivers, err
}

// needsFor returns what a program of an object needs for a request. Errors in the program show when it is loaded.
func needsFor(program string, r *request, host hostConstants) needs {
	object, err := r.origin.object.load(program)
	if err != nil {
		return needs{types: true}
	}
	f, err := rewrite.New(object.Programs[program].Instructions)
	if err != nil {
		return needs{types: true}
	}
	f.Fold(constantSection, constantsFor(object, host, r))
	return needsOf(f.Insns)
}

// A function of generated code.
type function struct {
	name string
	body asm.Instructions
}

func (r *request) filter() function {
	name := filterName(r.Probe)
	return function{name, r.Code.sourced(r.Code.Filter, name)}
}

func (r *request) action() function {
	name := actionName(r.Probe)
	return function{name, r.Code.sourced(r.Code.Action, name)}
}

// quoted is the line of text above the instructions in the verifier's log and in bpftool's dumps.
type quoted string

func (s quoted) String() string { return string(s) }

// sourced adds such a line to the beginning of a body.
func (c *Code) sourced(body asm.Instructions, name string) asm.Instructions {
	insns := slices.Clone(body)
	insns[0] = insns[0].WithSource(quoted(cmp.Or(c.Text, name)))
	return insns
}

// StackLeft returns how many bytes of stack the filter and the action of a probe may use, each, besides the frames of the programs that call
// them. It reads all of them, of every variant, which takes milliseconds: code that needs no more than LeastStack need not ask.
func (c *Catalog) StackLeft(p *event.Probe) (int, error) {
	if left, found := c.stackLeft.Load(p); found {
		return left.(int), nil
	}
	left, err := c.readStackLeft(p)
	if err == nil {
		c.stackLeft.Store(p, left)
	}
	return left, err
}

func (c *Catalog) readStackLeft(p *event.Probe) (int, error) {
	o := c.objects[p.Group]
	callers := append(o.callers(actionName(p)), o.callers(filterName(p))...)
	spec, err := o.load(callers...)
	if err != nil {
		return 0, err
	}
	left := rewrite.StackSize
	for _, name := range callers {
		f, err := rewrite.New(spec.Programs[name].Instructions)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		frame := rewrite.FrameSize(f.Insns)
		left = min(left, f.StackLeft(actionName(p), frame), f.StackLeft(filterName(p), frame))
	}
	return left, nil
}
