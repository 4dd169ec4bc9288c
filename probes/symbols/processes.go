package symbols

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Processes knows what processes map, and names the addresses in it, also of those that have ended. The kernel tells of each mapping with
// code as it is made; what was there before is read from /proc.
//
// Files are opened when they are first mapped, through the process, whose file system may be another one, and kept open: they have their
// names also when they were deleted meanwhile, or the file system is gone.
type Processes struct {
	changes   *changes
	unwatched error
	stopped   sync.WaitGroup

	mu     sync.Mutex
	spaces map[int]*space
	ended  *list.List // *space, the one that ended first in front
	files  map[fileKey]*openFile
	recent *list.List // *openFile, the one that was not used for the longest time in front
	loaded int        // bytes that the symbols of all files and the maps of compilers take
	maps   map[int]*writtenMap
	mapped int // bytes that all mappings take
	unread unread
	// inUse tells which processes have stacks that may still be asked for: of the others nothing is kept after their end. sweep is how many
	// have to have ended for that question.
	inUse func() (map[int]bool, error)
	sweep int
}

// Limits of what is kept.
const (
	maxEnded       = 8192      // processes that have ended
	maxFiles       = 1024      // open files
	maxLoaded      = 256 << 20 // bytes of symbols; what was not used for the longest time is read again
	maxMapped      = 8192      // mappings of one process, those of before and those that are gone included
	maxMappedBytes = 128 << 20 // of the mappings of all
	fewMapped      = 64        // mappings that a process keeps though all have too many
	maxBegins      = 256       // of one process
	maxGenerations = 64        // of forks without an exec that are followed
	leastSweep     = 256       // processes that have ended, before those of no use are looked for
)

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

// fileKey is an open file. The path belongs to it, because subvolumes of btrfs number their files each for themselves. As long as a file
// is open, its number is not given to another.
type fileKey struct {
	file
	path string
}

func (m mapping) key() fileKey { return fileKey{m.file, strings.TrimSuffix(m.name, " (deleted)")} }

// openFile is a file that some process maps. path and roots tell where to look for a debug file.
type openFile struct {
	id     fileKey
	reader io.ReaderAt
	closer io.Closer
	path   string
	roots  []string
	image  *image
	failed bool // it is no ELF file
	used   *list.Element
}

// OpenProcesses begins to watch all processes, as far as this process may. inUse tells of which ones that have ended stacks may still be
// asked for.
func OpenProcesses(inUse func() (map[int]bool, error)) (*Processes, error) {
	p := newProcesses()
	p.inUse = inUse
	var err error
	p.changes, err = watchChanges()
	switch {
	case err == nil:
		p.stopped.Go(p.watch)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		p.changes, p.unwatched = &changes{wake: -1}, err
	default:
		return nil, err
	}
	p.stopped.Go(p.readAll)
	return p, nil
}

func newProcesses() *Processes {
	return &Processes{
		spaces: map[int]*space{}, ended: list.New(), files: map[fileKey]*openFile{}, recent: list.New(), maps: map[int]*writtenMap{},
		sweep: leastSweep,
	}
}

// closePatience is how long the end waits for a file system that does not answer.
const closePatience = 2 * time.Second

// Close ends the watching.
func (p *Processes) Close() error {
	p.changes.stop()
	closed := make(chan error, 1)
	go func() {
		p.stopped.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		for p.recent.Len() > 0 {
			p.forget(p.recent.Front().Value.(*openFile))
		}
		closed <- p.changes.close()
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(closePatience):
		return errors.New("symbols: a file system does not answer")
	}
}

// Unread says which files have parts that are too large to be read, so that there are frames without names.
func (p *Processes) Unread() []string {
	p.unread.mu.Lock()
	defer p.unread.mu.Unlock()
	return slices.Clone(p.unread.lines)
}

// unread are notes about files, the first of them.
type unread struct {
	mu    sync.Mutex
	lines []string
}

// maxUnread is how many notes are worth reading.
const maxUnread = 8

func (u *unread) note(name string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	line := fmt.Sprintf("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", ", "))
	if len(u.lines) < maxUnread && !slices.Contains(u.lines, line) {
		u.lines = append(u.lines, line)
	}
}

