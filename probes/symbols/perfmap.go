package symbols

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// perfMap are the functions that a just-in-time compiler has written to a file.
type perfMap []symbol

// Limits for one file; any process may write one.
const (
	maxPerfMap       = 64 << 20 // bytes
	maxPerfFunctions = 1 << 20
)

// readPerfMap reads a file like /tmp/perf-PID.map: lines of address, size and name. Later lines replace earlier ones. A line that is too
// long for a name is skipped. If the file is too large, it returns the beginning and an error.
func readPerfMap(r io.Reader) (all perfMap, err error) {
	in := &io.LimitedReader{R: r, N: maxPerfMap}
	lines := bufio.NewReaderSize(in, maxName)
	for err == nil && len(all) < maxPerfFunctions {
		var line []byte
		if line, err = lines.ReadSlice('\n'); errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			continue
		}
		if s, ok := parsePerfLine(string(line)); ok {
			s.rank = len(all)
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b symbol) int { return cmp.Compare(a.start, b.start) })
	all = slices.Clip(all)
	switch {
	case err == nil || in.N == 0:
		return all, &tooLarge{"a map of functions", maxPerfMap, maxPerfMap}
	case err == io.EOF:
		return all, nil
	}
	return all, err
}

func parsePerfLine(line string) (s symbol, ok bool) {
	fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
	if len(fields) < 3 || fields[2] == "" {
		return s, false
	}
	var err, err2 error
	s.start, err = strconv.ParseUint(strings.TrimPrefix(fields[0], "0x"), 16, 64)
	s.size, err2 = strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 64)
	s.name = fields[2]
	return s, err == nil && err2 == nil && s.size > 0 && s.start+s.size > s.start
}

// find returns the last function that was written for an address.
func (p perfMap) find(address uint64) (found symbol, ok bool) {
	i, _ := slices.BinarySearchFunc(p, address, func(s symbol, a uint64) int {
		if s.start <= a {
			return -1
		}
		return 1
	})
	const back = 64 // as many may begin before the one that the address is in
	for j := i - 1; j >= 0 && j >= i-back; j-- {
		if s := p[j]; address-s.start < s.size && (!ok || s.rank > found.rank) {
			found, ok = s, true
		}
	}
	return found, ok
}

// writtenMap is what a just-in-time compiler has written about its code, as far as it was read.
type writtenMap struct {
	functions perfMap
	size      int64 // of the file
	modified  int64
	bytes     int    // that the functions take
	next      uint64 // when it is worth reading again, in ns since boot
}

// written returns the functions of /tmp/perf-PID.map, in the process' own file system and with its own pid there. After the process' end
// the file is used if we can see it. It must belong to the user as whom the process makes files, or to root: nobody else may name the
// process' functions.
func (p *Processes) written(s *space) perfMap {
	known := p.maps[s.pid]
	if known == nil {
		known = &writtenMap{}
		p.maps[s.pid] = known
	}
	began := BootClock()
	if began < known.next {
		return known.functions
	}
	if s.ended == nil {
		s.readStatus()
	}
	f, err := s.openWritten()
	if err != nil {
		return known.functions
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == known.size && info.ModTime().UnixNano() == known.modified {
		return known.functions
	}
	functions, err := readPerfMap(f)
	var large *tooLarge
	switch {
	case errors.As(err, &large):
		large.bytes = uint64(info.Size())
		p.unread.note(f.Name(), large)
	case err != nil:
		return known.functions
	}
	p.loaded -= known.bytes
	*known = writtenMap{functions, info.Size(), info.ModTime().UnixNano(), functions.bytes(), 0}
	p.loaded += known.bytes
	p.shrink(nil, known)
	// A compiler that works writes all the time; this limits how often we read.
	now := BootClock()
	known.next = now + 20*(now-began)
	return known.functions
}

// openWritten opens the map of functions of a process.
func (s *space) openWritten() (*os.File, error) {
	name := fmt.Sprintf("/tmp/perf-%d.map", cmp.Or(s.inner, s.pid))
	f, err := openRegular(fmt.Sprintf("/proc/%d/root", s.pid), name, false)
	if err != nil {
		f, err = openRegular("/", name, false)
	}
	if err != nil {
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
		p.loaded -= m.bytes
		delete(p.maps, pid)
	}
}

// bytes estimates its memory.
func (p perfMap) bytes() int {
	n := 0
	for _, s := range p {
		n += 48 + len(s.name)
	}
	return n
}
