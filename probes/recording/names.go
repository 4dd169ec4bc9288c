package recording

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"trace/probes/event"
	"trace/probes/workload"
)

// Names describe what numbers in events stand for. A Writer calls them from its own goroutine.
type Names interface {
	// Cgroup returns the path of a cgroup, "" if it is unknown, and what it runs.
	Cgroup(id uint64) (path string, runs event.Workload)
	// Stack returns the frames of a stack; ok is false if they are unknown.
	Stack(number uint64) (s event.Stack, ok bool)
}

// namesDesc is the payload of a block of names.
type namesDesc struct {
	Cgroups []cgroupName `json:"cgroups,omitempty"`
	Stacks  []stackName  `json:"stacks,omitempty"`
	// Clock is how the clock of the machine was set.
	Clock []event.Setting `json:"clock,omitempty"`
}

type cgroupName struct {
	ID   uint64 `json:"id"`
	Path string `json:"path"`
	// Workload is nil in recordings of old versions.
	Workload *event.Workload `json:"workload,omitempty"`
}

type stackName struct {
	Number uint64 `json:"number"`
	event.Stack
}

// numbers are the places in a record of numbers that have names.
type numbers struct {
	size    int
	cgroups []int
	stacks  []event.RecordedValue
}

func numbersOf(l *event.Layout) numbers {
	n := numbers{size: l.Size}
	for _, pl := range l.Places() {
		if t := pl.Field.Type; t.Unit == event.Cgroup && t.Size == 8 {
			n.cgroups = append(n.cgroups, pl.At)
		}
	}
	for i := range min(l.Values(), recordedStacks) {
		at, hasAt := l.Slot(i)
		n.stacks = append(n.stacks, event.RecordedValue{At: at, HasAt: hasAt})
	}
	return n
}

// writtenNames are the names that a file has already.
type writtenNames struct {
	cgroups map[uint64]event.Workload
	stacks  map[uint64]bool
	// clock is since when the clock was set as the file has it, in nsecs.
	clock uint64
}

func newWrittenNames() writtenNames {
	return writtenNames{cgroups: map[uint64]event.Workload{}, stacks: map[uint64]bool{}}
}

// newNames returns blocks with the names that the events of a block need and that the file does not have yet. They count as written.
func (w *Writer) newNames(p pending) ([]byte, error) {
	if p.kind != eventsBlock {
		return nil, nil
	}
	blocks := namesBlocks{writer: w, first: p.first}
	w.newSettings(&blocks)
	if w.names == nil {
		err := blocks.end()
		return blocks.out, err
	}
	// What was asked for in this block: names of a workload may come after its first event, and stacks may stay unknown.
	var asked struct{ cgroups, stacks map[uint64]bool }
	asked.cgroups, asked.stacks = map[uint64]bool{}, map[uint64]bool{}
	for rest := p.raw; len(rest) > 0; {
		n := &w.numbers[binary.LittleEndian.Uint64(rest)]
		for _, at := range n.cgroups {
			id := binary.LittleEndian.Uint64(rest[at:])
			if id == 0 || asked.cgroups[id] {
				continue
			}
			asked.cgroups[id] = true
			path, runs := w.names.Cgroup(id)
			if last, written := w.written.cgroups[id]; path == "" || written && last == runs {
				continue
			}
			w.written.cgroups[id] = runs
			blocks.Cgroups = append(blocks.Cgroups, cgroupName{id, path, &runs})
			if err := blocks.grow(2 * len(path)); err != nil {
				return nil, err
			}
		}
		for _, s := range n.stacks {
			number := binary.LittleEndian.Uint64(rest[s.At:])
			if rest[s.HasAt] == 0 || w.written.stacks[number] || asked.stacks[number] {
				continue
			}
			stack, ok := w.names.Stack(number)
			if !ok {
				asked.stacks[number] = true
				continue
			}
			w.written.stacks[number] = true
			blocks.Stacks = append(blocks.Stacks, stackName{number, stack})
			if err := blocks.grow(stackBytes(stack)); err != nil {
				return nil, err
			}
		}
		rest = rest[n.size:]
	}
	err := blocks.end()
	return blocks.out, err
}

