//go:build linux

package verbs

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// A user with many processes, or with processes that are made to be slow, must not keep the others waiting. So the work goes round by user:
// each has a turn, in which so many bytes are read, and within a user each process has one.
const turnBytes = 1 << 20

// What is read of the processes of a user, and of all users, comes from a purse: what it may hold at most, and what comes in each second. Ranks of a job
// may have a GiB each. Root has none: who is root can do worse to us, and on a busy machine, where each read takes long, it would be empty too soon.
const (
	userPurse, userIncome = 16 << 30, 100 << 20
	wholePurse, allIncome = 32 << 30, 400 << 20
)

// bytesPerSecond is what a read costs by its time, which a process may make long: so a user has at most 8 s of the beginning. Natively a second is enough for
// 5 GiB.
const bytesPerSecond = 2 << 30

// What tasks that are under way have in memory, of a user and of all: more tasks begin when these have ended.
const mostHeld, mostHeldAll = 24 << 20, 96 << 20

// mostTasks bounds what waits to be looked at, for each user.
const mostTasks = 1 << 14

// settled is after how long a process is looked at again that is opening a device, and a QP that was changed: a provider may set its functions after
// the kernel has changed it, as mlx5 does.
const settled = 50 * time.Millisecond

// errStopped ends a task that is not gone on with.
var errStopped = errors.New("the search has ended")

// A task is something to look at in a process.
type task struct {
	of    subject
	user  uint32
	due   time.Time
	first bool // of the beginning: the search of all processes waits for it
	// do looks, and returns after how long it must be called again; 0: not.
	do func(t *task) (again time.Duration)
	// repeat means that the same was asked for while it was under way.
	repeat bool

	resume func() (more bool)
	stop   func()
	yield  func() (goOn bool)
	again  time.Duration
	held   int // bytes of memory
}

// A subject is what a task looks at. The same is looked at once, however often it is asked for.
type subject struct {
	pid    int
	what   string
	at     uint64
	number uint32
}

// A purse is what may be read. It fills by the time.
type purse struct {
	bytes int64
	at    time.Time
}

func (p *purse) fill(most, income int64) {
	now := time.Now()
	p.bytes = min(most, p.bytes+int64(now.Sub(p.at).Seconds()*float64(income)))
	p.at = now
}

// turns are the tasks of all users.
type turns struct {
	// taking is held during a turn.
	taking sync.Mutex
	of     uint32 // whose turn it is
	left   int    // bytes of it

	mu      sync.Mutex
	known   map[subject]*task
	order   []uint32           // the users with tasks that are due, by their turns
	ready   map[uint32][]*task // their tasks, in order
	later   []*task
	purses  map[uint32]*purse
	all     purse
	held    map[uint32]int
	heldAll int
	firsts  int // tasks of the beginning that are not done
	crowded func(user uint32)
	// read is how many bytes were read in all.
	read int64
}

func newTurns(crowded func(user uint32)) *turns {
	return &turns{known: make(map[subject]*task), ready: make(map[uint32][]*task), purses: make(map[uint32]*purse), held: make(map[uint32]int), all: purse{wholePurse, time.Now()}, crowded: crowded}
}

// add makes a task wait for its turn, unless the same waits already. One that is urgent comes before the others of its user.
func (s *turns) add(t *task, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if same := s.known[t.of]; same != nil {
		same.repeat = true
		return
	}
	if len(s.ready[t.user]) >= mostTasks && !t.first {
		s.crowded(t.user)
		return
	}
	s.known[t.of] = t
	if t.first {
		s.firsts++
	}
	s.enqueue(t, urgent)
}

func (s *turns) enqueue(t *task, urgent bool) {
	switch {
	case time.Until(t.due) > 0:
		s.later = append(s.later, t)
		return
	case len(s.ready[t.user]) == 0:
		s.order = append(s.order, t.user)
	}
	if urgent {
		s.ready[t.user] = slices.Insert(s.ready[t.user], 0, t)
	} else {
		s.ready[t.user] = append(s.ready[t.user], t)
	}
}

// take takes the next task of the user whose turn it is, or nil. It makes those ready that are due.
func (s *turns) take() *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = slices.DeleteFunc(s.later, func(t *task) bool {
		if time.Until(t.due) > 0 {
			return false
		}
		s.enqueue(t, false)
		return true
	})
	s.all.fill(wholePurse, allIncome)
	for i, user := range s.order {
		if s.purses[user] == nil && user != 0 {
			s.purses[user] = &purse{userPurse, time.Now()}
		}
		if p := s.purses[user]; p != nil {
			p.fill(userPurse, userIncome)
		}
		if s.starves(user) {
			continue
		}
		n := max(0, slices.IndexFunc(s.ready[user], s.mayGoOn))
		t := s.ready[user][n]
		s.ready[user] = slices.Delete(s.ready[user], n, n+1)
		s.order = slices.Delete(s.order, i, i+1)
		if len(s.ready[user]) > 0 {
			s.order = slices.Insert(s.order, 0, user) // it has the turn until its bytes are read
		} else {
			delete(s.ready, user)
		}
		return t
	}
	return nil
}