// Lost is how many notes of the kernel were lost: then what processes map is known only as far as /proc tells.
func (p *Processes) Lost() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes.lost
}

// Unwatched is why the kernel does not tell of mappings, nil if it does: without the privilege for it only /proc tells, and nothing of
// processes that have ended.
func (p *Processes) Unwatched() error { return p.unwatched }

// watch takes in what the kernel tells, at once: a process that ends soon cannot be asked for its files later.
func (p *Processes) watch() {
	for p.changes.wait() {
		p.mu.Lock()
		p.drain()
		p.mu.Unlock()
	}
}

func (p *Processes) drain() {
	p.changes.read(p.apply)
	if p.ended.Len() >= p.sweep {
		p.letGo()
	}
}

// letGo forgets the processes that have ended and whose stacks nobody can ask for, and the files that no other maps.
func (p *Processes) letGo() {
	used := map[int]bool{}
	if p.inUse != nil {
		var err error
		if used, err = p.inUse(); err != nil {
			return // it is tried again with the next that ends
		}
	}
	kept := map[*space]bool{}
	for _, s := range p.spaces {
		if s.ended != nil && !used[s.pid] {
			continue
		}
		for range maxGenerations { // what it was forked from has its mappings
			kept[s] = true
			if s = s.parent(used[s.pid]); s == nil {
				break
			}
		}
	}
	mapped := map[fileKey]bool{vdsoFile: true}
	for _, s := range p.spaces {
		if !kept[s] {
			p.drop(s)
			continue
		}
		for _, m := range s.mappings {
			mapped[m.key()] = true
		}
	}
	for id, of := range p.files {
		if !mapped[id] {
			p.forget(of)
		}
	}
	p.sweep = max(leastSweep, 2*p.ended.Len())
}

// drop forgets a process. Its mappings stay with those that were forked from it.
func (p *Processes) drop(s *space) {
	p.revive(s)
	for _, m := range s.mappings {
		p.mapped -= m.bytes()
	}
	delete(p.spaces, s.pid)
	p.forgetMap(s.pid)
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

// readAll reads what processes had mapped before.
func (p *Processes) readAll() {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return
	}
	for _, name := range names {
		if p.changes.stopping() {
			return
		}
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			p.mu.Lock()
			p.space(pid)
			p.mu.Unlock()
		}
	}
}

// space returns that of a process, and reads it if it is new.
func (p *Processes) space(pid int) *space {
	s := p.spaces[pid]
	if s == nil {
		s = &space{pid: pid}
		p.spaces[pid] = s
		p.readMaps(s)
	}
	return s
}

// readAgain is how long what /proc tells of a process is good for, in ns. Code without frame pointers makes stacks of numbers that are
// no addresses, a new one with each sample, and to read a large process for each takes longer than the next sample does to come.
const readAgain = 1e9

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

// apply takes in a change.
func (p *Processes) apply(c change) {
	switch c.kind {
	case recordMmap2:
		s := p.spaces[int(c.pid)]
		if s == nil {
			s = p.space(int(c.pid))
		}
		if c.mapping.end > c.mapping.start {
			p.add(s, c.mapping)
		}
	case recordComm:
		if c.exec {
			s := p.space(int(c.pid))
			s.generation = 0
			s.begin(begin{time: c.time})
		}
	case recordFork:
		if c.pid == c.ppid { // a thread
			return
		}
		parent := p.space(int(c.ppid))
		s := p.spaces[int(c.pid)]
		if s == nil {
			s = &space{pid: int(c.pid)}
			p.spaces[s.pid] = s
		}
		p.revive(s)
		if s.generation = parent.generation + 1; s.generation < maxGenerations {
			s.begin(begin{c.time, parent})
			return
		}
		s.generation = 0
		s.begin(begin{time: c.time})
		p.readMaps(s)
	case recordExit:
		if s := p.spaces[int(c.pid)]; s != nil && c.pid == c.tid {
			p.end(s)
		}
	}
}

// end notes that a process has ended. Of those that have, the first are forgotten.
func (p *Processes) end(s *space) {
	p.revive(s)
	s.ended = p.ended.PushBack(s)
	for p.ended.Len() > maxEnded {
		p.drop(p.ended.Front().Value.(*space))
	}
}

