//go:build linux

package probes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"trace/probes/event"
	"trace/probes/rewrite"
)

// specialize keeps in a program what the requests want, and defines the functions that it calls. It reports whether the program then
// delivers events: which of two programs does may depend on what is wanted. If one of the two functions must stay a function, the other may
// be spliced only while the stack suffices for both.
func specialize(spec *ebpf.ProgramSpec, w way, requests []*request, constants rewrite.Constants) (delivers bool, err error) {
	insns, stack, delivers, err := build(spec, w, requests, constants, true)
	if err != nil || stack > rewrite.StackSize {
		insns, _, delivers, err = build(spec, w, requests, constants, false)
	}
	spec.Instructions = insns
	return delivers, err
}

// build returns the instructions of a specialized program, how much stack they use together, and whether they deliver events.
func build(spec *ebpf.ProgramSpec, w way, requests []*request, constants rewrite.Constants, splice bool) (insns asm.Instructions, stack int, delivers bool, err error) {
	f, err := rewrite.New(spec.Instructions)
	if err != nil {
		return nil, 0, false, err
	}
	f.Fold(constantSection, constants)
	delivers = slices.ContainsFunc(requests, func(r *request) bool { return rewrite.Calls(f.Insns, actionName(r.Probe)) })
	frame := rewrite.FrameSize(f.Insns)
	stack = frame
	frames, inFunction := w.frames()
	var functions []function
	for _, r := range requests {
		functions = append(functions, r.functions()...)
	}
	// The action comes before the filter: while it is called, its caller's registers are live.
	for _, fn := range slices.Backward(functions) {
		if !splice || !rewrite.Calls(f.Insns, fn.name) {
			continue
		}
		body, err := rewrite.New(withFrames(fn.body, frames))
		if err != nil {
			return nil, 0, false, fmt.Errorf("%s: %w", fn.name, err)
		}
		if deep := f.Splice(fn.name, body, frame); deep > 0 {
			stack = max(stack, deep)
			f.Fold(constantSection, constants)
		}
	}
	below := 0 // the deepest function
	var called asm.Instructions
	for _, fn := range functions {
		if rewrite.Calls(f.Insns, fn.name) {
			fn.body = withFrames(fn.body, inFunction)
			called = append(called, fn.called()...)
			below = max(below, rewrite.Charged(rewrite.FrameSize(fn.body)))
		}
	}
	insns, err = f.Function(spec.Name)
	return append(insns, called...), rewrite.Charged(stack) + below, delivers, err
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

// A function of generated code, X_filter or X_action. The names of its parameters are our own: clang 14 drops them from the externs, and
// the kernel refuses a function whose parameters have no names.
type function struct {
	name  string
	proto *btf.FuncProto
	body  asm.Instructions
}

func (r *request) functions() []function {
	p, c := r.Probe, r.Code
	pointer := &btf.Pointer{Target: (*btf.Void)(nil)}
	mask := &btf.Int{Name: "unsigned long long", Size: 8, Encoding: btf.Unsigned}
	ctx, e, passed := btf.FuncParam{Name: "ctx", Type: pointer}, btf.FuncParam{Name: "e", Type: pointer}, btf.FuncParam{Name: "passed", Type: mask}
	filter := &btf.FuncProto{Return: mask, Params: []btf.FuncParam{ctx, e}}
	action := &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Params: []btf.FuncParam{ctx, e, passed}}
	return []function{{filterName(p), filter, c.sourced(c.Filter, filterName(p))}, {actionName(p), action, c.sourced(c.Action, actionName(p))}}
}

// quoted is the line of text above the instructions in the verifier's log and in bpftool's dumps.
type quoted string

func (s quoted) String() string { return string(s) }

// sourced adds such a line to the beginning of a body; the kernel requires one for a function.
func (c *Code) sourced(body asm.Instructions, name string) asm.Instructions {
	insns := slices.Clone(body)
	insns[0] = insns[0].WithSource(quoted(cmp.Or(c.Text, name)))
	return insns
}

// called returns a function that is not inlined.
func (f *function) called() asm.Instructions {
	insns := slices.Clone(f.body)
	fn := &btf.Func{Name: f.name, Type: f.proto, Linkage: btf.StaticFunc}
	insns[0] = btf.WithFuncMetadata(insns[0].WithSymbol(f.name), fn)
	return insns
}

// StackLeft returns how many bytes of stack the filter and the action of a probe may use besides the deepest frame of the programs that
// call them. The kernel counts less where it removes unwanted code.
func (c *Catalog) StackLeft(p *event.Probe) (int, error) {
	o := c.objects[p.Group]
	callers := o.callers(actionName(p))
	spec, err := o.load(callers...)
	if err != nil {
		return 0, err
	}
	deepest := 0
	for _, name := range callers {
		deepest = max(deepest, rewrite.FrameSize(spec.Programs[name].Instructions))
	}
	return rewrite.StackSize - rewrite.Charged(deepest), nil
}
