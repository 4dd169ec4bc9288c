package symbols

import (
	"context"
	"path/filepath"
	"strings"
)

// This file looks up addresses: what was mapped there at a moment, and its name.

// readAgain is how long what /proc tells of a process is good for, in ns. Code without frame pointers makes stacks of numbers that are
// no addresses, a new one with each sample, and to read a large process for each takes longer than the next sample does to come.
const readAgain = 1e9

// Frames returns the frames of addresses that a process had on its stack, innermost first, at a moment in ns since boot. When ctx ends it
// returns at once, and what is not known yet has no name: a file system that hangs, or too many large files, hold nobody up.
func (p *Processes) Frames(ctx context.Context, pid int, nsecs uint64, addresses []uint64) []Frame {
	found := make(chan []Frame, 1)
	go func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		found <- p.frames(ctx, pid, nsecs, addresses)
	}()
	select {
	case out := <-found:
		return out
	case <-ctx.Done():
		return nameless(addresses)
	}
}

// nameless are frames of which only the addresses are known.
func nameless(addresses []uint64) []Frame {
	out := make([]Frame, len(addresses))
	for i, a := range addresses {
		out[i] = Frame{Address: a}
	}
	return out
}

func (p *Processes) frames(ctx context.Context, pid int, nsecs uint64, addresses []uint64) []Frame {
	p.drain()
	s := p.space(pid)
	out := nameless(addresses)
	for i, a := range addresses {
		if ctx.Err() != nil {
			break
		}
		m, ok := s.mapped(a, nsecs)
		if !ok && s.ended == nil && BootClock() >= s.read+readAgain {
			p.readMaps(s)
			m, ok = s.mapped(a, nsecs)
		}
		if ok {
			p.name(&out[i], s, m, i > 0)
		}
	}
	return out
}

// name names an address in a mapping.
func (p *Processes) name(f *Frame, s *space, m mapping, returned bool) {
	f.Module = strings.TrimSuffix(filepath.Base(m.name), " (deleted)")
	switch {
	case m.name == "[vdso]":
		f.Module = m.name
		if im := p.vdso(m.end - m.start); im != nil {
			if a, ok := im.address(f.Address - m.start); ok {
				im.frame(f, a, returned)
			}
		}
		return
	case m.name == "":
		f.Module = ""
	}
	if m.file.inode != 0 {
		if im := p.image(s.pid, m); im != nil {
			if a, ok := im.address(f.Address - m.start + m.offset); ok {
				im.frame(f, a, returned)
			}
			return
		}
	}
	if fn, ok := p.written(s).find(f.Address); ok {
		f.Function, f.Offset = readable(fn.name), f.Address-fn.start
	}
}
