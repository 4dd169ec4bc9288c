package plan

import (
	"cmp"
	"maps"
	"slices"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/event"
)

// stacks returns the stacks that the site captures, each once.
func (b *Site) stacks() []*ir.Expr {
	found := map[ir.StackUse]*ir.Expr{}
	b.WalkExprs(func(e *ir.Expr) {
		if e.Op == ir.OpStack {
			found[e.StackUse()] = e
		}
	})
	return inOrder(found)
}

func inOrder(found map[ir.StackUse]*ir.Expr) []*ir.Expr {
	return slices.SortedFunc(maps.Values(found), func(a, b *ir.Expr) int {
		return cmp.Or(cmp.Compare(a.Fn, b.Fn), cmp.Compare(a.Frames, b.Frames))
	})
}

// allStacks returns the stacks of the whole program.
func (p *Plan) allStacks() []*ir.Expr {
	all := stacksOf(p.Sites)
	if p.recordsStacks() {
		all = afterRecorded(all)
	}
	return all
}

// recordsStacks reports whether the stacks of events are recorded.
func (p *Plan) recordsStacks() bool {
	return p.Options.RecordStacks || p.Options.Record && len(stacksOf(p.Sites)) > 0
}

// recordedStacks returns the values that each record begins with if stacks are recorded: full stacks. A replay cuts them where the
// program has fewer frames.
func recordedStacks() []*ir.Expr {
	return []*ir.Expr{ir.StackOf("kstack", event.MaxFrames), ir.StackOf("ustack", event.MaxFrames)}
}

// afterRecorded puts the recorded stacks before the others.
func afterRecorded(all []*ir.Expr) []*ir.Expr {
	recorded := recordedStacks()
	for _, e := range all {
		if e.Frames != event.MaxFrames {
			recorded = append(recorded, e)
		}
	}
	return recorded
}

// findRecorded finds the stacks of the program in recorded events, or reports that there are none.
func (p *Plan) findRecorded() error {
	var errs syntax.ErrorList
	p.Recorded = map[ir.StackUse]int{}
	for _, e := range p.allStacks() {
		if p.Options.RecordedStack == nil {
			errs = append(errs, p.Program.Text.Error(e.Span, "the recording has no "+e.Fn, "record with --stacks"))
		}
		for i, r := range recordedStacks() {
			if r.Fn == e.Fn {
				p.Recorded[e.StackUse()] = i
			}
		}
	}
	return errs.Err()
}

// withStacks notes that the part's record begins with these stacks.
func (s *Part) withStacks(all []*ir.Expr) []*ir.Expr {
	s.Stacks = map[ir.StackUse]int{}
	for i, e := range all {
		s.Stacks[e.StackUse()] = i
	}
	return all
}

func stacksOf(sites []*Site) []*ir.Expr {
	found := map[ir.StackUse]*ir.Expr{}
	for _, b := range sites {
		for _, e := range b.stacks() {
			found[e.StackUse()] = e
		}
	}
	return inOrder(found)
}

// Captures reports whether the program captures kernel stacks (kstack) or user stacks (ustack).
func (p *Plan) Captures(word string) bool {
	return slices.ContainsFunc(p.allStacks(), func(e *ir.Expr) bool { return e.Fn == word })
}

// cutOf returns where kernel stacks of a probe are cut, and notes the functions for the run.
func (p *Plan) cutOf(probe *event.Probe) codegen.Cut {
	if !p.Captures("kstack") {
		return codegen.Cut{}
	}
	functions, through := probes.Tracing(probe)
	cut := codegen.Cut{Offset: RangeSize * len(p.Tracing), Ranges: len(functions), Through: through, Unfound: probes.FramesOfTracing}
	p.Tracing = append(p.Tracing, functions...)
	return cut
}

// RangeSize is the size of a pair of numbers, an address and a size, in bytes.
const RangeSize = 16

// StackSpace returns what the maps of stacks need.
func (p *Plan) StackSpace() codegen.StackSpace {
	s := codegen.StackSpace{Ranges: len(p.Tracing), MaxStacks: p.maxStacks}
	for _, e := range p.allStacks() {
		if !slices.Contains(s.Frames, e.Frames) {
			s.Frames = append(s.Frames, e.Frames)
		}
	}
	slices.Sort(s.Frames)
	return s
}

// maxStacks returns how many different stacks of so many frames there is room for: 16 MiB, unless the user sets the number.
func (p *Plan) maxStacks(frames int) uint32 {
	const budget, most = 16 << 20, 65536
	return cmp.Or(p.Options.MapKeys, uint32(min(budget/(codegen.StackValueSize(frames)+stackOverhead), most)))
}

const stackOverhead = 8 + keyOverhead

// stackBytes returns what stacks take in the kernel.
func (p *Plan) stackBytes() uint64 {
	space := p.StackSpace()
	if len(space.Frames) == 0 {
		return 0
	}
	bytes := uint64(p.Options.CPUs * codegen.StackSlotsSize)
	for _, n := range space.Frames {
		bytes += p.storeBytes(n)
	}
	return bytes
}

func (p *Plan) storeBytes(frames int) uint64 {
	return uint64(p.maxStacks(frames)) * uint64(codegen.StackValueSize(frames)+stackOverhead)
}
