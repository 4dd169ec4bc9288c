//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Reach is in which processes something is attached.
type Reach struct {
	// PID is the only process, 0: all that map the file.
	PID int
	// Whose are the users whose calls count, by the real user id.
	Whose Whose
	User  uint32
}

// Whose are calls of some users.
type Whose int

const (
	Everyones Whose = iota
	OneUsers        // Reach.User's
	Others          // all but these
)

// Attach attaches something to an offset in a file.
type Attach func(path string, offset uint64, to Reach) (io.Closer, error)

// A spot is a function that other processes than the one that named it have, too.
type spot struct {
	place
	users []uint32 // who have named it
	all   bool     // root or two of them
}

// covers reports whether calls of processes of a user are seen.
func (s *spot) covers(user uint32) bool { return s.all || slices.Contains(s.users, user) }

func (s *spot) reach() Reach {
	if s.all {
		return Reach{}
	}
	return Reach{Whose: OneUsers, User: s.users[0]}
}

// A usage is what a process has: its functions, by call.
type usage struct {
	party
	places map[string][]place
}

// A Follower is attached to all functions of a call, also to those that are found later.
type Follower struct {
	finder *Finder
	call   string
	// among reports whether a process is followed; nil: all are. The kernel compares processes for each attachment at a function, so one for all
	// is best where all are wanted.
	among  func(pid int) bool
	attach Attach
	shared map[function][]io.Closer           // of all processes
	own    map[process]map[function]io.Closer // of each that is followed
	paused bool
}

// Follow attaches to the functions of a call that are known, and to those that [Finder.Look] finds until the follower is closed. If among is not
// nil, only the processes pay for which it is true; it is asked again for the others by [Finder.Review].
func (f *Finder) Follow(call string, among func(pid int) bool, attach Attach) (*Follower, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &Follower{finder: f, call: call, among: among, attach: attach, shared: make(map[function][]io.Closer), own: make(map[process]map[function]io.Closer)}
	if err := w.begin(); err != nil {
		return nil, errors.Join(err, w.release())
	}
	f.followers = append(f.followers, w)
	return w, nil
}

func (w *Follower) begin() error {
	if w.among == nil {
		if err := w.share(); err != nil {
			return err
		}
	}
	for self := range w.finder.uses {
		if _, err := w.serve(self); err != nil {
			return err
		}
	}
	return nil
}

// share attaches to all functions that other processes have, too, side by side: the kernel may make each wait.
func (w *Follower) share() error {
	spots := w.finder.places[w.call]
	attached := make([]io.Closer, len(spots))
	err := sideBySide(len(spots), func(i int) (err error) {
		attached[i], err = w.attach(spots[i].path, spots[i].offset, spots[i].reach())
		return err
	})
	for i, a := range attached {
		if a != nil {
			w.shared[spots[i].function] = []io.Closer{a}
		}
	}
	return err
}

// serve attaches to the functions of a process that were not attached to, if it is followed, and returns these.
func (w *Follower) serve(self process) (added []place, err error) {
	u := w.finder.uses[self]
	if w.paused || w.among != nil && !w.among(self.pid) {
		return nil, nil
	}
	for _, p := range u.places[w.call] {
		if w.own[self][p.function] != nil || w.among == nil && w.finder.covers(w.call, p.function, u.user) {
			continue
		}
		if err := w.finder.mayAttach(u.payer); err != nil {
			return added, err
		}
		a, err := w.attach(p.path, p.offset, Reach{PID: self.pid})
		if err != nil {
			return added, err
		}
		if w.own[self] == nil {
			w.own[self] = make(map[function]io.Closer)
		}
		w.own[self][p.function] = a
		added = append(added, p)
	}
	return added, nil
}

// mostAttached bounds what is attached because of one user: a process may name any number of functions, and detaching costs 20 to 100 ms each, one after
// the other (event_mutex of the kernel). A rank of a job has 2 to 12.
const mostAttached = 512

// mayAttach returns why nothing more is attached because of a user.
func (f *Finder) mayAttach(user uint32) error {
	if user == 0 {
		return nil
	}
	n := 0
	for _, w := range f.followers {
		for self, own := range w.own {
			if u := f.uses[self]; u != nil && u.payer == user {
				n += len(own)
			}
		}
		for of := range w.shared {
			if s := f.spot(w.call, of); s != nil && !s.all && s.users[0] == user {
				n++
			}
		}
	}
	if n >= mostAttached {
		return fmt.Errorf("functions of user %d have %d uprobes, and may not have more", user, n)
	}
	return nil
}

