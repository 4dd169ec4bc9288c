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

// Attach attaches something to an offset in a file, for the calls of a process; 0: of all processes that map the file.
type Attach func(path string, offset uint64, pid int) (io.Closer, error)

// A Follower is attached to all functions of a call, also to those that are found later.
type Follower struct {
	finder *Finder
	call   string
	// among reports whether a process is followed; nil: all are. The kernel compares processes for each attachment at a function, so one for all
	// is best where all are wanted.
	among   func(pid int) bool
	attach  Attach
	closers []io.Closer                        // of all processes
	own     map[process]map[function]io.Closer // of each that is followed
	paused  bool
}

// A function is where a function is, under whatever path.
type function struct {
	file   file
	offset uint64
}

// Follow attaches to the functions of a call that are known, and to those that [Finder.Look] finds until the follower is closed. If among is not
// nil, only the processes pay for which it is true; it is asked again for the others by [Finder.Review].
func (f *Finder) Follow(call string, among func(pid int) bool, attach Attach) (*Follower, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &Follower{finder: f, call: call, among: among, attach: attach, own: make(map[process]map[function]io.Closer)}
	if err := w.begin(); err != nil {
		return nil, errors.Join(err, w.release())
	}
	f.followers = append(f.followers, w)
	return w, nil
}

func (w *Follower) begin() error {
	if w.among == nil {
		for _, p := range w.finder.places[w.call] {
			if err := w.add(p); err != nil {
				return err
			}
		}
		return nil
	}
	for self, places := range w.finder.uses {
		if _, err := w.serve(self, places[w.call]); err != nil {
			return err
		}
	}
	return nil
}

// add attaches to a function for all processes.
func (w *Follower) add(p place) error {
	c, err := w.attach(p.path, p.offset, 0)
	if err == nil {
		w.closers = append(w.closers, c)
	}
	return err
}

// serve attaches to the functions of a process that were not attached to, if it is followed, and returns these.
func (w *Follower) serve(self process, places []place) (added []place, err error) {
	places = slices.DeleteFunc(slices.Clone(places), func(p place) bool { return w.own[self][p.function] != nil })
	if len(places) == 0 || w.paused || !w.among(self.pid) {
		return nil, nil
	}
	if w.own[self] == nil {
		w.own[self] = make(map[function]io.Closer)
	}
	for _, p := range places {
		c, err := w.attach(p.path, p.offset, self.pid)
		if err != nil {
			return added, err
		}
		w.own[self][p.function] = c
		added = append(added, p)
	}
	return added, nil
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

func (w *Follower) release() error {
	var errs []error
	for _, c := range w.closers {
		errs = append(errs, c.Close())
	}
	w.closers = nil
	for self := range w.own {
		errs = append(errs, w.leave(self))
	}
	return errors.Join(errs...)
}

// Pause detaches, until [Follower.Resume] attaches to the functions that are known then.
func (w *Follower) Pause() error {
	w.finder.mu.Lock()
	closers := w.closers
	for _, own := range w.own {
		closers = slices.AppendSeq(closers, maps.Values(own))
	}
	w.closers, w.paused = nil, true
	clear(w.own)
	w.finder.mu.Unlock()
	return sideBySide(len(closers), func(i int) error { return closers[i].Close() })
}

// Resume attaches again.
func (w *Follower) Resume() error {
	w.finder.mu.Lock()
	defer w.finder.mu.Unlock()
	w.paused = false
	if w.among != nil {
		return w.begin()
	}
	places := w.finder.places[w.call]
	closers := make([]io.Closer, len(places))
	err := sideBySide(len(places), func(i int) (err error) {
		closers[i], err = w.attach(places[i].path, places[i].offset, 0)
		return err
	})
	w.closers = slices.DeleteFunc(closers, func(c io.Closer) bool { return c == nil })
	return err
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

// use remembers the functions of a process, attaches to them what follows it alone, and reports which libraries that adds, or why not.
func (f *Finder) use(self process, at map[string]place) (libraries map[string]bool, ok bool) {
	if f.uses[self] == nil {
		if len(f.uses) == mostKnown {
			f.forgetEnded()
		}
		f.uses[self] = make(map[string][]place)
	}
	for call, p := range at {
		if !slices.ContainsFunc(f.uses[self][call], p.same) {
			f.uses[self][call] = append(f.uses[self][call], p)
		}
	}
	return f.serve(self)
}

// serve attaches what follows some processes to the functions of one.
func (f *Finder) serve(self process) (libraries map[string]bool, ok bool) {
	libraries = make(map[string]bool)
	for _, w := range f.followers {
		if w.among == nil {
			continue
		}
		added, err := w.serve(self, f.uses[self][w.call])
		for _, p := range added {
			libraries[p.library] = true
		}
		if err != nil {
			f.reportLocked(fmt.Sprintf("verbs: %s of process %d is not followed: %v", w.call, self.pid, err))
			return libraries, false
		}
	}
	return libraries, true
}

// Review asks again which processes are followed: one may have moved to a cgroup. A process that one of those that are known has forked has its
// functions, and may use its QPs without making an object of its own. What is attached to processes that have ended is detached.
func (f *Finder) Review() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetEnded()
	for known := slices.Collect(maps.Keys(f.uses)); len(known) > 0; known = known[1:] {
		self := known[0]
		for _, pid := range childrenOf(self.pid) {
			child := process{pid: pid}
			var err error
			if child.start, err = startOf(pid); err != nil || f.uses[child] != nil || len(f.uses) == mostKnown {
				continue
			}
			f.uses[child] = maps.Clone(f.uses[self])
			known = append(known, child)
		}
		libraries, _ := f.serve(self)
		f.announce(self, "", libraries)
	}
}

// forgetEnded detaches from processes that have ended.
func (f *Finder) forgetEnded() {
	for self := range f.uses {
		if start, err := startOf(self.pid); err == nil && start == self.start {
			continue
		}
		delete(f.uses, self)
		for _, w := range f.followers {
			if err := w.leave(self); err != nil {
				f.reportLocked(fmt.Sprintf("verbs: detach from process %d: %v", self.pid, err))
			}
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

// childrenOf returns the processes that the threads of a process have forked; none if it has ended. See proc_tid_children(5).
func childrenOf(pid int) (children []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, file := range files {
		list, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for number := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(number); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
