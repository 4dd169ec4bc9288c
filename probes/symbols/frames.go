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
// once, and unresolved addresses have no name: a file system that hangs, or too many large files, must not block.
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

// nameless returns frames with addresses only.
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
