package probes

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"trace/bpf"
	"trace/probes/event"
	"trace/probes/rewrite"
)

func load(t testing.TB) *Catalog {
	t.Helper()
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCatalogIsDocumented(t *testing.T) {
	c := load(t)
	for _, p := range c.Probes() {
		if p.Doc == "" {
			t.Errorf("%s has no documentation", p)
		}
		for _, f := range p.Fields {
			if f.Doc == "" {
				t.Errorf("%s: field %s has no documentation", p, f.Name)
			}
			for _, name := range c.origin(p).needs[f.Name] {
				if !slices.ContainsFunc(allHooks(), func(hk hook) bool { return hk.name == name }) {
					t.Errorf("%s: field %s needs %s, which is no hook", p, f.Name, name)
				}
			}
		}
		for name := range commonFields {
			if f := p.Field(name); f == nil || !f.Common {
				t.Errorf("%s lacks the common field %s", p, name)
			}
		}
	}
}

// Properties of a few fields in the C code, as Go must see them.
func TestCatalogTypes(t *testing.T) {
	c := load(t)
	for _, test := range []struct {
		probe, field string
		want         event.Type
		optional     bool
		enum         string // one name and its value
		value        int64
	}{
		{probe: "ib:modify_qp", field: "qp.state", want: event.Type{Kind: event.Uint, Size: 4}, optional: true, enum: "RTR", value: 2},
		{probe: "ib:modify_qp", field: "sgid", want: event.Type{Kind: event.GID, Size: 16}, optional: true},
		{probe: "ib:modify_qp", field: "ret", want: event.Type{Kind: event.Int, Size: 8, Unit: event.Errno}},
		{probe: "ib:create_qp", field: "owner.kernel", want: event.Type{Kind: event.String, Size: 32}, optional: true},
		{probe: "mlx5:reg_user_mr", field: "mr.access", want: event.Type{Kind: event.Uint, Size: 4}, enum: "REMOTE_WRITE", value: 2},
		{probe: "mlx5:cmd", field: "opcode", want: event.Type{Kind: event.Uint, Size: 4}, enum: "INIT2RTR_QP", value: 0x503},
		{probe: "nvme:complete_rq", field: "latency", want: event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}, optional: true},
		{probe: "nvme:complete_rq", field: "opcode", want: event.Type{Kind: event.Uint, Size: 4}, optional: true, enum: "identify", value: 0x106},
		{probe: "nvme:complete_rq", field: "dnr", want: event.Type{Kind: event.Bool, Size: 1}, optional: true},
		{probe: "nvme:setup_cmd", field: "bytes", want: event.Type{Kind: event.Uint, Size: 8, Unit: event.Bytes}, optional: true},
		{probe: "nvme:setup_cmd", field: "ctrl_id", want: event.Type{Kind: event.Int, Size: 4}, optional: true},
		{probe: "vm:map", field: "delta", want: event.Type{Kind: event.Int, Size: 8, Unit: event.Bytes}},
		{probe: "syscall:enter", field: "arg0", want: event.Type{Kind: event.Uint, Size: 8, Unit: event.Hex}},
		{probe: "syscall:enter", field: "cgroup", want: event.Type{Kind: event.Uint, Size: 8, Unit: event.Cgroup}},
	} {
		f := c.Match(test.probe)[0].Field(test.field)
		got := f.Type
		got.Enum = nil
		if got != test.want || f.Optional != test.optional {
			t.Errorf("%s %s: %+v, optional %v", test.probe, test.field, got, f.Optional)
		}
		if test.enum == "" {
			continue
		}
		if v, ok := f.Type.Enum.Value(test.enum); !ok || v != test.value {
			t.Errorf("%s %s: %s is %d, %v", test.probe, test.field, test.enum, v, ok)
		}
		if name := f.Type.Enum.NameOf(test.value); name != test.enum {
			t.Errorf("%s %s: %d is %q", test.probe, test.field, test.value, name)
		}
	}
}

func TestEnumNamesAreUnique(t *testing.T) {
	for _, p := range load(t).Probes() {
		for _, f := range p.Fields {
			if f.Type.Enum == nil {
				continue
			}
			names := slices.Clone(f.Type.Enum.Names)
			slices.Sort(names)
			if len(slices.Compact(names)) != len(f.Type.Enum.Names) {
				t.Errorf("%s %s: a name of %s has two values", p, f.Name, f.Type.Enum.Name)
			}
		}
	}
}

