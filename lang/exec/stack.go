package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/lang/plan"
	"trace/probes/event"
	"trace/probes/symbols"
)

// This file implements kstack and ustack. A program handles a stack by its number (see codegen.Stack). Only output looks up its
// frames and their names.

// stackStore finds the frames of stacks, and their names.
type stackStore struct {
	// recorded finds stacks of a recording; shortened are the innermost frames of some of them. recorded is nil if the stacks are
	// in maps.
	recorded  func(number uint64) (event.Stack, bool)
	shortened map[uint64]event.Stack

	maps      []*ebpf.Map
	counts    *ebpf.Map
	kernel    *symbols.Kernel
	processes *symbols.Member
	patience  *patience

	mu sync.Mutex // guards what follows, and shortened; nobody looks up names with it
	// found are stacks that were looked up, at most maxFound, and bytes that they take, at most maxFoundBytes.
	found map[uint64]format.Frames
	bytes int
}

// Limits of the printed stacks that are kept: a process may have long names.
const (
	maxFound      = 4096
	maxFoundBytes = 8 << 20
)

// lostFrames are the frames of a stack without room.
var lostFrames = format.Frames{"(lost: no room for more stacks)"}

// openStacks prepares what the stacks of a plan need, before the BPF programs are loaded.
func (r *Run) openStacks(o Options) (err error) {
	space := r.plan.StackSpace()
	if len(space.Frames) == 0 {
		return nil
	}
	if find := r.plan.Options.RecordedStack; find != nil {
		r.stacks = &stackStore{recorded: find, shortened: map[uint64]event.Stack{}, found: map[uint64]format.Frames{}}
		return nil
	}
	s := &stackStore{counts: r.kernel[codegen.StackCountsName], found: map[uint64]format.Frames{}, patience: r.patience}
	r.stacks = s
	for _, n := range space.Frames {
		s.maps = append(s.maps, r.kernel[codegen.StacksName(n)])
	}
	if r.plan.Captures("kstack") {
		if s.kernel, err = o.Names.Kernel(); err != nil {
			return fmt.Errorf("kstack: %w", err)
		}
		if err := r.putCuts(); err != nil {
			return err
		}
	}
	if r.plan.Captures("ustack") {
		if s.processes, err = o.Names.Processes(s.processesInUse); err != nil {
			return fmt.Errorf("ustack: %w", err)
		}
	}
	return nil
}

