package lang

import (
	"slices"

	"trace/lang/syntax"
	"trace/probes/event"
)

// table is an event made by hand: the values of the fields that are not absent.
type table map[string]any

func (t table) Get(f *event.Field) (any, bool) {
	v, ok := t[f.Name]
	return v, ok
}

func field(name string, t event.Type) *event.Field { return &event.Field{Name: name, Type: t} }

func optional(name string, t event.Type) *event.Field {
	return &event.Field{Name: name, Type: t, Optional: true}
}

func probe(group, name string, fields ...*event.Field) *event.Probe {
	common := []*event.Field{
		field("nsecs", ns), field("pid", u32), field("tid", u32), field("uid", u32),
		field("comm", str16), field("cpu", u32), field("cgroup", event.Type{Kind: event.Uint, Size: 8, Unit: event.Cgroup}),
	}
	for _, f := range common {
		f.Common = true
		if !slices.Contains([]string{"nsecs", "pid", "comm"}, f.Name) {
			f.Line.Shown = event.Verbose
		}
	}
	return &event.Probe{
		Group: group, Name: name, Fields: slices.Concat(common, fields),
		Driver: group == "mlx5", Sampled: group == "profile", Selector: map[string]string{"syscall": "nr"}[group],
	}
}

func enum(name string, names ...string) *event.Enum {
	e := &event.Enum{Name: name, Names: names}
	for i := range names {
		e.Values = append(e.Values, int64(i))
	}
	return e
}

var (
	u8      = event.Type{Kind: event.Uint, Size: 1}
	u32     = event.Type{Kind: event.Uint, Size: 4}
	u64     = event.Type{Kind: event.Uint, Size: 8}
	s8      = event.Type{Kind: event.Int, Size: 1}
	s64     = event.Type{Kind: event.Int, Size: 8}
	ns      = event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}
	size    = event.Type{Kind: event.Uint, Size: 4, Unit: event.Bytes}
	hex     = event.Type{Kind: event.Uint, Size: 4, Unit: event.Hex}
	errno   = event.Type{Kind: event.Int, Size: 4, Unit: event.Errno}
	str16   = event.Type{Kind: event.String, Size: 16}
	flag    = event.Type{Kind: event.Bool, Size: 1}
	gid     = event.Type{Kind: event.GID, Size: 16}
	opcode  = event.Type{Kind: event.Uint, Size: 2, Enum: enum("nvme_opcode", "flush", "write", "read", "compare")}
	classed = event.Type{Kind: event.Uint, Size: 2, Enum: &event.Enum{Name: "classed", Classes: []string{"io", "admin", "-"}}}
	qpState = event.Type{Kind: event.Int, Size: 4, Enum: enum("qp_state", "RESET", "INIT", "RTR", "RTS", "ERR")}
	mode    = event.Type{Kind: event.Uint, Size: 4, Enum: enum("odd_mode", "off", "size")}
	access  = event.Type{Kind: event.Uint, Size: 4, Enum: &event.Enum{Name: "access", Names: []string{"REMOTE_WRITE", "REMOTE_READ"}, Values: []int64{2, 4}, Flags: true}}
	catalog = []*event.Probe{
		probe("ib", "destroy_qp", field("qp.num", u32), field("ret", errno)),
		probe("ib", "modify_qp", field("qp.num", u32), optional("qp.state", qpState), optional("qp.old_state", qpState),
			optional("dgid", gid), field("sgid", gid), field("access", access), field("ret", errno)),
		probe("mlx5", "cmd", field("syndrome", hex), optional("latency", ns), field("ret", errno)),
		probe("nvme", "complete_rq", field("ctrl", str16), field("opcode", opcode), field("size", size), optional("latency", ns), field("write", flag)),
		probe("nvme", "setup_rq", field("ctrl", str16), field("opcode", opcode), field("size", size), field("flags", hex)),
		probe("odd", "words", field("mode", mode), field("size", u64)),
		probe("syscall", "enter", field("nr", event.Type{Kind: event.Uint, Size: 4, Enum: enum("syscall_nr", "read", "write")})),
		probe("syscall", "exit", field("nr", u32), field("ret", errno), optional("latency", ns)),
		probe("test", "numbers", field("u8", u8), field("u64", u64), field("s8", s8), field("s64", s64),
			optional("ou64", u64), optional("os64", s64), field("b", flag), optional("ob", flag), optional("os", str16)),
	}
)

func fixture(name string) *event.Probe {
	i := slices.IndexFunc(catalog, func(p *event.Probe) bool { return p.String() == name })
	return catalog[i]
}

// newChecker checks expressions on events of p that are in no clause.
func newChecker(source syntax.Source, p *event.Probe) *checker {
	a := newAnalysis(&resolver{source: source, catalog: catalog}, nil)
	a.final = true
	return a.checker(&Clause{tree: &syntax.Clause{}}, p)
}

// match tells whether the clause is one for events of p and its predicate holds for e.
func (c *Clause) match(p *event.Probe, e source) (bool, error) {
	b, ok := c.bodies[p]
	if !ok {
		return false, nil
	}
	if b.pred == nil {
		return true, nil
	}
	v, err := newEvaluator(b.pred)
	if err != nil {
		return false, err
	}
	holds, err := v.eval(&scope{event: e})
	return holds == true, err
}