// Programs of uprobes keep a tail call, whatever is wanted: without one they get a stack that they share with other threads. With little of
// it they do not (BPF_PRIV_STACK_MIN_SIZE, kernel/bpf/verifier.c).
func TestOwnStack(t *testing.T) {
	c := load(t)
	programs := 0
	for _, p := range c.Match("verbs:*") {
		for _, w := range []want{{probe: p}, {probe: p, fields: p.Fields}} {
			req, _ := w.request(0)
			r := c.request(req)
			object, err := c.objects[p.Group].whole()
			if err != nil {
				t.Fatal(err)
			}
			for name, prog := range object.Copy().Programs {
				if strings.HasPrefix(name, "kprobe_") || prog.Type == ebpf.RawTracepoint {
					continue // it cannot be preempted, or Go runs one at a time
				}
				delivers, err := specialize(prog, uprobe{}, []*request{r}, constantsFor(object, hostConstants{}, r))
				if err != nil {
					t.Fatal(err)
				}
				const private = 64
				if rewrite.FrameSize(prog.Instructions) < private || !delivers && rewrite.Idle(prog.Instructions) {
					continue
				}
				programs++
				if !slices.ContainsFunc(prog.Instructions, func(ins asm.Instruction) bool {
					return ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnTailCall
				}) {
					t.Errorf("%s has no tail call", name)
				}
			}
		}
	}
	if programs < len(c.Match("verbs:*")) {
		t.Errorf("only %d programs have a stack", programs)
	}
}

func TestMatch(t *testing.T) {
	c := load(t)
	for glob, want := range map[string]string{
		"ib:*_qp":      "[ib:create_qp ib:destroy_qp ib:modify_qp]",
		"*:modify_qp":  "[ib:modify_qp mlx5:modify_qp]",
		"nvme:s?":      "[nvme:sq]",
		"nvme:nothing": "[]",
		"ib":           "[]",
	} {
		var names []string
		for _, p := range c.Match(glob) {
			names = append(names, p.String())
		}
		if got := "[" + strings.Join(names, " ") + "]"; got != want {
			t.Errorf("%s: %s, want %s", glob, got, want)
		}
	}
}

// Every program of the objects belongs to a hook of the table, except the programs for sets, and every hook has programs: neither can be
// forgotten.
func TestProgramsAndHooksAgree(t *testing.T) {
	known := map[string]bool{"kprobe_users": true, "kprobe_users_qp": true, "uprobe_users_caller": true} // see finder and callerWatch
	for _, kind := range []setKind{processes, cgroups} {
		for _, p := range kind.programs {
			known[p.name] = true
		}
	}
	shape := regexp.MustCompile("__(int|pointer|void)$") // ON_RETURN
	for _, h := range allHooks() {
		if h.seed != nil {
			known[h.seed.lost] = true
		}
		if h.inquiry != nil {
			known[h.inquiry.mark] = true
		}
		switch at := h.place.(type) {
		case tracepoint:
			known["raw_tp_"+h.name], known["tp_btf_"+h.name], known["tracepoint_"+h.name] = true, true, true
			for _, other := range at.others {
				known["raw_tp_"+h.name+"__"+other] = true
			}
		case clock:
			known["perf_event_"+h.name] = true
		case openings, readings:
			known["raw_tp_"+h.name] = true
		case datapath:
			for _, call := range at {
				known["uprobe_"+h.name+"__"+call], known["uretprobe_"+h.name+"__"+call] = true, true
			}
		case functions:
			for _, f := range slices.Concat(at...) {
				for _, kind := range []string{"fentry", "fexit", "kprobe", "kretprobe"} {
					known[kind+"_"+h.name+"__"+f.name] = true
					known[kind+"_"+h.name+"__"+f.shared] = true
				}
			}
		}
	}
	used := make(map[string]bool)
	for _, object := range bpf.Objects() {
		o, err := bpf.Open(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range o.Programs() {
			if !known[shape.ReplaceAllString(name, "")] {
				t.Errorf("%s: program %s belongs to no hook", object, name)
			}
			for _, h := range allHooks() {
				if strings.Contains(name, "_"+h.name) {
					used[h.name] = true
				}
			}
		}
	}
	for _, h := range allHooks() {
		if !used[h.name] {
			t.Errorf("hook %s has no program", h.name)
		}
	}
}

func TestFlags(t *testing.T) {
	access := load(t).Match("mlx5:reg_user_mr")[0].Field("mr.access").Type.Enum
	for v, want := range map[int64]string{
		0: "", 1: "LOCAL_WRITE", 5: "LOCAL_WRITE|REMOTE_READ", 1 << 20: "RELAXED_ORDERING", 1<<30 | 2: "REMOTE_WRITE|0x40000000",
		1 << 31: "0x80000000",
	} {
		if got := access.NameOf(v); got != want {
			t.Errorf("%#x is %q, want %q", v, got, want)
		}
	}
}

// The verifiers of 5.10 and 6.1 get presence bits at the start of a stack slot wrong: see HAS_PAD in trace.h.
func TestPresenceBitsDoNotBeginASlot(t *testing.T) {
	for _, p := range load(t).Probes() {
		for _, f := range p.Fields {
			if f.Optional && f.Presence.Offset%8 < 4 {
				t.Errorf("the presence bit of %s.%s is in byte %d of the event", p, f.Name, f.Presence.Offset)
			}
		}
	}
}

// whole returns the object with all of its programs.
func (o *object) whole() (*ebpf.CollectionSpec, error) {
	if _, err := o.describe(); err != nil {
		return nil, err
	}
	return o.load(o.embedded.Programs()...)
}