// covers reports whether what follows all processes sees the calls of a user's.
func (f *Finder) covers(call string, of function, user uint32) bool {
	s := f.spot(call, of)
	return s != nil && s.covers(user)
}

func (f *Finder) spot(call string, of function) *spot {
	i := slices.IndexFunc(f.places[call], func(s *spot) bool { return s.function == of })
	if i < 0 {
		return nil
	}
	return f.places[call][i]
}

// leave detaches from a process.
func (w *Follower) leave(self process) error {
	var errs []error
	for _, c := range w.own[self] {
		errs = append(errs, c.Close())
	}
	delete(w.own, self)
	return errors.Join(errs...)
}

// take takes all that is attached from the follower.
func (w *Follower) take() []io.Closer {
	all := slices.Concat(slices.Collect(maps.Values(w.shared))...)
	for _, own := range w.own {
		all = slices.AppendSeq(all, maps.Values(own))
	}
	clear(w.shared)
	clear(w.own)
	return all
}

func (w *Follower) release() error {
	var errs []error
	for _, a := range w.take() {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

// Pause detaches, until [Follower.Resume] attaches to the functions that are known then.
func (w *Follower) Pause() error {
	w.finder.mu.Lock()
	all := w.take()
	w.paused = true
	w.finder.mu.Unlock()
	return sideBySide(len(all), func(i int) error { return all[i].Close() })
}

// Resume attaches again.
func (w *Follower) Resume() error {
	w.finder.mu.Lock()
	defer w.finder.mu.Unlock()
	w.paused = false
	return w.begin()
}

// sideBySide does something n times at once: the kernel may make each wait.
func sideBySide(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close detaches.
func (w *Follower) Close() error {
	w.finder.mu.Lock()
	defer w.finder.mu.Unlock()
	w.finder.followers = slices.DeleteFunc(w.finder.followers, func(o *Follower) bool { return o == w })
	return w.release()
}

// addAll attaches the followers to functions of a process; what names them in a message. It reports whether that is done: the process may end meanwhile.
func (f *Finder) addAll(t *target, what string, at map[string]place) bool {
	if !t.same() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	libraries := make(map[string]bool)
	for call, p := range at {
		if !p.shared {
			continue
		}
		attached, err := f.name(call, p, t.user)
		if err != nil {
			f.reportLocked(fmt.Sprintf("verbs: %s of process %d is not followed: %v", call, t.pid, err))
			return false
		}
		if attached {
			libraries[p.name] = true
		}
	}
	u := f.use(t)
	for call, p := range at {
		if !slices.ContainsFunc(u.places[call], func(o place) bool { return o.function == p.function }) {
			u.places[call] = append(u.places[call], p)
		}
	}
	ok := f.serve(t.process, libraries)
	f.announce(t.process, what, libraries)
	return ok
}

// name notes that a user has named a function of root's. What follows all processes is attached to it, for the calls of that user's, and for all calls
// if that is root, or another user has named it: nobody can invent calls of others. It reports whether anything was attached.
func (f *Finder) name(call string, p place, user uint32) (some bool, err error) {
	s := f.spot(call, p.function)
	switch {
	case s == nil:
		s = &spot{place: p, users: []uint32{user}, all: sufficient(user)}
		if some, err = f.add(call, s); err != nil {
			return false, err
		}
		f.places[call] = append(f.places[call], s)
	case s.covers(user):
		return false, nil
	default:
		if err := f.widen(call, s); err != nil {
			return false, err
		}
		s.users, s.all = append(s.users, user), true
	}
	return some, f.relieve(call, s)
}

// widen attaches what follows all processes for the calls of the other users, too. What is attached for the first one stays: the kernel calls a program at
// the return of those calls alone at whose entry it was there.
func (f *Finder) widen(call string, s *spot) error {
	for _, w := range f.followers {
		if w.call != call || len(w.shared[s.function]) != 1 {
			continue
		}
		a, err := w.attach(s.path, s.offset, Reach{Whose: Others, User: s.users[0]})
		if err != nil {
			return err
		}
		w.shared[s.function] = append(w.shared[s.function], a)
	}
	return nil
}

// add attaches what follows all processes to a function of a call, all or none, and reports whether there is any.
func (f *Finder) add(call string, s *spot) (some bool, err error) {
	var attached []*Follower
	for _, w := range f.followers {
		if w.call != call || w.among != nil || w.paused {
			continue
		}
		var a io.Closer
		err := f.mayAttach(s.users[0])
		if err == nil {
			a, err = w.attach(s.path, s.offset, s.reach())
		}
		if err != nil {
			for _, o := range attached {
				err = errors.Join(err, o.shared[s.function][0].Close())
				delete(o.shared, s.function)
			}
			return false, err
		}
		w.shared[s.function] = []io.Closer{a}
		attached = append(attached, w)
	}
	return len(attached) > 0, nil
}

// relieve detaches from processes what now follows all: a process may map a file of root's by a mount that is not believed.
func (f *Finder) relieve(call string, s *spot) error {
	var errs []error
	for _, w := range f.followers {
		if w.call != call || w.among != nil {
			continue
		}
		for self, own := range w.own {
			if a := own[s.function]; a != nil && s.covers(f.uses[self].user) {
				errs = append(errs, a.Close())
				delete(own, s.function)
			}
		}
	}
	return errors.Join(errs...)
}

// use returns what is known of a process's functions.
func (f *Finder) use(t *target) *usage {
	if f.uses[t.process] == nil {
		if len(f.uses) == mostKnown {
			f.forgetEnded()
		}
		f.uses[t.process] = &usage{t.party, make(map[string][]place)}
	}
	return f.uses[t.process]
}

// serve attaches to the functions of a process what follows it alone, notes the libraries that this adds, and reports whether that is done.
func (f *Finder) serve(self process, libraries map[string]bool) (ok bool) {
	for _, w := range f.followers {
		added, err := w.serve(self)
		for _, p := range added {
			libraries[p.name] = true
		}
		if err != nil {
			f.reportLocked(fmt.Sprintf("verbs: %s of process %d is not followed: %v", w.call, self.pid, err))
			return false
		}
	}
	// The number may have become another process's while it was attached to.
	if start, err := startOf(self.pid); err != nil || start != self.start {
		f.forget(self)
		return false
	}
	return true
}

// Review asks again which processes are followed: one may have moved to a cgroup. A process that one of those that are known has forked has its
// functions, and may use its QPs without making an object of its own. What is attached to processes that have ended is detached.
func (f *Finder) Review() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetEnded()
	asked := make(map[uint32]int) // threads, by user
	for known := slices.Collect(maps.Keys(f.uses)); len(known) > 0; known = known[1:] {
		self := known[0]
		user := f.uses[self].payer
		children, n := childrenOf(self.pid, mostThreads-asked[user])
		asked[user] += n
		for _, pid := range children {
			child := process{pid: pid}
			var err error
			if child.start, err = startOf(pid); err != nil || f.uses[child] != nil || len(f.uses) == mostKnown {
				continue
			}
			// A child that became another user's has executed another program.
			if p, err := partyOf(pid); err != nil || p != f.uses[self].party {
				continue
			}
			f.uses[child] = &usage{f.uses[self].party, maps.Clone(f.uses[self].places)}
			known = append(known, child)
		}
		libraries := make(map[string]bool)
		f.serve(self, libraries)
		f.announce(self, "", libraries)
	}
}

// forgetEnded detaches from processes that have ended.
func (f *Finder) forgetEnded() {
	for self := range f.uses {
		if start, err := startOf(self.pid); err != nil || start != self.start {
			f.forget(self)
		}
	}
}

func (f *Finder) forget(self process) {
	delete(f.uses, self)
	for _, w := range f.followers {
		if err := w.leave(self); err != nil {
			f.reportLocked(fmt.Sprintf("verbs: detach from process %d: %v", self.pid, err))
		}
	}
}

// announce reports the libraries of a process that are followed from now on; what names a part of them.
func (f *Finder) announce(self process, what string, libraries map[string]bool) {
	if !f.begun {
		return
	}
	for library := range libraries {
		f.reportLocked(fmt.Sprintf("verbs: %s%s is followed from now on, as process %d uses it", what, library, self.pid))
	}
}

// mostThreads is how many threads of a user's processes are asked for children in a review. Processes have another order in the next one.
const mostThreads = 4096

// childrenOf returns the processes that the threads of a process have forked, and how many threads were asked, at most so many; none if it has ended. See
// proc_tid_children(5).
func childrenOf(pid, most int) (children []int, asked int) {
	if most <= 0 {
		return nil, 0
	}
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, 0
	}
	defer dir.Close()
	threads, _ := dir.Readdirnames(most) // without them, it has ended
	for _, thread := range threads {
		list, err := os.ReadFile(filepath.Join(dir.Name(), thread, "children"))
		if err != nil {
			continue // the thread has ended
		}
		for number := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(number); err == nil {
				children = append(children, child)
			}
		}
	}
	return children, len(threads)
}
