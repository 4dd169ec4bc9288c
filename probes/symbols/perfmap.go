package symbols

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"trace/probes/proc"
)

// perfMap are the functions that a just-in-time compiler has written to a file, by address. Their names are one text.
type perfMap struct {
	functions []compiled
	names     []byte
}

// compiled is a function in a perfMap; later ones replace earlier ones.
type compiled struct {
	start, size uint64
	name        uint32 // where it begins in the names
	length      uint16
	order       uint32
}

const compiledBytes = int(unsafe.Sizeof(compiled{}))

// Limits for one file; any process may write one.
const (
	maxPerfMap       = 64 << 20 // bytes
	maxPerfNames     = 12 << 20 // bytes of names
	maxPerfFunctions = 256 << 10
	perfSteps        = 32 // the work for a line
)

// readPerfMap reads a file like /tmp/perf-PID.map: lines of address, size and name. Later lines replace earlier ones. A line that is too
// long for a name is skipped. If the file is too large, it returns the beginning and an error.
func readPerfMap(r io.Reader, c *cost) (p perfMap, err error) {
	in := &io.LimitedReader{R: r, N: maxPerfMap}
	lines := bufio.NewReaderSize(in, maxName)
	for err == nil {
		if err = c.step(perfSteps); err != nil {
			break
		}
		var line []byte
		if line, err = lines.ReadSlice('\n'); errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			continue
		}
		if f, name, ok := parsePerfLine(line); ok {
			err = cmp.Or(p.add(f, name, c), err)
		}
	}
	slices.SortFunc(p.functions, func(a, b compiled) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.order, b.order)) })
	switch {
	case in.N == 0:
		return p, &tooLarge{"a map of functions", maxPerfMap, "bytes or more", maxPerfMap}
	case err == io.EOF:
		return p, nil
	}
	return p, err
}

// add adds a function.
func (p *perfMap) add(f compiled, name []byte, c *cost) error {
	if len(p.functions) >= maxPerfFunctions {
		return &tooLarge{"a map of functions", maxPerfFunctions + 1, "functions or more", maxPerfFunctions}
	}
	if len(p.names)+len(name) > maxPerfNames {
		return &tooLarge{"a map of functions", maxPerfNames + 1, "bytes of names or more", maxPerfNames}
	}
	var err error
	if p.functions, err = grown(p.functions, 1, compiledBytes, c); err != nil {
		return err
	}
	if p.names, err = grown(p.names, len(name), 1, c); err != nil {
		return err
	}
	f.name, f.length, f.order = uint32(len(p.names)), uint16(len(name)), uint32(len(p.functions))
	p.functions, p.names = append(p.functions, f), append(p.names, name...)
	return nil
}

// grown returns a slice with room for more elements, whose memory is counted before it is taken.
func grown[T any](s []T, more, each int, c *cost) ([]T, error) {
	if len(s)+more <= cap(s) {
		return s, nil
	}
	room := max(64, len(s)*3/2+more)
	if err := c.take(room * each); err != nil {
		return s, err
	}
	larger := make([]T, len(s), room)
	copy(larger, s)
	c.give(cap(s) * each)
	return larger, nil
}

func parsePerfLine(line []byte) (f compiled, name []byte, ok bool) {
	fields := bytes.SplitN(bytes.TrimSpace(line), []byte(" "), 3)
	if len(fields) < 3 || len(fields[2]) == 0 {
		return f, nil, false
	}
	var err, err2 error
	f.start, err = strconv.ParseUint(string(bytes.TrimPrefix(fields[0], []byte("0x"))), 16, 64)
	f.size, err2 = strconv.ParseUint(string(bytes.TrimPrefix(fields[1], []byte("0x"))), 16, 64)
	return f, fields[2], err == nil && err2 == nil && f.size > 0 && f.start+f.size > f.start
}