// newSettings adds how the clock of the machine was set since the last call. That counts as written.
func (w *Writer) newSettings(blocks *namesBlocks) {
	if w.wall == nil {
		return
	}
	for _, s := range w.wall.Steps() {
		if s.From > w.written.clock {
			w.written.clock = s.From
			blocks.Clock = append(blocks.Clock, s)
			blocks.bytes += 64
		}
	}
}

// namesBlocks collects names and makes blocks of them.
type namesBlocks struct {
	namesDesc
	writer *Writer
	first  uint64
	bytes  int
	out    []byte
}

// grow counts the bytes of a name, and ends the block if it is large.
func (b *namesBlocks) grow(bytes int) error {
	if b.bytes += bytes; b.bytes < blockBytes {
		return nil
	}
	return b.end()
}

func (b *namesBlocks) end() error {
	if b.bytes == 0 {
		return nil
	}
	raw, err := json.Marshal(b.namesDesc)
	if err != nil {
		return err
	}
	stored := b.writer.encoder.EncodeAll(raw, nil)
	head := block{kind: namesBlock, raw: uint32(len(raw)), stored: uint32(len(stored)), first: b.first, last: b.first}
	b.out = append(append(b.out, b.writer.sequence.encode(head, stored)...), stored...)
	b.namesDesc, b.bytes = namesDesc{}, 0
	return nil
}

// stackBytes estimates the size of a stack.
func stackBytes(s event.Stack) int {
	n := 64
	for _, f := range s.Frames {
		n += len(f) + 32
	}
	return n
}

// knownNames are the names that were read. Its methods may be called from several goroutines.
//
// A number stands for one cgroup, or one stack, in all files. If it stands for another one in some file, that one gets a new number (see
// file.renumber). Cgroups are identified by their paths, so two hosts may have the same cgroup.
type knownNames struct {
	mu      sync.RWMutex
	cgroups map[uint64]string // "" is one without a name
	runs    map[uint64]event.Workload
	byPath  map[string]uint64
	boots   map[int]bootNumbers
	stacks  map[uint64]event.Stack
	// unknownStacks are numbers of stacks whose frames no file has.
	unknownStacks map[uint64]bool
	bytes         int
}

// bootNumbers are the numbers of the cgroups of one boot, by their ids, and which numbers it uses.
type bootNumbers struct {
	of   map[uint64]uint64
	used map[uint64]bool
}

// maxNames bounds the memory for the names of recordings, in bytes: a recording has as many stacks as the kernel had room for.
const maxNames = 256 << 20

var errTooManyNames = errors.New("more of them than a recording has")

func newKnownNames() *knownNames {
	return &knownNames{cgroups: map[uint64]string{}, runs: map[uint64]event.Workload{}, byPath: map[string]uint64{}, boots: map[int]bootNumbers{}, stacks: map[uint64]event.Stack{}, unknownStacks: map[uint64]bool{}}
}

// grow counts the bytes of a name.
func (k *knownNames) grow(bytes int) error {
	if k.bytes += bytes; k.bytes > maxNames {
		return errTooManyNames
	}
	return nil
}

// learn reads a block of names.
func (f *file) learn(payload []byte) error {
	k := f.names
	k.mu.Lock()
	defer k.mu.Unlock()
	// Decoded text needs more memory than the text.
	if k.bytes+len(payload)+64*bytes.Count(payload, []byte("{")) > maxNames {
		return errTooManyNames
	}
	var d namesDesc
	if err := json.Unmarshal(payload, &d); err != nil {
		return err
	}
	for _, c := range d.Cgroups {
		n, err := k.learnCgroup(f.boot, c.ID, c.Path)
		if err != nil {
			return err
		}
		runs := workload.OfPath(c.Path)
		if c.Workload != nil {
			runs = *c.Workload
		}
		k.runs[n] = runs
		if err := k.grow(len(runs.Unit) + len(runs.Pod) + len(runs.Namespace) + len(runs.Container) + len(runs.Image) + len(runs.Job) + len(runs.Step)); err != nil {
			return err
		}
	}
	for _, s := range d.Clock {
		if f.wall != nil {
			f.wall.Set(s)
		}
	}
	for _, s := range d.Stacks {
		if len(s.Addresses) != len(s.Frames) {
			return fmt.Errorf("%d frames at %d addresses", len(s.Frames), len(s.Addresses))
		}
		if err := f.learnStack(s.Number, s.Stack); err != nil {
			return err
		}
	}
	return nil
}

