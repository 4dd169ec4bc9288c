package symbols

import (
	"container/list"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"trace/probes/proc"
)

// Processes knows what processes map, and names the addresses there, even of ended processes. The kernel reports each new mapping with
// code; older ones are read from /proc.
//
// Files are opened when they are first mapped, through the process, which may have another file system. They stay open, so their symbols
// are available after they were deleted or the file system is gone.
//
// What may take long is done by one goroutine, the worker, in turns by user, and what may never end is asked for (package proc). It reads files and
// keeps their tables; nothing waits for it but [Processes.Frames], until its context ends. The rest is guarded by mu, which nobody holds for long.
type Processes struct {
	changes   *changes
	unwatched error
	running   sync.WaitGroup
	stopped   atomic.Bool
	over      chan struct{} // closed when nothing is named from then on
	asked     proc.Questions
	turns     *turns
	unread    unread

	mu     sync.Mutex
	spaces map[int]*space
	ended  *list.List // *space, the one that ended first in front
	files  map[fileKey]*openFile
	recent *list.List // *openFile, the one that was not used for the longest time in front
	// filesOf is how many of them are of a user, and pending will be opened. The worker closes those that were forgotten, and forgets what
	// compilers have written of unmapped processes.
	filesOf   map[uint32]int
	pending   map[fileKey]bool
	forgotten []*openFile
	unmapped  []int
	// mapped is how many bytes the spaces of all processes take, and mappedOf how many the spaces of a user's processes.
	mapped   int
	mappedOf map[uint32]int
	// inUse returns the processes whose stacks may still be looked up: of other processes nothing is kept after their end. sweep is how
	// many must have ended before it is called.
	inUse func() (map[int]bool, error)
	sweep int

	// Of the worker.
	budget  budget
	maps    map[int]*writtenMap
	ownVDSO *openFile
	warm    []*image // that have just been used
}

// Limits of what is kept.
const (
	maxEnded       = 8192     // processes that have ended
	maxFiles       = 1024     // open files
	maxMapped      = 8192     // mappings of one process, including old and removed ones
	maxMappedBytes = 16 << 20 // of what processes map
	fewMapped      = 64       // mappings that a process keeps even if all have too many
	maxBegins      = 256      // of one process
	maxGenerations = 64       // of forks without an exec
	leastSweep     = 256      // ended processes before unused ones are dropped
)

// openProcesses begins to watch all processes, as far as this process may. inUse returns the ended processes whose stacks may still be
// looked up. share is which part of the time may be spent on names.
func openProcesses(inUse func() (map[int]bool, error), share float64, kernel *atomic.Int64) (*Processes, error) {
	p := newProcesses(share, kernel)
	p.inUse = inUse
	var err error
	p.changes, err = watchChanges()
	switch {
	case err == nil:
		p.running.Go(p.watch)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		p.changes, p.unwatched = &changes{wake: -1}, err
	default:
		return nil, err
	}
	p.running.Go(p.work)
	p.running.Go(p.readAll)
	return p, nil
}

func newProcesses(share float64, kernel *atomic.Int64) *Processes {
	return &Processes{
		spaces: map[int]*space{}, ended: list.New(), files: map[fileKey]*openFile{}, recent: list.New(), maps: map[int]*writtenMap{},
		filesOf: map[uint32]int{}, pending: map[fileKey]bool{}, mappedOf: map[uint32]int{}, over: make(chan struct{}),
		sweep: leastSweep, turns: newTurns(share), budget: newBudget(kernel), unread: unread{users: map[uint32]int{}, left: map[mark]parts{}},
	}
}

// work does what may take long.
func (p *Processes) work() {
	p.turns.run()
	p.tidy()
}

// closePatience is how long Close waits for a file system that does not answer.
const closePatience = 2 * time.Second

// errNoAnswer means that Close did not wait for all that it has to close.
var errNoAnswer = errors.New("symbols: a file system does not answer")

