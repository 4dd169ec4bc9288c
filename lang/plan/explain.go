package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/event"
)

// Explain writes where each conjunct and each action runs, with the reason if it is not the kernel; the fields that are captured;
// and the maps with their sizes. attachment returns how a probe is attached on this host, and how its programs keep beginnings.
func (p *Plan) Explain(w io.Writer, attachment func(probes.Request) (variant string, kept []probes.Kept)) error {
	var last *ir.Clause
	for _, b := range p.Sites {
		if b.Clause != last {
			fmt.Fprintf(w, "%s: %s\n", p.name(b.Clause), b.Clause)
			last = b.Clause
		}
		variant, kept := attachment(p.requests[p.request(b)])
		fmt.Fprintf(w, "  %s, %s\n", b.Probe, variant)
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		if p.Options.Children {
			fmt.Fprintf(t, "    filter\t--children\tkernel\n")
		}
		if p.Options.Below != "" {
			fmt.Fprintf(t, "    filter\t--cgroup %s\tkernel\n", p.Options.Below)
		}
		for _, c := range slices.Concat(b.kernel, b.User) {
			fmt.Fprintf(t, "    filter\t%s\t%s\n", cmp.Or(c.e.Flag, p.text(c.e.Span)), where(c.Why))
		}
		b.explainActions(p, t)
		p.explainFields(t, b)
		for _, k := range kept {
			fmt.Fprintf(t, "    begins\tkept by %s\t%s\n", k.By, k)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, c := range p.Program.Clauses {
		switch {
		case c.Kind != ir.OnEvent:
			fmt.Fprintf(w, "%s: %s\n    user space\n", p.name(c), c)
		case len(c.Probes) == 0:
			fmt.Fprintf(w, "%s: %s\n    nowhere: its predicate is always false\n", p.name(c), c)
		}
	}
	for _, l := range p.LeftOut {
		fmt.Fprintf(w, "%s is left out: %s\n", l.Probe, l.Why)
	}
	return p.explainMaps(w)
}

// text returns the program's text at a span, in one line.
func (p *Plan) text(at syntax.Span) string {
	return strings.Join(strings.Fields(p.Program.Text.Content[at.From:at.To]), " ")
}

func where(why *Obstacle) string {
	if why == nil {
		return "kernel"
	}
	return "user space: " + why.Reason
}

func (b *Site) explainActions(p *Plan, w io.Writer) {
	if b.Prints {
		fmt.Fprintf(w, "    action\tprint the event\tuser space: it is output\n")
	}
	var before syntax.Span // of an element of a tuple
	ir.WalkStmts(b.Stmts, func(s ir.Stmt) {
		side := where(b.InUser)
		switch s := s.(type) {
		case *ir.LetStmt:
			if s.V.Hidden || s.Span == before {
				return
			}
			before = s.Span
		case *ir.IfStmt:
			fmt.Fprintf(w, "    if\t%s\t%s\n", p.text(s.Cond.Span), side)
			return
		case *ir.ForStmt, *ir.WhileStmt:
			head, _, _ := strings.Cut(p.text(s.Pos()), "{")
			fmt.Fprintf(w, "    loop\t%s\t%s\n", strings.TrimSpace(head), side)
			return
		case *ir.CallStmt:
			if b.InUser == nil && s.Fn != "delete" {
				side = "user space: it is output"
			}
			if b.InUser == nil && s.Fn == "exit" {
				side = "kernel: ignores later events; user space: ends the program"
			}
		}
		fmt.Fprintf(w, "    action\t%s\t%s\n", p.text(s.Pos()), side)
	})
}

// explainFields lists the fields that are captured for all clauses of the probe. They are found in the code, not in the program.
func (p *Plan) explainFields(w io.Writer, b *Site) {
	code := p.Codes[p.request(b)]
	before, after := names(b.Probe, code.Before), names(b.Probe, code.After)
	after = slices.DeleteFunc(after, func(n string) bool { return slices.Contains(before, n) })
	if len(before) > 0 {
		fmt.Fprintf(w, "    captured\t%s\tbefore the filter\n", strings.Join(before, ", "))
	}
	if len(after) > 0 {
		fmt.Fprintf(w, "    captured\t%s\tafter it, of events that pass\n", strings.Join(after, ", "))
	}
	if len(before)+len(after) == 0 {
		fmt.Fprintf(w, "    captured\tnothing\t\n")
	}
}

// request returns the index of the request that serves a site.
func (p *Plan) request(b *Site) int {
	return slices.IndexFunc(p.requests, func(r probes.Request) bool { return r.Probe == b.Probe && r.Arg == argOf(b.Clause) })
}

func names(probe *event.Probe, spans []codegen.Span) []string {
	var out []string
	for _, f := range probe.Fields {
		offset, size := f.Offset, f.Type.Size
		if slices.ContainsFunc(spans, func(s codegen.Span) bool { return s.Offset < offset+size && offset < s.Offset+s.Size }) {
			out = append(out, f.Name)
		}
	}
	return out
}

func (p *Plan) explainMaps(w io.Writer) error {
	space := p.StackSpace()
	if len(p.Program.Maps)+len(space.Frames) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "maps")
	for _, m := range p.Program.Maps {
		k := p.Maps[m]
		if k == nil {
			fmt.Fprintf(t, "  %s\t%s\tuser space: %s\n", m.Name, cmp.Or(m.FuncName(), "scalar"), p.userMaps[m])
			continue
		}
		fmt.Fprintf(t, "  %s\t%s\tkernel: %s, %s, %s\n", m.Name, cmp.Or(m.FuncName(), "scalar"), k.kind(), room(k.Code.MaxKeys, "key"),
			format.AppendSize(nil, roundBytes(p.bytes(k))))
	}
	for _, n := range space.Frames {
		fmt.Fprintf(t, "  stacks\tup to %d frames\tkernel: hash, %s, %s\n", n, room(p.maxStacks(n), "stack"), format.AppendSize(nil, roundBytes(p.storeBytes(n))))
	}
	if len(space.Frames) > 0 {
		fmt.Fprintf(t, "  \tcaptured in\tkernel: per-CPU array, %s\n", format.AppendSize(nil, roundBytes(uint64(p.Options.CPUs*codegen.StackSlotsSize))))
	}
	return t.Flush()
}

// room is the size of a map in keys or stacks.
func room(n uint32, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// roundBytes rounds up to whole KiB or MiB where at least two digits remain.
func roundBytes(n uint64) uint64 {
	switch {
	case n >= 10<<20:
		return (n + 1<<20 - 1) &^ (1<<20 - 1)
	case n >= 10<<10:
		return (n + 1<<10 - 1) &^ (1<<10 - 1)
	}
	return n
}

// kind returns the kernel's name for the type of the map.
func (k *KernelMap) kind() string {
	each := k.Agg != nil && !k.Code.Shared
	name := map[[2]bool]string{
		{false, false}: "array", {false, true}: "per-CPU array", {true, false}: "hash", {true, true}: "per-CPU hash",
	}[[2]bool{len(k.Key) > 0, each}]
	if k.Lru {
		name = "LRU " + name
	}
	return name
}

// Dump writes the instructions of every probe. The text of a clause precedes its instructions.
func (p *Plan) Dump(w io.Writer) error {
	for i, r := range p.requests {
		if _, err := fmt.Fprintf(w, "%s\n%s\n", r.Probe, p.Codes[i]); err != nil {
			return err
		}
	}
	return nil
}