// ofBoot returns the numbers of a boot.
func (k *knownNames) ofBoot(boot int) bootNumbers {
	if k.boots[boot].of == nil {
		k.boots[boot] = bootNumbers{map[uint64]uint64{}, map[uint64]bool{}}
	}
	return k.boots[boot]
}

// learnCgroup sets the path of a cgroup, and returns its number.
func (k *knownNames) learnCgroup(boot int, id uint64, path string) (n uint64, err error) {
	b := k.ofBoot(boot)
	n, known := b.of[id]
	if !known {
		// In one boot two cgroups may have had the same path, one after the other.
		if n, known = k.byPath[path]; known && b.used[n] {
			known = false
		}
	}
	if !known {
		n = k.free(id)
	}
	b.of[id], b.used[n] = n, true
	k.cgroups[n] = path
	if _, there := k.byPath[path]; !there {
		k.byPath[path] = n
	}
	return n, k.grow(512 + 4*len(path))
}

// free returns the first number from n on that no cgroup has.
func (k *knownNames) free(n uint64) uint64 {
	for {
		if _, taken := k.cgroups[n]; !taken && n != 0 {
			return n
		}
		n++
	}
}

// cgroup returns the number of a cgroup.
func (k *knownNames) cgroup(boot int, id uint64) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.ofBoot(boot)
	if n, ok := b.of[id]; ok {
		return n, nil
	}
	n := k.free(id)
	b.of[id], b.used[n], k.cgroups[n] = n, true, ""
	return n, k.grow(128)
}

// learnStack keeps a stack.
func (f *file) learnStack(number uint64, s event.Stack) error {
	k := f.names
	n := number
	for {
		other, known := k.stacks[n]
		if !k.unknownStacks[n] && (!known || reflect.DeepEqual(other, s)) {
			break
		}
		n++
	}
	k.stacks[n], f.stackNumbers[number] = s, n
	return k.grow(stackBytes(s))
}

// stack returns the number of a stack.
func (f *file) stack(number uint64) (uint64, error) {
	k := f.names
	k.mu.Lock()
	defer k.mu.Unlock()
	if n, ok := f.stackNumbers[number]; ok {
		return n, nil
	}
	n := number
	for k.hasStack(n) {
		n++
	}
	k.unknownStacks[n], f.stackNumbers[number] = true, n
	return n, k.grow(128)
}

func (k *knownNames) hasStack(n uint64) bool {
	_, known := k.stacks[n]
	return known || k.unknownStacks[n]
}

// renumber replaces the numbers in a record of this file by numbers that are unique among all files.
func (f *file) renumber(record []byte, in numbers) error {
	for _, at := range in.cgroups {
		id := binary.LittleEndian.Uint64(record[at:])
		if id == 0 {
			continue
		}
		n, err := f.names.cgroup(f.boot, id)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(record[at:], n)
	}
	for _, s := range in.stacks {
		if record[s.HasAt] == 0 {
			continue
		}
		n, err := f.stack(binary.LittleEndian.Uint64(record[s.At:]))
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(record[s.At:], n)
	}
	return nil
}

// ID finds no cgroup: the names come with the events, after the program was compiled, so programs compare by path.
func (*knownNames) ID(string) (uint64, bool) { return 0, false }

// Ended reports nothing: a recording does not have it.
func (*knownNames) Ended(string) bool { return false }

// Path returns the path of a cgroup on its host.
func (k *knownNames) Path(id uint64) string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.cgroups[id]
}

// Workload returns what a cgroup ran on its host.
func (k *knownNames) Workload(id uint64) event.Workload {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.runs[id]
}

// Stack returns the stack for a number in the events that were read; ok is false if it was unknown when it was recorded.
func (r *Recording) Stack(number uint64) (s event.Stack, ok bool) {
	r.names.mu.RLock()
	defer r.names.mu.RUnlock()
	s, ok = r.names.stacks[number]
	return s, ok
}

// WithoutStacks returns the name of a file whose events have no stacks, or "".
func (r *Recording) WithoutStacks() string {
	for _, f := range r.files {
		for _, d := range f.header.Records {
			if len(d.Stacks) == 0 && d.Group != intervalGroup {
				return f.name
			}
		}
	}
	return ""
}
