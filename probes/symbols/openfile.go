package symbols

import (
	"bytes"
	"container/list"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"trace/probes/proc"
)

// This file opens the files that processes map, reads their symbols, and drops both when there are too many.

// fileKey identifies an open file. It includes the path, because subvolumes of btrfs number their files separately. While a file is open,
// its number is not reused.
type fileKey struct {
	file
	path string
}

func (m mapping) key() fileKey { return fileKey{m.file, strings.TrimSuffix(m.name, " (deleted)")} }

// openFile is a file that some process maps. path and roots are where to look for a debug file.
type openFile struct {
	id     fileKey
	user   uint32 // of the process for which it was opened
	reader io.ReaderAt
	closer io.Closer
	mark   mark
	path   string
	roots  []string
	used   *list.Element
	// What follows belongs to the worker.
	image  *image
	holder *holder
	failed bool // it is not an ELF file
}

// mark identifies what is in a file: the owner can set all of it but the last.
type mark struct {
	device, inode           uint64
	size, modified, changed int64
}

// Unread returns which files have parts that cost too much, so that frames have no names.
func (p *Processes) Unread() []string {
	p.unread.mu.Lock()
	defer p.unread.mu.Unlock()
	return slices.Clone(p.unread.lines)
}

// unread are notes about files, the first of them.
type unread struct {
	mu    sync.Mutex
	lines []string
	users map[uint32]int
	files uint64
	// left are the parts that were left of files, and order the same, the first one in front.
	left  map[mark]parts
	order []mark
}

// Limits of the notes, of those about the files of one user, and of the files that are remembered.
const (
	maxUnread    = 16
	maxUnreadOne = 4
	maxLeft      = 4096
)

// note notes what was left of a file.
func (u *unread) note(user uint32, name string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		name = strconv.Quote(name)
	}
	line := fmt.Sprintf("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", ", "))
	if len(u.lines) < maxUnread && u.users[user] < maxUnreadOne && !slices.Contains(u.lines, line) {
		u.lines = append(u.lines, line)
		u.users[user]++
	}
}

// remember remembers which parts of a file were left.
func (u *unread) remember(m mark, what parts) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.left[m]; !known {
		u.files++
		u.order = append(u.order, m)
	}
	u.left[m] = what
	if len(u.order) > maxLeft {
		delete(u.left, u.order[0])
		u.order = slices.Delete(u.order, 0, 1)
	}
}

func (u *unread) partsOf(m mark) parts {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.left[m]
}

// opened is a file, and what identifies its content.
type opened struct {
	*os.File
	mark mark
}

func (o *opened) Size() int64 { return o.mark.size }

