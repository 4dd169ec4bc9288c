package symbols

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

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
	// payer is for whom it counts what the process costs, if the user is known: proc.Payer.
	payer uint32
	// generation is how many forks without an exec have led to it.
	generation int
	// bytes that it takes, counted for a user; gone means that they are no longer.
	bytes   int
	counted uint32
	gone    bool
}

// Estimates of the memory of a space, and of a begin.
const (
	spaceBytes = 512
	beginBytes = 32
)

// nobodyKnows is the user of a process that has ended before anybody looked.
const nobodyKnows = ^uint32(0)

// user returns for whom the process is read.
func (s *space) user() uint32 {
	if s.owner.ok {
		return s.payer
	}
	return nobodyKnows
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
	now := BootClock()
	p.mu.Lock()
	user := s.user()
	p.mu.Unlock()
	all, err := proc.Ask(&p.asked, user, func() ([]mapping, error) { return codeOf(s.pid, now) })
	p.mu.Lock()
	defer p.mu.Unlock()
	s.read = max(now, 1)
	if s.gone {
		return
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && s.ended == nil {
			p.end(s)
		}
		return // it ends, or does not answer
	}
	s.readStatus()
	for _, m := range all {
		if known, ok := s.covering(m.start, s.life(now), now); ok && known.end == m.end && known.file == m.file && known.offset == m.offset {
			continue
		}
		p.add(s, m)
	}
}

// codeOf returns the mappings of a process that have code, at most as many as are kept.
func codeOf(pid int, now uint64) ([]mapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readCode(f, now)
}

// readCode returns the mappings with code of a file like /proc/PID/maps. Names that many of them have are kept once.
func readCode(r io.Reader, now uint64) (code []mapping, err error) {
	names, size := map[string]string{}, 0
	for m, err := range proc.EachMapping(r) {
		if err != nil || len(code) >= maxMapped || size > maxMappedBytes/4 {
			return code, err
		}
		if !m.Executable() {
			continue
		}
		name, known := names[m.Path]
		if !known {
			name = strings.Clone(m.Path)
			names[name], size = name, size+len(name)
		}
		code = append(code, mapping{start: m.Start, end: m.End, offset: m.Offset, file: file{m.Major, m.Minor, m.Inode}, name: name, since: now, there: true})
	}
	return code, nil
}

// grow counts bytes of a space.
func (p *Processes) grow(s *space, bytes int) {
	if user := s.user(); user != s.counted {
		p.mappedOf[s.counted] -= s.bytes
		p.mappedOf[user] += s.bytes
		if p.mappedOf[s.counted] == 0 {
			delete(p.mappedOf, s.counted)
		}
		s.counted = user
	}
	s.bytes, p.mapped = s.bytes+bytes, p.mapped+bytes
	if p.mappedOf[s.counted] += bytes; p.mappedOf[s.counted] == 0 {
		delete(p.mappedOf, s.counted)
	}
}

// crowded reports whether there is too much of all processes, and this one's user has more than a fair part of it.
func (p *Processes) crowded(s *space) bool {
	return p.mapped > maxMappedBytes && p.mappedOf[s.counted] >= maxMappedBytes/max(len(p.mappedOf), 1)
}

// add adds a mapping and has its file opened.
func (p *Processes) add(s *space, m mapping) {
	// A compiler may map its code again and again, and a process may do so to fill our memory.
	if n := len(s.mappings); n >= maxMapped || n > fewMapped && p.crowded(s) {
		p.cut(s, n/2)
	}
	s.mappings = append(s.mappings, m)
	p.grow(s, m.bytes())
	if m.file.inode == 0 || p.files[m.key()] != nil || p.pending[m.key()] {
		return
	}
	if p.turns.add(s.user(), nil, func() { p.open(s.pid, m) }) {
		p.pending[m.key()] = true
	}
}

// cut drops the first n mappings of a process.
func (p *Processes) cut(s *space, n int) {
	for _, m := range s.mappings[:n] {
		p.grow(s, -m.bytes())
	}
	s.mappings = slices.Delete(s.mappings, 0, n)
}

// begin notes that a period in the life of a process begins.
func (p *Processes) begin(s *space, b begin) {
	if n := len(s.begins); n >= maxBegins || n > 1 && p.crowded(s) {
		s.begins = slices.Delete(s.begins, 0, n/2)
		p.grow(s, -n/2*beginBytes)
	}
	s.begins = append(s.begins, b)
	p.grow(s, beginBytes)
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
		s.payer = proc.Payer(s.pid, uint32(uid))
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
