package symbols

import (
	"context"
	"path/filepath"
	"strings"
)

// This file looks up addresses: what was mapped there at a time, and its name.

// readAgain is how long a result of /proc is used, in ns. Without frame pointers, stacks contain numbers that are not addresses, new ones
// with each sample. Reading a large process for each of them would take longer than a sample's period.
const readAgain = 1e9

// Frames returns the frames of addresses from a process' stack, innermost first, at a time in ns since boot. When ctx ends it returns at
// once, and unresolved addresses have no name: what is being read is there for whoever asks later. ok is false then.
func (p *Processes) Frames(ctx context.Context, pid int, nsecs uint64, addresses []uint64) (all []Frame, ok bool) {
	if ctx.Err() != nil {
		return nameless(addresses), false
	}
	found := make(chan []Frame, 1)
	user := p.User(pid)
	if !p.turns.add(user, ctx, func() { found <- p.frames(ctx, user, pid, nsecs, addresses) }) {
		return nameless(addresses), false
	}
	select {
	case all = <-found:
		return all, ctx.Err() == nil
	case <-ctx.Done():
	case <-p.over:
	}
	return nameless(addresses), false
}

// nameless returns frames with addresses only.
func nameless(addresses []uint64) []Frame {
	out := make([]Frame, len(addresses))
	for i, a := range addresses {
		out[i] = Frame{Address: a}
	}
	return out
}

// frames looks up addresses. Only the worker calls it.
func (p *Processes) frames(ctx context.Context, user uint32, pid int, nsecs uint64, addresses []uint64) []Frame {
	s := p.known(pid)
	out := nameless(addresses)
	defer func() {
		for _, im := range p.warm {
			im.cool()
		}
		p.warm = p.warm[:0]
	}()
	for i, a := range addresses {
		if ctx.Err() != nil || p.stopped.Load() {
			break
		}
		m, ok, again := p.mappedAt(s, a, nsecs)
		if !ok && again {
			p.readMaps(s)
			m, ok, _ = p.mappedAt(s, a, nsecs)
		}
		if ok {
			p.name(&out[i], s, user, m, i > 0)
		}
	}
	return out
}

// known returns the space of a process, which was read.
func (p *Processes) known(pid int) *space {
	p.mu.Lock()
	p.drain()
	s := p.space(pid)
	first := s.read == 0
	p.mu.Unlock()
	if first {
		p.readMaps(s)
	}
	return s
}

// mappedAt returns what a process had mapped at a time, or whether to read it again.
func (p *Processes) mappedAt(s *space, address, at uint64) (m mapping, ok, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok = s.mapped(address, at)
	return m, ok, s.ended == nil && BootClock() >= s.read+readAgain
}

// name names an address in a mapping.
func (p *Processes) name(f *Frame, s *space, user uint32, m mapping, returned bool) {
	f.Module = strings.TrimSuffix(filepath.Base(m.name), " (deleted)")
	var im *image
	offset := f.Address - m.start
	switch {
	case m.name == "[vdso]":
		f.Module = m.name
		im = p.vdso(m.end - m.start)
	case m.name == "":
		f.Module = ""
	}
	if m.file.inode != 0 && im == nil {
		if of := p.open(s.pid, m); of != nil {
			p.mu.Lock()
			if p.files[of.id] == of {
				p.recent.MoveToBack(of.used)
			}
			p.mu.Unlock()
			im = p.load(of, user)
			offset += m.offset
		}
	}
	if im == nil {
		if m.name == "[vdso]" {
			return
		}
		if start, name, ok := p.written(s, user).find(f.Address); ok {
			f.Function, f.Offset = readable(name), f.Address-start
		}
		return
	}
	if a, ok := im.address(offset); ok {
		_ = im.frame(f, a, returned) // what costs too much has no name
	}
	p.warm = append(p.warm, im)
}