// starves reports whether a user's tasks wait for a purse.
func (s *turns) starves(user uint32) bool {
	p := s.purses[user]
	return p != nil && (p.bytes <= 0 || s.all.bytes <= 0)
}

// mayGoOn reports whether a task is under way, or may begin.
func (s *turns) mayGoOn(t *task) bool {
	held := s.held[t.user]
	return t.resume != nil || held == 0 || held < mostHeld && s.heldAll < mostHeldAll
}

// hold accounts for memory that a task has until it is done.
func (s *turns) hold(t *task, bytes int) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.held += bytes
	s.held[t.user] += bytes
	s.heldAll += bytes
}

// next ends the turn of a user: the others come first.
func (s *turns) next(user uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.order, user); i >= 0 {
		s.order = append(slices.Delete(s.order, i, i+1), user)
	}
}

// turn goes on with the task whose turn it is, and reports whether there was one.
func (s *turns) turn() bool {
	s.taking.Lock()
	defer s.taking.Unlock()
	t := s.take()
	if t == nil {
		return false
	}
	if s.left <= 0 || s.of != t.user {
		s.of, s.left = t.user, turnBytes
	}
	s.advance(t)
	if s.left <= 0 {
		s.next(t.user)
	}
	return true
}

// advance goes on with a task until it is done, or the turn is over.
func (s *turns) advance(t *task) {
	if t.resume == nil {
		s.account(t, lookCost)
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			t.yield = func() bool { return yield(struct{}{}) }
			t.again = t.do(t)
		})
		t.resume, t.stop = func() bool { _, more := next(); return more }, stop
	}
	more := t.resume()
	s.mu.Lock()
	defer s.mu.Unlock()
	if more {
		s.enqueue(t, false)
		return
	}
	t.resume, t.stop = nil, nil
	s.heldAll -= t.held
	if s.held[t.user] -= t.held; s.held[t.user] == 0 {
		delete(s.held, t.user)
	}
	t.held = 0
	if t.repeat && t.again == 0 {
		t.repeat, t.due = false, time.Time{}
		s.enqueue(t, false)
		return
	}
	if t.again > 0 {
		t.repeat, t.due = false, time.Now().Add(t.again)
		s.enqueue(t, false)
		return
	}
	delete(s.known, t.of)
	if t.first {
		s.firsts--
	}
}

// spend accounts for bytes that a task is about to read. The task goes on when it is its user's turn again.
func (s *turns) spend(t *task, bytes int) error {
	if t == nil { // somebody asks for this process
		s.mu.Lock()
		defer s.mu.Unlock()
		s.read += int64(bytes)
		return nil
	}
	if s.account(t, bytes); s.left <= 0 && !t.yield() {
		return errStopped
	}
	return nil
}

func (s *turns) account(t *task, bytes int) {
	s.left -= bytes
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read += int64(bytes)
	s.pay(t.user, int64(bytes))
}

func (s *turns) pay(user uint32, bytes int64) {
	if p := s.purses[user]; p != nil {
		p.bytes -= bytes
		s.all.bytes -= bytes
	}
}

// took accounts for the time of a read that a task has done, as if it had read more.
func (s *turns) took(t *task, d time.Duration) {
	if t == nil {
		return
	}
	bytes := int64(d.Seconds() * bytesPerSecond)
	s.left -= int(bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pay(t.user, bytes)
}

// due returns when the next task can be done, and whether there is one. A user whose purse is empty is asked again a moment later.
func (s *turns) due() (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) > 0 {
		return time.Now().Add(settled), true
	}
	for _, t := range s.later {
		if !ok || t.due.Before(at) {
			at, ok = t.due, true
		}
	}
	return at, ok
}

// waiting returns the users with tasks that are due and wait for a purse.
func (s *turns) waiting() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.order), func(user uint32) bool { return !s.starves(user) })
}

// starving returns the users whose tasks of the beginning wait for their purses, and whether other tasks of the beginning are left.
func (s *turns) starving() (users []uint32, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := make(map[uint32]bool)
	for _, t := range s.known {
		if t.first {
			left[t.user] = true
		}
	}
	for _, user := range slices.Sorted(maps.Keys(left)) {
		if s.starves(user) {
			users = append(users, user)
		} else {
			others = true
		}
	}
	return users, others
}

// close ends the tasks that are under way.
func (s *turns) close() {
	s.taking.Lock()
	defer s.taking.Unlock()
	for _, t := range s.known {
		if t.stop != nil {
			t.stop()
		}
	}
	clear(s.known)
	clear(s.ready)
	s.order, s.later = nil, nil
}
