package symbols

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// This file is what a process maps, and since when.

// space is the memory of a process.
type space struct {
	pid      int
	mappings []mapping // in the order in which they came to be known
	// begins are when the process was forked, and when it called exec: what was mapped before is gone.
	begins []begin
	ended  *list.Element
	// read is when /proc told what it maps.
	read uint64
	// inner is the process id in its own namespace, 0 if that is not known.
	inner int
	// owner is as whom the process makes files; ok is false if that is not known.
	owner struct {
		uid int
		ok  bool
	}
	// generation is how many forks without an exec have led to it.
	generation int
}

// begin of a part of a process' life. parent is what it was forked from, nil for an exec.
type begin struct {
	time   uint64
	parent *space
}

// parent is what a process was forked from, nil if that does not matter to it: since it called exec, or, with ever, if it never was.
func (s *space) parent(ever bool) (parent *space) {
	for _, b := range s.begins {
		if b.parent != nil || !ever {
			parent = b.parent
		}
	}
	return parent
}

// readMaps adds what a process maps now, unless it has ended.
func (p *Processes) readMaps(s *space) {
	s.read = BootClock()
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", s.pid))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && s.ended == nil {
			p.end(s)
		}
		return
	}
	defer f.Close()
	s.readStatus()
	now := BootClock()
	all, err := readMaps(f, now)
	if err != nil {
		return // it ends
	}
	for _, m := range all {
		if known, ok := s.covering(m.start, s.life(now), now); ok && known.end == m.end && known.file == m.file && known.offset == m.offset {
			continue
		}
		p.add(s, m)
	}
}

// add notes a mapping and opens its file.
func (p *Processes) add(s *space, m mapping) {
	// A compiler that maps its code anew again and again, or processes that do so to fill our memory.
	if n := len(s.mappings); n >= maxMapped || n > fewMapped && p.mapped > maxMappedBytes {
		p.cut(s, n/2)
	}
	s.mappings = append(s.mappings, m)
	p.mapped += m.bytes()
	if m.file.inode != 0 && p.files[m.key()] == nil {
		p.open(s.pid, m)
	}
}

// cut forgets the first n mappings of a process.
func (p *Processes) cut(s *space, n int) {
	for _, m := range s.mappings[:n] {
		p.mapped -= m.bytes()
	}
	s.mappings = slices.Delete(s.mappings, 0, n)
}

// begin notes that a part of the life of a process begins.
func (s *space) begin(b begin) {
	if len(s.begins) >= maxBegins {
		s.begins = slices.Delete(s.begins, 0, maxBegins/2)
	}
	s.begins = append(s.begins, b)
	s.readStatus()
}

// readStatus reads the id of a process in its own namespace, and as whom it makes files, if it has not ended.
func (s *space) readStatus() {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		name, values, _ := strings.Cut(line, ":")
		fields := strings.Fields(values)
		if len(fields) == 0 {
			continue
		}
		switch name {
		case "NSpid":
			s.inner, _ = strconv.Atoi(fields[len(fields)-1])
		case "Uid": // real, effective, saved, of the file system
			uid, err := strconv.Atoi(fields[len(fields)-1])
			s.owner.uid, s.owner.ok = uid, err == nil
		}
	}
}

// life is the part of a process' life that a moment is in: from one begin to the next.
type life struct {
	from, to uint64
	parent   *space
}

func (s *space) life(at uint64) life {
	l := life{to: ^uint64(0)}
	for _, b := range s.begins {
		switch {
		case b.time <= at && b.time >= l.from:
			l.from, l.parent = b.time, b.parent
		case b.time > at:
			l.to = min(l.to, b.time)
		}
	}
	return l
}

// covering returns what was mapped at an address at a moment of a life: what was mapped last before it, else what was there when
// somebody looked in the same life.
func (s *space) covering(address uint64, l life, at uint64) (found mapping, ok bool) {
	for _, m := range s.mappings {
		if address < m.start || address >= m.end || m.since < l.from || m.since >= l.to {
			continue
		}
		switch {
		case m.since <= at && (!ok || found.since > at || m.since >= found.since):
			found, ok = m, true
		case m.since > at && m.there && (!ok || found.since > at && m.since < found.since):
			found, ok = m, true
		}
	}
	return found, ok
}

// mapped returns what a process, or the one that it was forked from, had mapped at an address at a moment.
func (s *space) mapped(address, at uint64) (mapping, bool) {
	for range maxGenerations {
		l := s.life(at)
		if m, ok := s.covering(address, l, at); ok {
			return m, true
		}
		if l.parent == nil {
			break
		}
		s, at = l.parent, l.from
	}
	return mapping{}, false
}
