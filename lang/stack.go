package lang

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/expr-lang/expr/ast"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/symbols"
)

// This file is kstack and ustack. A program knows a stack by its number (see codegen.Stack); only what prints one looks for the frames
// behind it and for their names.

// stackUse is what a program captures: kstack(n) or ustack(n).
type stackUse struct {
	word   string
	frames int
}

func isStack(word string) bool { return word == "kstack" || word == "ustack" }

// stackCall types kstack, ustack and kstack(n), ustack(n).
func (c *checker) stackCall(word string, at syntax.Span, args []ast.Node) *expr {
	frames := int64(codegen.MaxFrames)
	switch {
	case c.probe == nil:
		return c.fail(at, fmt.Sprintf("%s has no event, and so no %s", c.clause.kind, word), "stacks are captured in the clauses of probes")
	case len(args) > 1:
		return c.fail(at, fmt.Sprintf("%s() has %s", word, argumentCount(len(args))), fmt.Sprintf("write %s, or %[1]s(5) for five frames", word))
	case len(args) == 1:
		if name, ok := args[0].(*ast.IdentifierNode); ok && name.Value[0] != '$' {
			return c.fail(syntax.SpanOf(name), fmt.Sprintf("%s() takes a number of frames", word), fmt.Sprintf("write %s, or %[1]s(5) for five frames", word))
		}
		var ok bool
		if frames, ok = c.constant(args[0], "how many frames "+word+"() captures", 1, codegen.MaxFrames); !ok {
			return nil
		}
	}
	e := stackOf(word, int(frames))
	e.span = at
	return e
}

func stackOf(word string, frames int) *expr {
	return &expr{op: opStack, fn: word, index: frames, typ: event.Type{Kind: format.Stack, Size: 8}, optional: true}
}

func (e *expr) stackUse() stackUse { return stackUse{e.fn, e.index} }

// stacks that the body captures, each once.
func (b *part) stacks() []*expr {
	found := map[stackUse]*expr{}
	b.walkExprs(func(e *expr) {
		if e.op == opStack {
			found[e.stackUse()] = e
		}
	})
	return inOrder(found)
}

func inOrder(found map[stackUse]*expr) []*expr {
	return slices.SortedFunc(maps.Values(found), func(a, b *expr) int {
		return cmp.Or(cmp.Compare(a.fn, b.fn), cmp.Compare(a.index, b.index))
	})
}

// allStacks are those of the whole program.
func (p *Plan) allStacks() []*expr {
	all := stacksOf(p.parts)
	if p.recordsStacks() {
		all = afterRecorded(all)
	}
	return all
}

// recordsStacks tells whether the stacks of events are recorded.
func (p *Plan) recordsStacks() bool {
	return p.options.RecordStacks || p.options.Record && len(stacksOf(p.parts)) > 0
}

// recordedStacks are the values that each record of a recording begins with, if it has stacks: whole ones, of which a replay makes those
// of fewer frames.
func recordedStacks() []*expr {
	return []*expr{stackOf("kstack", codegen.MaxFrames), stackOf("ustack", codegen.MaxFrames)}
}

// afterRecorded appends those of all that are not recorded anyway.
func afterRecorded(all []*expr) []*expr {
	recorded := recordedStacks()
	for _, e := range all {
		if e.index != codegen.MaxFrames {
			recorded = append(recorded, e)
		}
	}
	return recorded
}

// findRecorded says where the stacks of the program are in recorded events, or that there are none.
func (p *Plan) findRecorded() error {
	var errs syntax.ErrorList
	p.recorded = map[stackUse]int{}
	for _, e := range p.allStacks() {
		if p.options.RecordedStack == nil {
			errs = append(errs, p.program.source.Error(e.span, "the recording has no "+e.fn, "record with --stacks"))
		}
		for i, r := range recordedStacks() {
			if r.fn == e.fn {
				p.recorded[e.stackUse()] = i
			}
		}
	}
	return errs.Err()
}

// withStacks notes that a record of the site has these stacks as its first values.
func (s *site) withStacks(all []*expr) []*expr {
	s.stacks = map[stackUse]int{}
	for i, e := range all {
		s.stacks[e.stackUse()] = i
	}
	return all
}

func stacksOf(parts []*part) []*expr {
	found := map[stackUse]*expr{}
	for _, b := range parts {
		for _, e := range b.stacks() {
			found[e.stackUse()] = e
		}
	}
	return inOrder(found)
}

// captures tells whether the program captures stacks of the kernel, or of processes.
func (p *Plan) captures(word string) bool {
	return slices.ContainsFunc(p.allStacks(), func(e *expr) bool { return e.fn == word })
}

// cutOf returns what kernel stacks of a probe are cut by, and notes the functions for the run.
func (p *Plan) cutOf(probe *event.Probe) codegen.Cut {
	if !p.captures("kstack") {
		return codegen.Cut{}
	}
	functions, through := probes.Tracing(probe)
	cut := codegen.Cut{Offset: rangeSize * len(p.tracing), Ranges: len(functions), Through: through, Unfound: probes.FramesOfTracing}
	p.tracing = append(p.tracing, functions...)
	return cut
}

