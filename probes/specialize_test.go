package probes

import (
	"strings"
	"testing"

	"trace/probes/event"
	"trace/probes/rewrite"
)

// Nothing of the constants is left in any program, whatever is wanted.
func TestSpecialize(t *testing.T) {
	c := load(t)
	for _, p := range c.Probes() {
		for _, w := range []want{{probe: p}, {probe: p, fields: p.Fields}} {
			req, _ := w.request(0)
			r := c.request(req)
			object, err := c.objects[p.Group].whole()
			if err != nil {
				t.Fatal(err)
			}
			spec := object.Copy()
			for name, prog := range spec.Programs {
				if _, err := specialize(prog, rawTracepoint{}, []*request{r}, constantsFor(object, hostConstants{}, r)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if refersTo(prog.Instructions, constantSection) && rewrite.Calls(object.Programs[name].Instructions, actionName(p)) {
					t.Errorf("%s reads constants:\n%v", name, prog.Instructions)
				}
			}
		}
	}
}

// What StackLeft returns suffices for code that uses all registers, in every program of a probe. Where it is least, a word more does not.
func TestSpecializeStack(t *testing.T) {
	c := load(t)
	for _, p := range c.Probes() {
		left, err := c.StackLeft(p)
		if err != nil {
			t.Fatal(err)
		}
		object, err := c.objects[p.Group].whole()
		if err != nil {
			t.Fatal(err)
		}
		fits := func(stack int) bool {
			req, _ := want{probe: p, fields: p.Fields, stack: stack, greedy: true}.request(0)
			r := c.request(req)
			for _, prog := range object.Programs {
				if !rewrite.Calls(prog.Instructions, filterName(p)) {
					continue
				}
				if _, err := specialize(prog.Copy(), rawTracepoint{}, []*request{r}, rewrite.Constants{}); err != nil {
					if !strings.Contains(err.Error(), "bytes of stack are used, a program can have 512") {
						t.Fatal(err)
					}
					return false
				}
			}
			return true
		}
		if !fits(left) {
			t.Errorf("%s: %d bytes do not fit", p, left)
		}
		if left < 100 && fits(left+8) {
			t.Errorf("%s: %d bytes fit, but %d are left", p, left+8, left)
		}
	}
}

// System calls need no type of the kernel, whatever is wanted, except for the fields of a task, which are absent without. What is in registers is read,
// or in a program that knows their type.
func TestNeeds(t *testing.T) {
	c := load(t)
	p := c.Match("syscall:exit")[0]
	for name, expected := range map[string]needs{
		"ret": {}, "comm": {}, "latency": {reads: true}, "raw_nr": {reads: true}, "nr": {reads: true}, "compat": {reads: true},
		"ppid": {types: true}, "pgid": {types: true}, "pidns": {types: true}, "pcomm": {types: true},
	} {
		req, _ := (want{probe: p, fields: []*event.Field{p.Field(name)}}).request(0)
		r := c.request(req)
		got := needsFor("raw_tp_syscall_exit", r, hostConstants{})
		if got.types != expected.types || got.reads != (expected.reads || expected.types) || r.readsTasks() != expected.types {
			t.Errorf("%s: %+v", name, got)
		}
		if expected.reads && needsFor("tp_btf_syscall_exit", r, hostConstants{}).reads {
			t.Errorf("%s: it is read though its type is known", name)
		}
		r.withoutTasks = true
		if got := needsFor("raw_tp_syscall_exit", r, hostConstants{}); got.types || r.readsTasks() {
			t.Errorf("%s: it needs types that nobody has", name)
		}
	}
}
