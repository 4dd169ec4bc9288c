package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

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

	mu        sync.Mutex
	maps      []*ebpf.Map
	counts    *ebpf.Map
	kernel    *symbols.Kernel
	processes *symbols.Processes
	// found are stacks that were looked up, at most maxFound.
	found map[uint64]format.Frames
	// patience is how long names may be looked up after ctx has ended, because the last stacks need theirs. impatient counts the
	// stacks whose names were not found in that time.
	ctx       context.Context
	patience  time.Duration
	impatient uint64
}

// namingPatience is the time for names after the end of a run. The symbols of a large program take a second.
const namingPatience = 30 * time.Second

// maxFound limits how many printed stacks are kept.
const maxFound = 4096

// lostFrames are the frames of a stack without room.
var lostFrames = format.Frames{"(lost: no room for more stacks)"}

// openStacks prepares what the stacks of a plan need, before the BPF programs are loaded.
func (r *Run) openStacks(ctx context.Context) (err error) {
	space := r.plan.StackSpace()
	if len(space.Frames) == 0 {
		return nil
	}
	if find := r.plan.Options.RecordedStack; find != nil {
		r.stacks = &stackStore{recorded: find, shortened: map[uint64]event.Stack{}, found: map[uint64]format.Frames{}}
		return nil
	}
	s := &stackStore{counts: r.kernel[codegen.StackCountsName], found: map[uint64]format.Frames{}, ctx: ctx, patience: namingPatience}
	r.stacks = s
	for _, n := range space.Frames {
		s.maps = append(s.maps, r.kernel[codegen.StacksName(n)])
	}
	if r.plan.Captures("kstack") {
		if s.kernel, err = symbols.OpenKernel(); err != nil {
			return fmt.Errorf("kstack: %w", err)
		}
		if err := r.putCuts(); err != nil {
			return err
		}
	}
	if r.plan.Captures("ustack") {
		if s.processes, err = symbols.OpenProcesses(s.processesInUse); err != nil {
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
func (s *stackStore) shown(how event.Unit, number uint64) format.Frames {
	names := s.frames(number)
	if how == 0 {
		return names
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	whole, ok := s.find(number)
	if !ok {
		return names
	}
	shown := make(format.Frames, len(whole.Addresses))
	for i, address := range whole.Addresses {
		shown[i] = strconv.FormatUint(address, 16)
		if how == format.PerfFrames {
			shown[i] += " " + whole.Frames[i]
		}
	}
	return shown
}

// length returns how many frames a stack has, or nil if they were lost.
func (s *stackStore) length(number uint64) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole, ok := s.find(number)
	if !ok {
		return nil
	}
	return uint64(len(whole.Addresses))
}

// frames returns the frames of a stack by its number.
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
	if s.impatient != gaveUp { // there may be time later
		return found
	}
	if len(s.found) >= maxFound {
		clear(s.found)
	}
	s.found[number] = found
	return found
}

// Stack returns the stack of a number. ok is false if there was no room for the frames. It may be called while a clause runs.
func (r *Run) Stack(number uint64) (found event.Stack, ok bool) {
	if r.stacks == nil {
		return found, false
	}
	r.stacks.mu.Lock()
	defer r.stacks.mu.Unlock()
	return r.stacks.find(number)
}

// shorten returns the number of the innermost frames of a recorded stack, as if only these had been captured.
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

// searching returns the context of a search for names, and a function to call when the search is done.
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
	// Unread are files that were too large to read for names. Impatient counts stacks without names because the search took too
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
	r.stacks.mu.Lock()
	defer r.stacks.mu.Unlock()
	l.Impatient = r.stacks.impatient
	return l, nil
}