// close ends the watching.
func (p *Processes) close() error {
	p.stopped.Store(true)
	close(p.over)
	p.changes.stop()
	p.turns.end()
	closed := make(chan error, 1)
	go func() {
		p.running.Wait()
		p.mu.Lock()
		for p.recent.Len() > 0 {
			p.forget(p.recent.Front().Value.(*openFile))
		}
		p.mu.Unlock()
		p.tidy()
		err := p.changes.close()
		for _, h := range p.asked.Holders() {
			err = errors.Join(err, fmt.Errorf("symbols: %v", h))
		}
		closed <- err
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(closePatience):
		p.asked.End()
		return errNoAnswer
	}
}

// Lost returns how many notes of the kernel were lost: mappings in these are known only from /proc.
func (p *Processes) Lost() uint64 { return p.changes.lost.Load() }

// Unwatched returns why the kernel does not report mappings, nil if it does. Without the privilege for it, mappings come only from /proc,
// and ended processes have none.
func (p *Processes) Unwatched() error { return p.unwatched }

// bytes returns how much memory names take, without the kernel's.
func (p *Processes) bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.budget.loaded.Load() + int64(p.mapped)
}

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
		p.sweep = max(leastSweep, 2*p.ended.Len())
		p.turns.add(0, nil, p.letGo)
	}
}

// letGo drops ended processes whose stacks cannot be looked up, and the files that no other process maps.
func (p *Processes) letGo() {
	used, err := p.inUse() // it may take long
	if err != nil {
		return // another end tries again
	}
	p.mu.Lock()
	defer p.mu.Unlock()
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
	mapped := map[fileKey]bool{}
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
	p.grow(s, -s.bytes)
	s.gone = true
	delete(p.spaces, s.pid)
	if p.unmapped = append(p.unmapped, s.pid); len(p.unmapped) == 1 {
		p.turns.add(s.counted, nil, p.tidy)
	}
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
			s := p.space(pid)
			p.mu.Unlock()
			p.readMaps(s)
		}
	}
}

// space returns the space of a process. A new one has to be read.
func (p *Processes) space(pid int) *space {
	s := p.spaces[pid]
	if s == nil {
		s = &space{pid: pid}
		p.spaces[pid] = s
		s.readStatus()
		p.grow(s, spaceBytes)
	}
	return s
}

// found returns the space of a process, and has it read if it is new.
func (p *Processes) found(pid int) *space {
	s := p.spaces[pid]
	if s == nil {
		s = p.space(pid)
		p.turns.add(s.user(), nil, func() { p.readMaps(s) })
	}
	return s
}

// User returns the user who pays for the names of a process: its own, or the maker of its user namespace.
func (p *Processes) User(pid int) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.userOf(pid)
}

// userOf is User for who holds the lock.
func (p *Processes) userOf(pid int) uint32 {
	if s := p.spaces[pid]; s != nil {
		return s.user()
	}
	s := &space{pid: pid}
	s.readStatus()
	return s.user()
}

// apply applies a change.
func (p *Processes) apply(c change) {
	switch c.kind {
	case recordMmap2:
		s := p.found(int(c.pid))
		if c.mapping.end > c.mapping.start {
			p.add(s, c.mapping)
		}
	case recordComm:
		if c.exec {
			s := p.found(int(c.pid))
			s.generation = 0
			p.begin(s, begin{time: c.time})
		}
	case recordFork:
		if c.pid == c.ppid { // a thread
			return
		}
		parent := p.found(int(c.ppid))
		s := p.space(int(c.pid))
		s.read = max(s.read, 1) // it has what its parent has
		p.revive(s)
		if s.generation = parent.generation + 1; s.generation < maxGenerations {
			p.begin(s, begin{c.time, parent})
			return
		}
		s.generation = 0
		p.begin(s, begin{time: c.time})
		p.turns.add(s.user(), nil, func() { p.readMaps(s) })
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