func (p *Processes) revive(s *space) {
	if s.ended != nil {
		p.ended.Remove(s.ended)
		s.ended = nil
	}
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

// open opens the file of a mapping: through the mapping itself, which is exact, or by its path in the file system of the process.
func (p *Processes) open(pid int, m mapping) *openFile {
	path := m.key().path
	of := &openFile{id: m.key(), path: path, roots: p.rootsOf(pid)}
	f, err := openMapped(pid, m.start, m.end)
	for _, root := range of.roots {
		if err == nil || !strings.HasPrefix(path, "/") {
			break
		}
		if f, err = openRegular(root, path, true); err == nil && !isFile(f, m.file) {
			f.Close()
			f, err = nil, errors.New("another file")
		}
	}
	if err != nil {
		return nil
	}
	of.reader, of.closer = f, f
	p.files[of.id] = of
	of.used = p.recent.PushBack(of)
	for p.recent.Len() > maxFiles {
		p.forget(p.recent.Front().Value.(*openFile))
	}
	return of
}

// rootsOf returns where the file system of a process may be seen: in it, if it has ended in those that it was forked from, and in ours.
func (p *Processes) rootsOf(pid int) []string {
	roots := []string{fmt.Sprintf("/proc/%d/root", pid)}
	s := p.spaces[pid]
	for range 4 {
		if s == nil {
			break
		}
		if s = s.parent(true); s != nil {
			roots = append(roots, fmt.Sprintf("/proc/%d/root", s.pid))
		}
	}
	return append(roots, "/")
}

func (p *Processes) forget(of *openFile) {
	p.recent.Remove(of.used)
	delete(p.files, of.id)
	p.unload(of)
	of.closer.Close()
}

func (p *Processes) unload(of *openFile) {
	if of.image != nil {
		p.loaded -= of.image.size()
		of.image.close()
		of.image = nil
	}
}

// image returns the symbols of the file of a mapping, or nil.
func (p *Processes) image(pid int, m mapping) *image {
	of := p.files[m.key()]
	if of == nil {
		if of = p.open(pid, m); of == nil {
			return nil
		}
	}
	p.recent.MoveToBack(of.used)
	p.load(of)
	return of.image
}

// load reads the symbols of a file, and forgets others if they are too many.
func (p *Processes) load(of *openFile) {
	if of.image != nil || of.failed {
		return
	}
	im, unread, err := readImage(of.reader, of.path, of.roots)
	if err != nil {
		of.failed = true
		if errors.Is(err, errTooMuch) {
			p.unread.note(of.path, err)
		}
		return
	}
	if of.image = im; unread != nil {
		p.unread.note(of.path, unread)
	}
	p.loaded += of.image.size()
	p.shrink(of, nil)
}

// shrink forgets symbols that were not used for the longest time, and maps of compilers, if they take too much, but not these.
func (p *Processes) shrink(file *openFile, m *writtenMap) {
	for pid, other := range p.maps {
		if p.loaded > maxLoaded && other != m {
			p.forgetMap(pid)
		}
	}
	for at := p.recent.Front(); at != nil && p.loaded > maxLoaded; at = at.Next() {
		if other := at.Value.(*openFile); other != file {
			p.unload(other)
		}
	}
}

// vdsoFile stands for the code that the kernel maps into each process.
var vdsoFile = fileKey{path: "[vdso]"}

// vdso returns our own, which is that of each process of the same size: it comes from the same kernel.
func (p *Processes) vdso(size uint64) *image {
	of := p.files[vdsoFile]
	if of == nil {
		of = &openFile{id: vdsoFile, path: vdsoFile.path, closer: io.NopCloser(nil)}
		data := ownVDSO()
		if uint64(len(data)) != size {
			return nil
		}
		of.reader = bytes.NewReader(data)
		p.files[vdsoFile] = of
		of.used = p.recent.PushBack(of)
	}
	p.load(of)
	return of.image
}

func ownVDSO() []byte {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	all, err := readMaps(maps, 0)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(all, func(m mapping) bool { return m.name == "[vdso]" })
	if i < 0 {
		return nil
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil
	}
	defer mem.Close()
	data := make([]byte, all[i].end-all[i].start)
	if _, err := mem.ReadAt(data, int64(all[i].start)); err != nil {
		return nil
	}
	return data
}
