//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"trace/probes/event"
	"trace/probes/kernel"
	"trace/probes/verbs"
)

// A finder looks for functions of libibverbs while something follows them: in all processes at the beginning, and then in each that makes
// an object of an RDMA device.
type finder struct {
	kernel  *kernel.Kernel
	cgroups *kernel.Cgroups
	events  map[string]*event.Probe // that user space makes, by the structs' names
	// trial means that no process is looked into, and nothing attached to one.
	trial bool

	mu        sync.Mutex
	functions *verbs.Finder // nil if nothing follows
	users     *users
	followers int
	// reviewed ends the reviews; nil if there are none.
	reviewed func()
	callers  callers

	noting sync.Mutex
	notes  []*notes // of the sessions
}

// follow attaches to the functions of a call, now and whenever another one is found, until the closer is closed; among are the processes that are
// followed, nil for all.
func (f *finder) follow(call string, among func(pid int) bool, attach verbs.Attach) (io.Closer, error) {
	if f.trial {
		return f.begin(context.Background(), func(*verbs.Finder) (io.Closer, error) { return attachToOwn(attach) })
	}
	var calls *verbs.Follower
	w, err := f.begin(context.Background(), func(functions *verbs.Finder) (_ io.Closer, err error) {
		calls, err = functions.Follow(call, among, attach)
		if err == nil && f.reviewed == nil {
			f.reviewed = reviewing(functions)
		}
		return calls, err
	})
	if err != nil {
		return nil, err
	}
	return followed{calls, w}, nil
}

// followed is a call that is followed; it is [pausable].
type followed struct {
	*verbs.Follower
	following io.Closer
}

var _ pausable = followed{}

// Close detaches it.
func (w followed) Close() error { return w.following.Close() }

// followClocks gives put the frequencies of devices' counters, now and whenever another one is found, until the closer is closed.
func (f *finder) followClocks(ctx context.Context, put verbs.PutClock) (io.Closer, error) {
	return f.begin(ctx, func(functions *verbs.Finder) (io.Closer, error) { return functions.FollowClocks(put) })
}

// listen makes the open devices known, now and whenever one is opened, until the closer is closed.
func (f *finder) listen(opened func(o verbs.Open, before bool), lost func()) (io.Closer, error) {
	return f.begin(context.Background(), func(functions *verbs.Finder) (io.Closer, error) { return functions.Listen(opened, lost), nil })
}

// search looks into all processes, unless something is followed already, and goes on looking until the closer is closed.
func (f *finder) search(ctx context.Context) (io.Closer, error) {
	return f.begin(ctx, func(*verbs.Finder) (io.Closer, error) { return nothing{}, nil })
}

// nothing is followed by a search alone.
type nothing struct{}

func (nothing) Close() error { return nil }

// begin begins to follow something, and begins the search if nothing else is followed. The first look into all processes ends with ctx.
func (f *finder) begin(ctx context.Context, follow func(*verbs.Finder) (io.Closer, error)) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.functions == nil {
		functions := verbs.NewFinder(f.note)
		functions.QPs, functions.Callers = listQPs, f.callers.read
		users, err := f.watch(functions)
		if err != nil {
			return nil, err
		}
		f.functions, f.users = functions, users
		if !f.trial {
			err = functions.LookAll(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, f.stop())
		}
		if denied := functions.Denied(); denied != "" {
			f.note("verbs: " + denied)
		}
	}
	w, err := follow(f.functions)
	if err != nil {
		if f.followers == 0 {
			err = errors.Join(err, f.stop())
		}
		return nil, err
	}
	f.followers++
	return &following{f, w}, nil
}

// following is something that is followed.
type following struct {
	finder   *finder
	follower io.Closer
}

// Close ends it. The last one ends the search.
func (w *following) Close() error {
	w.finder.mu.Lock()
	defer w.finder.mu.Unlock()
	err := w.follower.Close()
	if w.finder.followers--; w.finder.followers == 0 {
		err = errors.Join(err, w.finder.stop())
	}
	return err
}

func (f *finder) stop() error {
	if f.reviewed != nil {
		f.reviewed()
	}
	f.functions.End()
	err := errors.Join(f.users.close(), f.functions.Close())
	if refused := f.functions.Refused(); refused != "" {
		f.note(refused)
	}
	f.functions, f.users, f.reviewed = nil, nil, nil
	return err
}

// reviewing lets the choice of processes be reviewed once a second, until the returned function is called.
func reviewing(functions *verbs.Finder) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for ticks := time.Tick(time.Second); ; {
			select {
			case <-ticks:
				functions.Review()
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// read returns how many bytes of processes were read since something is followed; 0 if nothing is.
func (f *finder) read() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.functions == nil {
		return 0
	}
	return f.functions.Read()
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

const (
	// usersFunction is called with each new object of an RDMA device, by the process that makes it.
	usersFunction = "rdma_restrack_add"
	// qpFunction is called with each QP that a process changes.
	qpFunction = "ib_modify_qp_with_udata"
)

// usersPrograms are the programs that are attached to them.
var usersPrograms = map[string]string{usersFunction: "kprobe_users", qpFunction: "kprobe_users_qp"}

// users reports the processes that make objects of RDMA devices, and the QPs that they change.
type users struct {
	objects *ebpf.Collection
	links   []link.Link
	ring    *ringbuf.Reader
	done    chan struct{}
}

// watch makes the functions of each of these processes known, until the result is closed.
func (f *finder) watch(functions *verbs.Finder) (_ *users, err error) {
	u := &users{done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("attach to %s: %w", usersFunction, explain(err)), u.release())
		}
	}()
	if u.objects, err = loadUsers(f.kernel, slices.Collect(maps.Values(usersPrograms))...); err != nil {
		return nil, err
	}
	if u.ring, err = ringbuf.NewReader(u.objects.Maps["users"]); err != nil {
		return nil, err
	}
	for function, program := range usersPrograms {
		l, err := link.Kprobe(function, u.objects.Programs[program], nil)
		if err != nil {
			return nil, err
		}
		u.links = append(u.links, l)
	}
	go u.read(functions)
	return u, nil
}

// loadUsers loads some programs of users.bpf.c.
func loadUsers(k *kernel.Kernel, programs ...string) (*ebpf.Collection, error) {
	_ = rlimit.RemoveMemlock() // see newSet
	o := &object{group: group{name: "users", module: verbsModule}}
	spec, err := o.load(programs...)
	if err != nil {
		return nil, err
	}
	var options ebpf.CollectionOptions
	if options.Programs.KernelTypes, err = kernelTypes(k, o, relocation{}); err != nil {
		return nil, err
	}
	return ebpf.NewCollectionWithOptions(spec, options)
}

// read looks once into a process that has made several objects meanwhile, and takes turns at what waits.
func (u *users) read(functions *verbs.Finder) {
	defer close(u.done)
	u.ring.SetDeadline(time.Now().Add(-time.Second))
	for {
		seen := make(map[user]bool)
		record, err := u.ring.Read()
		for ; err == nil; record, err = u.ring.Read() {
			seen[userOf(record.RawSample)] = true
			if record.Remaining == 0 {
				break
			}
		}
		if errors.Is(err, ringbuf.ErrClosed) {
			return
		}
		for by := range seen {
			by.look(functions)
		}
		next, more := functions.Turn()
		if !more {
			next = time.Time{}
		}
		u.ring.SetDeadline(next)
	}
}

func (u *users) release() error {
	var errs []error
	for _, l := range u.links {
		errs = append(errs, l.Close())
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
