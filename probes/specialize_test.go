package probes

import (
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

// If the filter must be called, the action is spliced while the stack suffices for both.
func TestSpecializeStack(t *testing.T) {
	c := load(t)
	p := c.Match("nvme:complete_rq")[0]
	left, err := c.StackLeft(p)
	if err != nil {
		t.Fatal(err)
	}
	for stack, spliced := range map[int]bool{16: true, left: false} {
		req, _ := want{probe: p, fields: p.Fields, stack: stack, called: true}.request(0)
		r := c.request(req)
		object, err := c.objects[p.Group].whole()
		if err != nil {
			t.Fatal(err)
		}
		prog := object.Programs["raw_tp_nvme_complete_rq"].Copy()
		if _, err := specialize(prog, rawTracepoint{}, []*request{r}, constantsFor(object, hostConstants{}, r)); err != nil {
			t.Fatal(err)
		}
		if !rewrite.Calls(prog.Instructions, filterName(p)) || rewrite.Calls(prog.Instructions, actionName(p)) == spliced {
			t.Errorf("with %d bytes of stack: %v", stack, prog.Instructions)
		}
	}
}

// System calls need no type of the kernel, whatever is wanted, except for the fields of a task, which are absent without.
func TestTypeless(t *testing.T) {
	c := load(t)
	p := c.Match("syscall:exit")[0]
	for name, expected := range map[string]bool{
		"ret": true, "latency": true, "comm": true, "raw_nr": true, "nr": true, "compat": true, "ppid": false, "pgid": false, "pidns": false, "pcomm": false,
	} {
		req, _ := (want{probe: p, fields: []*event.Field{p.Field(name)}}).request(0)
		r := c.request(req)
		if got := typeless("raw_tp_syscall_exit", r, hostConstants{}); got != expected || r.readsTasks() == expected {
			t.Errorf("%s: typeless is %v", name, got)
		}
		r.withoutTasks = true
		if !typeless("raw_tp_syscall_exit", r, hostConstants{}) || r.readsTasks() {
			t.Errorf("%s: it needs types that nobody has", name)
		}
	}
}
