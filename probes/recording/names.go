package recording

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"trace/probes/event"
)

// Names tell what numbers in events stand for. A Writer asks from a goroutine of its own.
type Names interface {
	// Cgroup returns the path of a cgroup, "" if it is not known.
	Cgroup(id uint64) string
	// Stack returns the frames of a stack; ok is false if they are not known.
	Stack(number uint64) (s event.Stack, ok bool)
}

// namesDesc is the payload of a block of names.
type namesDesc struct {
	Cgroups []cgroupName `json:"cgroups,omitempty"`
	Stacks  []stackName  `json:"stacks,omitempty"`
}

type cgroupName struct {
	ID   uint64 `json:"id"`
	Path string `json:"path"`
}

type stackName struct {
	Number uint64 `json:"number"`
	event.Stack
}

// numbers are where those that have names are in a record.
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

// writtenNames are those that a file has.
type writtenNames struct{ cgroups, stacks map[uint64]bool }

func newWrittenNames() writtenNames {
	return writtenNames{cgroups: map[uint64]bool{}, stacks: map[uint64]bool{}}
}

// newNames returns blocks with the names that the events of a block need and the file does not have yet. They count as written.
func (w *Writer) newNames(p pending) ([]byte, error) {
	if w.names == nil || p.kind != eventsBlock {
		return nil, nil
	}
	blocks := namesBlocks{writer: w, first: p.first}
	unknown := newWrittenNames() // asked for once for each block
	for rest := p.raw; len(rest) > 0; {
		n := &w.numbers[binary.LittleEndian.Uint64(rest)]
		for _, at := range n.cgroups {
			id := binary.LittleEndian.Uint64(rest[at:])
			if id == 0 || w.written.cgroups[id] || unknown.cgroups[id] {
				continue
			}
			path := w.names.Cgroup(id)
			if path == "" {
				unknown.cgroups[id] = true
				continue
			}
			w.written.cgroups[id] = true
			blocks.Cgroups = append(blocks.Cgroups, cgroupName{id, path})
			if err := blocks.grow(len(path)); err != nil {
				return nil, err
			}
		}
		for _, s := range n.stacks {
			number := binary.LittleEndian.Uint64(rest[s.At:])
			if rest[s.HasAt] == 0 || w.written.stacks[number] || unknown.stacks[number] {
				continue
			}
			stack, ok := w.names.Stack(number)
			if !ok {
				unknown.stacks[number] = true
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

// namesBlocks gathers names and makes blocks of them.
type namesBlocks struct {
	namesDesc
	writer *Writer
	first  uint64
	bytes  int
	out    []byte
}

// grow counts the bytes of a name, and ends the block when there are many.
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

// stackBytes is about what a stack takes.
func stackBytes(s event.Stack) int {
	n := 64
	for _, f := range s.Frames {
		n += len(f) + 32
	}
	return n
}

// knownNames are those that were read. Its methods may be called from several goroutines.
type knownNames struct {
	mu      sync.RWMutex
	cgroups map[uint64]string
	stacks  map[uint64]event.Stack
	bytes   int
}

// maxNames bounds what the names of recordings can make a reader keep, in bytes: a recording has as many stacks as the kernel had room
// for.
const maxNames = 256 << 20

var errTooManyNames = errors.New("more of them than a recording has")

func newKnownNames() *knownNames {
	return &knownNames{cgroups: map[uint64]string{}, stacks: map[uint64]event.Stack{}}
}

// learn reads a block of names.
func (f *file) learn(payload []byte) error {
	k := f.names
	k.mu.Lock()
	defer k.mu.Unlock()
	// What the text becomes takes more room than the text.
	if k.bytes+len(payload)+64*bytes.Count(payload, []byte("{")) > maxNames {
		return errTooManyNames
	}
	var d namesDesc
	if err := json.Unmarshal(payload, &d); err != nil {
		return err
	}
	for _, c := range d.Cgroups {
		k.cgroups[f.cgroup(c.ID)] = c.Path
		k.bytes += 64 + len(c.Path)
	}
	for _, s := range d.Stacks {
		if len(s.Addresses) != len(s.Frames) {
			return fmt.Errorf("%d frames at %d addresses", len(s.Frames), len(s.Addresses))
		}
		k.stacks[s.Number] = s.Stack
		k.bytes += stackBytes(s.Stack)
	}
	if k.bytes > maxNames {
		return errTooManyNames
	}
	return nil
}

// ID knows no cgroup: the names come with the events, after the program was compiled, so that it compares by path.
func (*knownNames) ID(string) (uint64, bool) { return 0, false }

// Path of a cgroup on its host.
func (k *knownNames) Path(id uint64) string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.cgroups[id]
}

// Stack returns what the number of a stack in the events that were read stands for; ok is false if that was not known when it was
// recorded.
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