// rangeSize is a pair of numbers, an address and a size.
const rangeSize = 16

// stackSpace is what the maps of stacks need.
func (p *Plan) stackSpace() codegen.StackSpace {
	s := codegen.StackSpace{Ranges: len(p.tracing), Entries: p.stackEntries}
	for _, e := range p.allStacks() {
		if !slices.Contains(s.Frames, e.index) {
			s.Frames = append(s.Frames, e.index)
		}
	}
	slices.Sort(s.Frames)
	return s
}

// stackEntries is how many different stacks of so many frames there is room for: 16 MiB, unless the user says how many.
func (p *Plan) stackEntries(frames int) uint32 {
	const budget, most = 16 << 20, 65536
	return cmp.Or(p.options.MapEntries, uint32(min(budget/(codegen.StackEntrySize(frames)+stackOverhead), most)))
}

const stackOverhead = 8 + entryOverhead

// stackBytes is what stacks take in the kernel.
func (p *Plan) stackBytes() uint64 {
	space := p.stackSpace()
	if len(space.Frames) == 0 {
		return 0
	}
	bytes := uint64(p.options.CPUs * codegen.StackSlotsSize)
	for _, n := range space.Frames {
		bytes += p.storeBytes(n)
	}
	return bytes
}

func (p *Plan) storeBytes(frames int) uint64 {
	return uint64(p.stackEntries(frames)) * uint64(codegen.StackEntrySize(frames)+stackOverhead)
}

// stackStore finds the frames of stacks, and their names.
type stackStore struct {
	// recorded finds stacks of a recording, of which shortened are parts; nil: they are in the maps.
	recorded  func(number uint64) (event.Stack, bool)
	shortened map[uint64]event.Stack

	mu        sync.Mutex
	maps      []*ebpf.Map
	counts    *ebpf.Map
	kernel    *symbols.Kernel
	processes *symbols.Processes
	// found are stacks that were looked for, as long as they are not too many.
	found map[uint64]format.Frames
	// patience is how long names may be looked for once ctx has ended, as the last stacks want theirs. impatient counts the stacks whose
	// names were not found in that time.
	ctx       context.Context
	patience  time.Duration
	impatient uint64
}

// namingPatience is the time for names after the end of a run: symbols of large programs take a second each.
const namingPatience = 30 * time.Second

// maxFound bounds what is kept of stacks that were printed.
const maxFound = 4096

// lostFrames are those of a stack for which there was no room.
var lostFrames = format.Frames{"(lost: no room for more stacks)"}

// openStacks prepares what the stacks of a plan need, before its programs are loaded.
func (r *Run) openStacks(ctx context.Context) (err error) {
	space := r.plan.stackSpace()
	if len(space.Frames) == 0 {
		return nil
	}
	if find := r.plan.options.RecordedStack; find != nil {
		r.stacks = &stackStore{recorded: find, shortened: map[uint64]event.Stack{}, found: map[uint64]format.Frames{}}
		return nil
	}
	s := &stackStore{counts: r.kernel[codegen.StackCountsName], found: map[uint64]format.Frames{}, ctx: ctx, patience: namingPatience}
	r.stacks = s
	for _, n := range space.Frames {
		s.maps = append(s.maps, r.kernel[codegen.StacksName(n)])
	}
	if r.plan.captures("kstack") {
		if s.kernel, err = symbols.OpenKernel(); err != nil {
			return fmt.Errorf("kstack: %w", err)
		}
		if err := r.putCuts(); err != nil {
			return err
		}
	}
	if r.plan.captures("ustack") {
		if s.processes, err = symbols.OpenProcesses(s.processesInUse); err != nil {
			return fmt.Errorf("ustack: %w", err)
		}
	}
	return nil
}

// putCuts tells the programs where the functions are that stand between them and what is traced.
func (r *Run) putCuts() error {
	cuts := r.kernel[codegen.StackCutsName]
	value := make([]byte, cuts.ValueSize())
	for i, name := range r.plan.tracing {
		from, size := r.stacks.kernel.Range(name)
		binary.NativeEndian.PutUint64(value[rangeSize*i:], from)
		binary.NativeEndian.PutUint64(value[rangeSize*i+8:], size)
	}
	if err := cuts.Put(uint32(0), value); err != nil {
		return fmt.Errorf("%s: %w", codegen.StackCutsName, err)
	}
	return nil
}

func (s *stackStore) close() error {
	if s == nil || s.processes == nil {
		return nil
	}
	return s.processes.Close()
}