// open opens the file of a mapping of a process: through the mapping itself, which is exact, or by its path in the process' file system. It is nil if
// that fails. Only the worker calls it.
func (p *Processes) open(pid int, m mapping) *openFile {
	p.mu.Lock()
	of, roots, user := p.files[m.key()], p.rootsOf(pid), p.userOf(pid)
	delete(p.pending, m.key())
	p.mu.Unlock()
	if of != nil {
		return of
	}
	path := m.key().path
	f, err := identified(p.asked.OpenMapped(user, pid, proc.Mapping{Start: m.start, End: m.end, Major: m.file.major, Minor: m.file.minor}))
	for _, root := range roots {
		if err == nil || errors.Is(err, proc.ErrServed) || errors.Is(err, proc.ErrNoAnswer) || !strings.HasPrefix(path, "/") {
			break
		}
		if f, err = identified(p.openBelow(user, root, path, true)); err == nil && !isFile(f.File, m.file) {
			f.Close()
			f, err = nil, errors.New("another file")
		}
	}
	if err != nil {
		p.unopened(user, path, err)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of = &openFile{id: m.key(), user: user, reader: f, closer: f, mark: f.mark, path: path, roots: roots}
	p.keep(of)
	return of
}

// unopened notes that a file may never answer, or did not.
func (p *Processes) unopened(user uint32, path string, err error) {
	if errors.Is(err, proc.ErrServed) || errors.Is(err, proc.ErrNoAnswer) {
		p.unread.note(user, path, err)
	}
}

// openBelow opens a regular file below a root of [Processes.rootsOf].
func (p *Processes) openBelow(user uint32, root, path string, follow bool) (*os.File, error) {
	of, _, _ := strings.Cut(strings.TrimPrefix(root, "/proc/"), "/")
	pid, _ := strconv.Atoi(of) // 0: ours
	return p.asked.OpenBelow(user, pid, root, path, follow)
}

// identified adds what identifies a file.
func identified(f *os.File, err error) (*opened, error) {
	if err != nil {
		return nil, err
	}
	m, err := markOf(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &opened{f, m}, nil
}

// keep adds an open file. If there are too many, the user with the most loses the one that was not used for the longest time.
func (p *Processes) keep(of *openFile) {
	p.files[of.id] = of
	of.used = p.recent.PushBack(of)
	p.filesOf[of.user]++
	for p.recent.Len() > maxFiles {
		var victim *openFile
		for at := p.recent.Front(); at != nil; at = at.Next() {
			if o := at.Value.(*openFile); o != of && (victim == nil || p.filesOf[o.user] > p.filesOf[victim.user]) {
				victim = o
			}
		}
		p.forget(victim)
	}
}

// rootsOf returns where the process' file system may be seen: through it, if it has ended through its parents, and ours.
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

// forget forgets a file. The worker closes it.
func (p *Processes) forget(of *openFile) {
	p.recent.Remove(of.used)
	delete(p.files, of.id)
	if p.filesOf[of.user]--; p.filesOf[of.user] == 0 {
		delete(p.filesOf, of.user)
	}
	if p.forgotten = append(p.forgotten, of); len(p.forgotten) == 1 {
		p.turns.add(of.user, nil, p.tidy)
	}
}

// tidy closes forgotten files. A file that cannot be closed yet, as too much of its user was not answered, waits.
func (p *Processes) tidy() {
	p.mu.Lock()
	files, pids := p.forgotten, p.unmapped
	p.forgotten, p.unmapped = nil, nil
	p.mu.Unlock()
	for _, pid := range pids {
		p.forgetMap(pid)
	}
	var waiting []*openFile
	for _, of := range files {
		p.unload(of)
		if err := p.closeFile(of.user, of.closer); errors.Is(err, proc.ErrNotAsked) {
			waiting = append(waiting, of)
		}
	}
	if len(waiting) > 0 {
		p.mu.Lock()
		p.forgotten = append(p.forgotten, waiting...)
		p.mu.Unlock()
	}
}

// closeFile closes a file, which FUSE may never answer.
func (p *Processes) closeFile(user uint32, c io.Closer) error {
	_, err := proc.Ask(&p.asked, user, func() (struct{}, error) { return struct{}{}, c.Close() })
	return err
}

// unload drops the symbols of a file.
func (p *Processes) unload(of *openFile) {
	im := of.image
	if im == nil {
		return
	}
	of.image = nil
	p.budget.grow(of.holder, -of.holder.bytes)
	for _, c := range im.closers {
		_ = p.closeFile(of.user, c)
	}
}

// load returns the symbols of a file for a user, or nil.
func (p *Processes) load(of *openFile, user uint32) *image {
	if of.failed {
		return nil
	}
	if of.image == nil {
		p.read(of, user)
	}
	if of.image != nil {
		p.budget.use(of.holder)
		for _, s := range of.image.sources {
			s.user = user
		}
	}
	return of.image
}

// read reads the symbols of a file.
func (p *Processes) read(of *openFile, user uint32) {
	of.holder = &holder{user: user, drop: func() { p.unload(of) }}
	c := &cost{grow: func(n int) { p.budget.grow(of.holder, n) }, stopped: &p.stopped}
	in := &source{r: of.reader, ask: &p.asked, user: user, cost: c}
	open := func(root, path string) (debugFile, error) {
		o, err := identified(p.openBelow(user, root, path, true))
		if err != nil {
			p.unopened(user, path, err)
			return nil, err
		}
		return o, nil
	}
	im, left, unread, err := readImage(in, of.path, of.roots, open, p.unread.partsOf(of.mark))
	if err != nil {
		p.budget.grow(of.holder, -of.holder.bytes)
		if of.failed = isCostly(err) || errors.Is(err, errNoELF); isCostly(err) {
			p.leave(of, 0, err)
		}
		return
	}
	if of.image = im; unread != nil {
		p.leave(of, left, unread)
	}
}

// leave notes what was left of a file.
func (p *Processes) leave(of *openFile, what parts, why error) {
	p.unread.note(of.user, of.path, why)
	p.unread.remember(of.mark, what)
}

// vdso returns our own vdso. Each process' vdso of the same size is equal: it comes from the same kernel.
func (p *Processes) vdso(size uint64) *image {
	if p.ownVDSO == nil {
		data := ownVDSO()
		p.ownVDSO = &openFile{reader: bytes.NewReader(data), closer: io.NopCloser(nil), mark: mark{size: int64(len(data))}, path: "[vdso]"}
	}
	if uint64(p.ownVDSO.mark.size) != size {
		return nil
	}
	return p.load(p.ownVDSO, 0)
}

func ownVDSO() []byte {
	all, err := proc.Mappings(os.Getpid())
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(all, func(m proc.Mapping) bool { return m.Path == "[vdso]" })
	if i < 0 {
		return nil
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil
	}
	defer mem.Close()
	data := make([]byte, all[i].End-all[i].Start)
	if _, err := mem.ReadAt(data, int64(all[i].Start)); err != nil {
		return nil
	}
	return data
}
