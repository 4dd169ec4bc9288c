package symbols

import (
	"container/list"
	"errors"
	"io/fs"
	"slices"
	"strconv"

	"trace/probes/proc"
)

// This file has what a process maps, and since when.

// space is the memory of a process.
type space struct {
	pid      int
	mappings []mapping // in the order of discovery
	// begins are when the process was forked, and when it called exec: earlier mappings are gone.
	begins []begin
	ended  *list.Element
	// read is when /proc was read.
	read uint64
	// inner is the process id in its own namespace, 0 if it is unknown.
	inner int
	// owner is the user as whom the process makes files; ok is false if it is unknown.
	owner struct {
		uid int
		ok  bool
	}
	// generation is how many forks without an exec have led to it.
	generation int
}

// begin of a period in a process' life. parent is the process that it was forked from, nil for an exec.
type begin struct {
	time   uint64
	parent *space
}

// parent returns the process that it was forked from, nil if that no longer matters: since it called exec, or, with ever, if there was
// none.
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
	all, err := proc.Mappings(s.pid)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && s.ended == nil {
			p.end(s)
		}
		return // it ends
	}
	s.readStatus()
	now := s.read
	for _, m := range withCode(all, now) {
		if known, ok := s.covering(m.start, s.life(now), now); ok && known.end == m.end && known.file == m.file && known.offset == m.offset {
			continue
		}
		p.add(s, m)
	}
}

// add adds a mapping and opens its file.
func (p *Processes) add(s *space, m mapping) {
	// A compiler may map its code again and again, and a process may do so to fill our memory.
	if n := len(s.mappings); n >= maxMapped || n > fewMapped && p.mapped > maxMappedBytes {
		p.cut(s, n/2)
	}
	s.mappings = append(s.mappings, m)
	p.mapped += m.bytes()
	if m.file.inode != 0 && p.files[m.key()] == nil {
		p.open(s.pid, m)
	}
}

// cut drops the first n mappings of a process.
func (p *Processes) cut(s *space, n int) {
	for _, m := range s.mappings[:n] {
		p.mapped -= m.bytes()
	}
	s.mappings = slices.Delete(s.mappings, 0, n)
}

// begin notes that a period in the life of a process begins.
func (s *space) begin(b begin) {
	if len(s.begins) >= maxBegins {
		s.begins = slices.Delete(s.begins, 0, maxBegins/2)
	}
	s.begins = append(s.begins, b)
	s.readStatus()
}

// readStatus reads the id of a process in its own namespace, and the user as whom it makes files, unless it has ended.
func (s *space) readStatus() {
	status := proc.Status(s.pid)
	if ids := status["NSpid"]; len(ids) > 0 {
		s.inner, _ = strconv.Atoi(ids[len(ids)-1])
	}
	if ids := status["Uid"]; len(ids) > 0 { // real, effective, saved, of the file system
		uid, err := strconv.Atoi(ids[len(ids)-1])
		s.owner.uid, s.owner.ok = uid, err == nil
	}
}

// life is a period in a process' life: from one begin to the next.
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

// covering returns what was mapped at an address at a time in a life: the last mapping before it, or else what was found later in the same
// life.
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

// mapped returns what a process, or its parent, had mapped at an address at a time.
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