// putCuts gives the BPF programs the addresses of the functions between them and the code that they trace.
func (r *Run) putCuts() error {
	cuts := r.kernel[codegen.StackCutsName]
	value := make([]byte, cuts.ValueSize())
	for i, name := range r.plan.Tracing {
		from, size := r.stacks.kernel.Range(name)
		binary.NativeEndian.PutUint64(value[plan.RangeSize*i:], from)
		binary.NativeEndian.PutUint64(value[plan.RangeSize*i+8:], size)
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

// shown returns the frames of a stack as the program wants them.
func (s *stackStore) shown(search searching, how event.Unit, number uint64) format.Frames {
	names, _ := s.frames(search, number)
	if how == 0 {
		return names
	}
	whole, ok := s.find(number)
	if !ok {
		return names
	}
	shown := make(format.Frames, len(whole.Addresses))
	for i, address := range whole.Addresses {
		shown[i] = strconv.FormatUint(address, 16)
		if how == format.PerfFrames {
			shown[i] += " " + names[i]
		}
	}
	return shown
}

// length returns how many frames a stack has, or nil if they were lost.
func (s *stackStore) length(number uint64) any {
	whole, ok := s.find(number)
	if !ok {
		return nil
	}
	return uint64(len(whole.Addresses))
}

// frames returns the frames of a stack by its number, and whether all that can have a name have one.
func (s *stackStore) frames(search searching, number uint64) (frames format.Frames, whole bool) {
	s.mu.Lock()
	known, ok := s.found[number]
	s.mu.Unlock()
	if ok {
		return known, true
	}
	frames, whole = lostFrames, true
	if found, ok := s.find(number); ok {
		frames, whole = s.named(search, found)
	}
	if whole { // otherwise there may be time later
		s.remember(number, frames)
	}
	return frames, whole
}

// remember keeps the frames of a stack.
func (s *stackStore) remember(number uint64, frames format.Frames) {
	size := 64
	for _, f := range frames {
		size += 16 + len(f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found) >= maxFound || s.bytes+size > maxFoundBytes {
		clear(s.found)
		s.bytes = 0
	}
	s.found[number], s.bytes = frames, s.bytes+size
}

// Stack returns the stack of a number. ok is false if there was no room for the frames. It may be called while a clause runs.
func (r *Run) Stack(number uint64) (found event.Stack, ok bool) {
	if r.stacks == nil {
		return found, false
	}
	whole, ok := r.stacks.find(number)
	if ok {
		whole.Frames, _ = r.stacks.frames(r.stacks.patience.search, number)
	}
	return whole.Stack, ok
}

// shorten returns the number of the innermost frames of a recorded stack, as if only these had been captured.
func (s *stackStore) shorten(number uint64, most int) uint64 {
	whole, ok := s.find(number)
	if !ok || len(whole.Frames) <= most {
		return number
	}
	short := event.Stack{PID: whole.PID, Addresses: whole.Addresses[:most], Frames: whole.Frames[:most]}
	n := codegen.StackNumber(short.PID, short.Addresses, most)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shortened[n] = short
	return n
}

// captured is a stack. Only one of a recording has names already.
type captured struct {
	event.Stack
	nsecs uint64
}

// find returns the stack of a number.
func (s *stackStore) find(number uint64) (found captured, ok bool) {
	if s.recorded != nil {
		if found.Stack, ok = s.recorded(number); !ok {
			s.mu.Lock()
			defer s.mu.Unlock()
			found.Stack, ok = s.shortened[number]
		}
		return found, ok
	}
	for _, m := range s.maps {
		raw, err := m.LookupBytes(number)
		if err != nil || raw == nil {
			continue
		}
		found.PID, found.nsecs = binary.NativeEndian.Uint64(raw), binary.NativeEndian.Uint64(raw[8:])
		for raw = raw[16:]; len(raw) > 0; raw = raw[8:] {
			if a := binary.NativeEndian.Uint64(raw); a != 0 {
				found.Addresses = append(found.Addresses, a)
			}
		}
		return found, true
	}
	return found, false
}

// named returns the names of a stack, and whether all were looked up.
func (s *stackStore) named(search searching, of captured) (frames format.Frames, whole bool) {
	if s.recorded != nil {
		return of.Frames, true
	}
	var list []symbols.Frame
	whole = true
	if of.PID == 0 {
		list = s.kernel.Frames(of.Addresses)
	} else {
		search(s.processes.User(int(of.PID)), func(ctx context.Context) bool {
			list, whole = s.processes.Frames(ctx, int(of.PID), of.nsecs, of.Addresses)
			return whole
		})
	}
	for _, f := range list {
		frames = append(frames, f.String())
	}
	return frames, whole
}

// processesInUse returns the processes that have stacks.
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

// StacksUnwatched returns why stacks of ended processes have no names, or nil if they have.
func (r *Run) StacksUnwatched() error {
	if r.stacks == nil || r.stacks.processes == nil {
		return nil
	}
	return r.stacks.processes.Unwatched()
}

// StackLosses count stacks that were lost or incomplete.
type StackLosses struct {
	codegen.StackCounters
	// Mappings counts lost notifications of the kernel about what processes map. Frames may lack names because of them.
	Mappings uint64
	// Unread are files that would have taken too much to read for names. Impatient counts stacks without names because the search took too
	// long.
	Unread    []string
	Impatient uint64
}

// Lost returns how many stacks are absent, or without their frames.
func (l StackLosses) Lost() uint64 { return l.Full + l.NoMemory + l.Busy + l.Failed }

// StackLosses returns the losses of the run.
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
	l.Impatient = r.stacks.patience.given.Load()
	return l, nil
}