// frames returns those of a stack by its number.
func (s *stackStore) frames(number uint64) format.Frames {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.found[number]; ok {
		return known
	}
	found := lostFrames
	gaveUp := s.impatient
	if whole, ok := s.find(number); ok {
		found = whole.Frames
	}
	if s.impatient != gaveUp { // perhaps there is time later
		return found
	}
	if len(s.found) >= maxFound {
		clear(s.found)
	}
	s.found[number] = found
	return found
}

// Stack returns what a number stands for; ok is false if there was no room for the frames. It may be called while a clause runs.
func (r *Run) Stack(number uint64) (found event.Stack, ok bool) {
	if r.stacks == nil {
		return found, false
	}
	r.stacks.mu.Lock()
	defer r.stacks.mu.Unlock()
	return r.stacks.find(number)
}

// shorten returns the number of the innermost frames of a recorded stack, as it would be if they had been captured alone.
func (s *stackStore) shorten(number uint64, most int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole, ok := s.find(number)
	if !ok || len(whole.Frames) <= most {
		return number
	}
	short := event.Stack{PID: whole.PID, Addresses: whole.Addresses[:most], Frames: whole.Frames[:most]}
	n := codegen.StackNumber(short.PID, short.Addresses, most)
	s.shortened[n] = short
	return n
}

func (s *stackStore) find(number uint64) (found event.Stack, ok bool) {
	if s.recorded != nil {
		if found, ok = s.recorded(number); !ok {
			found, ok = s.shortened[number]
		}
		return found, ok
	}
	for _, m := range s.maps {
		raw, err := m.LookupBytes(number)
		if err != nil || raw == nil {
			continue
		}
		header := codegen.StackHeader{PID: binary.NativeEndian.Uint64(raw), Nsecs: binary.NativeEndian.Uint64(raw[8:])}
		var addresses []uint64
		for raw = raw[16:]; len(raw) > 0; raw = raw[8:] {
			if a := binary.NativeEndian.Uint64(raw); a != 0 {
				addresses = append(addresses, a)
			}
		}
		return s.named(header, addresses), true
	}
	return found, false
}

func (s *stackStore) named(h codegen.StackHeader, addresses []uint64) event.Stack {
	var list []symbols.Frame
	if h.PID == 0 {
		list = s.kernel.Frames(addresses)
	} else {
		ctx, done := s.searching()
		list = s.processes.Frames(ctx, int(h.PID), h.Nsecs, addresses)
		if ctx.Err() != nil {
			s.impatient++
		}
		done()
	}
	out := event.Stack{PID: h.PID, Addresses: addresses}
	for _, f := range list {
		out.Frames = append(out.Frames, f.String())
	}
	return out
}

// searching returns the context of a search for names, and what to call when it is done.
func (s *stackStore) searching() (context.Context, func()) {
	if s.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(context.Background())
		patience := s.patience
		stop := context.AfterFunc(s.ctx, func() { time.AfterFunc(patience, cancel) })
		return ctx, func() { stop(); cancel() }
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	return ctx, func() {
		cancel()
		s.patience -= time.Since(began)
	}
}

// processesInUse are those of which there are stacks.
func (s *stackStore) processesInUse() (map[int]bool, error) {
	used := map[int]bool{}
	for _, m := range s.maps {
		var number uint64
		raw := make([]byte, m.ValueSize())
		all := m.Iterate()
		for all.Next(&number, &raw) {
			used[int(binary.NativeEndian.Uint64(raw))] = true
		}
		if err := all.Err(); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// StacksUnwatched is why names are not known for stacks of processes that have ended, nil if they are.
func (r *Run) StacksUnwatched() error {
	if r.stacks == nil || r.stacks.processes == nil {
		return nil
	}
	return r.stacks.processes.Unwatched()
}

// StackLosses are stacks that are not what they should be.
type StackLosses struct {
	codegen.StackCounters
	// Mappings are notes of the kernel about what processes map that were lost: frames may be without names for it.
	Mappings uint64
	// Unread says which files were too large to be read for names. Impatient are stacks without names, as it took too long to look for them.
	Unread    []string
	Impatient uint64
}

// Lost is how many stacks are absent, or without their frames.
func (l StackLosses) Lost() uint64 { return l.Full + l.NoMemory + l.Busy + l.Failed }

// StackLosses of the run.
func (r *Run) StackLosses() (l StackLosses, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stacks == nil || r.stacks.recorded != nil {
		return l, nil
	}
	var cpus []codegen.StackCounters
	if err := r.stacks.counts.Lookup(uint32(0), &cpus); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return l, fmt.Errorf("counters of stacks: %w", err)
	}
	for _, c := range cpus {
		l.Full += c.Full
		l.NoMemory += c.NoMemory
		l.Busy += c.Busy
		l.Failed += c.Failed
	}
	if r.stacks.processes != nil {
		l.Mappings, l.Unread = r.stacks.processes.Lost(), r.stacks.processes.Unread()
	}
	r.stacks.mu.Lock()
	defer r.stacks.mu.Unlock()
	l.Impatient = r.stacks.impatient
	return l, nil
}
