package symbols

import (
	"container/list"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Processes knows what processes map, and names the addresses there, even of ended processes. The kernel reports each new mapping with
// code; older ones are read from /proc.
//
// Files are opened when they are first mapped, through the process, which may have another file system. They stay open, so their symbols
// are available after they were deleted or the file system is gone.
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
	// inUse returns the processes whose stacks may still be looked up: of other processes nothing is kept after their end. sweep is how
	// many must have ended before it is called.
	inUse func() (map[int]bool, error)
	sweep int
}

// Limits of what is kept.
const (
	maxEnded       = 8192      // processes that have ended
	maxFiles       = 1024      // open files
	maxLoaded      = 256 << 20 // bytes of symbols; what was not used for the longest time is read again
	maxMapped      = 8192      // mappings of one process, including old and removed ones
	maxMappedBytes = 128 << 20 // of the mappings of all
	fewMapped      = 64        // mappings that a process keeps even if all have too many
	maxBegins      = 256       // of one process
	maxGenerations = 64        // of forks without an exec
	leastSweep     = 256       // ended processes before unused ones are dropped
)

// OpenProcesses begins to watch all processes, as far as this process may. inUse returns the ended processes whose stacks may still be
// looked up.
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

// closePatience is how long Close waits for a file system that does not answer.
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

// Lost returns how many notes of the kernel were lost: mappings in these are known only from /proc.
func (p *Processes) Lost() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes.lost
}

// Unwatched returns why the kernel does not report mappings, nil if it does. Without the privilege for it, mappings come only from /proc,
// and ended processes have none.
func (p *Processes) Unwatched() error { return p.unwatched }

// watch reads the kernel's notes at once: a process that ends soon cannot be asked for its files later.
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

// letGo drops ended processes whose stacks cannot be looked up, and the files that no other process maps.
func (p *Processes) letGo() {
	used := map[int]bool{}
	if p.inUse != nil {
		var err error
		if used, err = p.inUse(); err != nil {
			return // the next end tries again
		}
	}
	kept := map[*space]bool{}
	for _, s := range p.spaces {
		if s.ended != nil && !used[s.pid] {
			continue
		}
		for range maxGenerations { // its parent has its mappings
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

// drop drops a process. Processes that were forked from it keep its mappings.
func (p *Processes) drop(s *space) {
	p.revive(s)
	for _, m := range s.mappings {
		p.mapped -= m.bytes()
	}
	delete(p.spaces, s.pid)
	p.forgetMap(s.pid)
}

// readAll reads what processes mapped before.
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

// space returns the space of a process, and reads it if it is new.
func (p *Processes) space(pid int) *space {
	s := p.spaces[pid]
	if s == nil {
		s = &space{pid: pid}
		p.spaces[pid] = s
		p.readMaps(s)
	}
	return s
}

// apply applies a change.
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

// end notes that a process has ended. The oldest ended ones are dropped.
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
