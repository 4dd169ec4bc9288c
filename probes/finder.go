//go:build linux

package probes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"trace/bpf"
	"trace/probes/verbs"
)

// usersFunction is called with each new object of an RDMA device, by the process that makes it.
const usersFunction = "rdma_restrack_add"

// A finder looks for functions of libibverbs while something follows them: in all processes at the beginning, and then in each that makes
// an object of an RDMA device.
type finder struct {
	mu        sync.Mutex
	functions *verbs.Finder // nil if nothing follows
	users     *users
	followers int

	noting sync.Mutex
	notes  []*notes // of the sessions
}

// follow attaches to the functions of a call, now and whenever another one is found, until the closer is closed.
func (f *finder) follow(call string, attach verbs.Attach) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.functions == nil {
		functions := verbs.NewFinder(f.note)
		users, err := watchUsers(functions.Look)
		if err != nil {
			return nil, err
		}
		f.functions, f.users = functions, users
		if err := functions.LookAll(); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	w, err := f.functions.Follow(call, attach)
	if err != nil {
		if f.followers == 0 {
			err = errors.Join(err, f.stop())
		}
		return nil, err
	}
	f.followers++
	return &following{f, w}, nil
}

// following is something that follows a call.
type following struct {
	finder *finder
	*verbs.Follower
}

// Close detaches it. The last one ends the search.
func (w *following) Close() error {
	w.finder.mu.Lock()
	defer w.finder.mu.Unlock()
	err := w.Follower.Close()
	if w.finder.followers--; w.finder.followers == 0 {
		err = errors.Join(err, w.finder.stop())
	}
	return err
}

func (f *finder) stop() error {
	err := f.users.close()
	f.functions, f.users = nil, nil
	return err
}

// report passes what is not followed on to a session, until the returned function is called.
func (f *finder) report(n *notes) (end func()) {
	f.noting.Lock()
	defer f.noting.Unlock()
	f.notes = append(f.notes, n)
	return func() {
		f.noting.Lock()
		defer f.noting.Unlock()
		f.notes = slices.DeleteFunc(f.notes, func(o *notes) bool { return o == n })
	}
}

func (f *finder) note(text string) {
	f.noting.Lock()
	defer f.noting.Unlock()
	for _, n := range f.notes {
		n.add(nil, text)
	}
}

// users reports the processes that make objects of RDMA devices.
type users struct {
	objects *ebpf.Collection
	link    link.Link
	ring    *ringbuf.Reader
	done    chan struct{}
}

// watchUsers calls look for each of these processes, until the result is closed.
func watchUsers(look func(pid int)) (_ *users, err error) {
	_ = rlimit.RemoveMemlock() // see newSet
	spec, err := bpf.Load("users")
	if err != nil {
		return nil, err
	}
	u := &users{done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("attach to %s: %w", usersFunction, explain(err)), u.release())
		}
	}()
	if u.objects, err = ebpf.NewCollection(spec); err != nil {
		return nil, err
	}
	if u.ring, err = ringbuf.NewReader(u.objects.Maps["users"]); err != nil {
		return nil, err
	}
	if u.link, err = link.Kprobe(usersFunction, u.objects.Programs["kprobe_users"], nil); err != nil {
		return nil, err
	}
	go u.read(look)
	return u, nil
}

// read looks once into a process that has made several objects meanwhile.
func (u *users) read(look func(pid int)) {
	defer close(u.done)
	for {
		pids := make(map[int]bool)
		record, err := u.ring.Read()
		for ; err == nil; record, err = u.ring.Read() {
			pids[int(binary.NativeEndian.Uint32(record.RawSample))] = true
			if record.Remaining == 0 {
				break
			}
		}
		if errors.Is(err, ringbuf.ErrClosed) {
			return
		}
		for pid := range pids {
			look(pid)
		}
	}
}

func (u *users) release() error {
	var errs []error
	if u.link != nil {
		errs = append(errs, u.link.Close())
	}
	if u.ring != nil {
		errs = append(errs, u.ring.Close())
	}
	if u.objects != nil {
		u.objects.Close()
	}
	return errors.Join(errs...)
}

// close returns when the last look has ended.
func (u *users) close() error {
	err := u.release()
	<-u.done
	return err
}