// find returns the last function that was written for an address: its beginning and its name.
func (p perfMap) find(address uint64) (start uint64, name string, ok bool) {
	i, _ := slices.BinarySearchFunc(p.functions, address, func(f compiled, a uint64) int {
		if f.start <= a {
			return -1
		}
		return 1
	})
	const back = 64 // as many may begin before the one that the address is in
	var found compiled
	for j := i - 1; j >= 0 && j >= i-back; j-- {
		if f := p.functions[j]; address-f.start < f.size && (!ok || f.order > found.order) {
			found, ok = f, true
		}
	}
	return found.start, string(p.names[found.name : found.name+uint32(found.length)]), ok
}

// writtenMap is what a just-in-time compiler has written about its code, as far as it was read.
type writtenMap struct {
	perfMap
	mark   mark
	holder *holder
	next   uint64 // when it is worth reading again, in ns since boot
}

// written returns the functions of /tmp/perf-PID.map, in the process' own file system and with its own pid there. After the process' end
// the file is used if we can see it. It must belong to the user as whom the process makes files, or to root: nobody else may name the
// process' functions. Only the worker calls it.
func (p *Processes) written(s *space, user uint32) perfMap {
	known := p.maps[s.pid]
	if known == nil {
		known = &writtenMap{holder: &holder{user: user}}
		known.holder.drop = func() { p.forgetMap(s.pid) }
		p.maps[s.pid] = known
	}
	p.budget.use(known.holder)
	began := BootClock()
	if began < known.next {
		return known.perfMap
	}
	p.mu.Lock()
	if s.ended == nil {
		s.readStatus()
	}
	process := *s
	p.mu.Unlock()
	f, err := identified(p.openWritten(&process, user))
	// A compiler that works writes all the time; this limits how often we read.
	defer func() {
		now := BootClock()
		known.next = now + 20*(now-began)
	}()
	if err != nil {
		return known.perfMap
	}
	defer p.closeFile(user, f)
	if f.mark == known.mark {
		return known.perfMap
	}
	p.readWritten(known, f, user)
	return known.perfMap
}

// readWritten reads a map of functions.
func (p *Processes) readWritten(known *writtenMap, f *opened, user uint32) {
	before := known.holder.bytes
	c := &cost{grow: func(n int) { p.budget.grow(known.holder, n) }, stopped: &p.stopped}
	c.begin(loadSteps)
	in := &source{r: f, ask: &p.asked, user: user, cost: c}
	functions, err := readPerfMap(io.NewSectionReader(in, 0, maxPerfMap), c)
	if err != nil && !isCostly(err) {
		p.budget.grow(known.holder, -c.bytes)
		return
	}
	if isCostly(err) {
		p.unread.note(user, f.Name(), err)
		p.unread.remember(f.mark, 0)
	}
	known.perfMap, known.mark = functions, f.mark
	p.budget.grow(known.holder, -before)
}

// openWritten opens the map of functions of a process.
func (p *Processes) openWritten(s *space, user uint32) (*os.File, error) {
	name := fmt.Sprintf("/tmp/perf-%d.map", cmp.Or(s.inner, s.pid))
	f, err := p.openBelow(user, fmt.Sprintf("/proc/%d/root", s.pid), name, false)
	if err != nil && !errors.Is(err, proc.ErrServed) && !errors.Is(err, proc.ErrNoAnswer) {
		f, err = p.openBelow(user, "/", name, false)
	}
	if err != nil {
		p.unopened(user, name, err)
		return nil, err
	}
	if uid, err := ownerOf(f); err != nil || uid != 0 && (!s.owner.ok || uid != s.owner.uid) {
		f.Close()
		return nil, fmt.Errorf("%s is of another user", name)
	}
	return f, nil
}

// forgetMap drops what the compiler of a process has written.
func (p *Processes) forgetMap(pid int) {
	if m := p.maps[pid]; m != nil {
		p.budget.grow(m.holder, -m.holder.bytes)
		delete(p.maps, pid)
	}
}
