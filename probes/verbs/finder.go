//go:build linux

package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Finder finds the functions, and attaches to each of them, once, what follows it. What it looks at it reads in turns (turns.go), and what it finds it
// proves (proof.go).
type Finder struct {
	note func(text string)

	// QPs lists the kernel's QPs, and Callers is who called a function that is followed; nil: it is unknown.
	QPs     func() ([]QP, error)
	Callers func() (map[int]bool, error)

	*reader
	prover *prover

	mu        sync.Mutex
	places    map[string][]*spot // that other processes have, too, by call
	uses      map[process]*usage
	followers []*Follower
	opens     map[process][]Open // the devices of processes: their contexts were found, or it is known why not
	contexts  map[int]*contexts  // by process id
	failed    map[process]*failures
	listeners []*Listener
	objects   map[functions]bool // of QPs and CQs that are followed
	clocks    clocks
	ready     map[process]ready
	writes    map[int]string // the processes that may write their queues themselves, and by which library
	refused   map[string]int // by reason
	denied    []error        // of processes that may not be looked into: hidepid, or another user namespace
	noted     map[string]bool
	begun     bool // all processes were looked into
}

// NewFinder returns a finder that has not looked yet. note gets what cannot be followed, and why, and the libraries that are found after
// [Finder.LookAll].
func NewFinder(note func(text string)) *Finder {
	f := &Finder{
		note: note, reader: &reader{devices: numbering{read: deviceNumbers}}, prover: &prover{judge: judge, trusts: trusts},
		places: make(map[string][]*spot), uses: make(map[process]*usage), opens: make(map[process][]Open), contexts: make(map[int]*contexts),
		failed: make(map[process]*failures), objects: make(map[functions]bool), ready: make(map[process]ready), writes: make(map[int]string),
		refused: make(map[string]int), noted: make(map[string]bool),
	}
	f.turns = newTurns(func(user uint32) {
		f.report(fmt.Sprintf("verbs: not all processes of user %d are looked into: they make objects of devices faster than that is possible", user))
	})
	f.prover.used = f.used
	f.clocks = newClocks(f)
	return f
}

// tries is how often a process is looked at in the beginning that may be opening a device, each time after [settled].
const tries = 5

// LookAll looks into all processes: first into those that have QPs.
func (f *Finder) LookAll(ctx context.Context) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	urgent := make(map[int]bool)
	if f.QPs != nil {
		qps, _ := f.QPs() // without the list, none is urgent
		for _, qp := range qps {
			urgent[qp.PID] = true
		}
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := partyOf(pid)
		if err != nil {
			continue // it has ended
		}
		left := tries
		f.turns.add(&task{of: subject{pid: pid, what: "process"}, user: p.payer, first: true, do: func(t *task) time.Duration {
			left--
			return f.lookFirst(pid, t, left == 0)
		}}, urgent[pid])
	}
	if err := f.begin(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	f.begun = true
	f.mu.Unlock()
	f.nameWriters()
	return nil
}

// Denied reports how many processes may not be looked into, and why; "" if all may.
func (f *Finder) Denied() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.denied) == 0 {
		return ""
	}
	return fmt.Sprintf("%d processes are not followed, like: %v", len(f.denied), f.denied[0])
}

// begin takes turns until all processes were looked into, except where too much was read of a user's: the rest comes later.
func (f *Finder) begin(ctx context.Context) error {
	defer context.AfterFunc(ctx, f.questions.End)()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f.turns.turn() {
			continue
		}
		starving, others := f.turns.starving()
		if !others {
			f.nameWaiting(starving)
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(settled / 10):
		}
	}
}

// lookFirst looks into a process that was there in the beginning. The last time it is given up.
func (f *Finder) lookFirst(pid int, of *task, last bool) (again time.Duration) {
	t := f.target(pid, of)
	defer t.close()
	again, err := f.look(t)
	if err == nil && again > 0 {
		if !last {
			return settled
		}
		err = f.giveUp(t)
	}
	if errors.Is(err, fs.ErrPermission) {
		f.mu.Lock()
		f.denied = append(f.denied, err)
		f.mu.Unlock()
		return 0
	}
	f.notFollowed(pid, err)
	return 0
}

// Turn looks at something that waits for it. It returns when there is more to look at, and false if nothing waits.
func (f *Finder) Turn() (next time.Time, more bool) {
	if f.turns.turn() {
		return time.Now(), true
	}
	f.nameWaiting(f.turns.waiting())
	return f.turns.due()
}

func (f *Finder) nameWaiting(users []uint32) {
	for _, user := range users {
		f.report(fmt.Sprintf("verbs: processes of user %d are looked into later: there is much to read in them", user))
	}
}

// Read returns how many bytes of processes were read, or would have been in the time of the system calls about them.
func (f *Finder) Read() int64 {
	f.turns.mu.Lock()
	defer f.turns.mu.Unlock()
	return f.turns.read
}

// later makes something about a process wait for its turn.
func (f *Finder) later(of subject, due time.Duration, do func(t *target) time.Duration) {
	p, err := partyOf(of.pid)
	if err != nil {
		f.lose(of.pid)
		f.notFollowed(of.pid, err)
		return
	}
	f.turns.add(&task{of: of, user: p.payer, due: time.Now().Add(due), do: func(by *task) time.Duration {
		t := f.target(of.pid, by)
		defer t.close()
		if t.identify() != nil {
			f.lose(of.pid)
			return 0
		}
		return do(t)
	}}, false)
}

// Look looks for contexts of a process, again and again while it may be opening a device. Then what [Finder.Made] noted and was not found is
// lost. It is cheap if the process has no open device, or none that is new.
func (f *Finder) Look(pid int) {
	f.later(subject{pid: pid, what: "process"}, 0, func(t *target) time.Duration {
		f.reopened(t)
		again, err := f.look(t)
		if again == 0 {
			f.lose(pid)
		}
		f.notFollowed(pid, err)
		return again
	})
}

// notFollowed reports why a process is not followed, unless it has ended.
func (f *Finder) notFollowed(pid int, err error) {
	if err != nil && !gone(err) && !errors.Is(err, errStopped) {
		f.report(fmt.Sprintf("verbs: process %d is not followed: %v", pid, err))
	}
}

func (f *Finder) look(t *target) (again time.Duration, err error) {
	devices, err := t.open()
	if err != nil || len(devices) == 0 {
		return 0, f.refuse(t.process, nil, err)
	}
	if err := t.identify(); err != nil {
		return 0, err
	}
	left := f.unknown(t.process, devices)
	f.mu.Lock()
	failed := f.failed[t.process]
	f.mu.Unlock()
	if len(left) == 0 || failed != nil && failed.times >= mostFailed {
		return 0, nil
	}
	if err := t.mapped(); err != nil {
		return 0, f.abandon(t, left, err)
	}
	f.notesWriter(t)
	if err := t.wide(); err != nil {
		return 0, f.refuse(t.process, left, err)
	}
	left, err = f.search(t, left)
	if err != nil {
		return 0, f.abandon(t, left, err)
	}
	if len(left) == 0 {
		f.forgive(t.process)
		return 0, nil
	}
	if again := f.fail(t.process); again > 0 {
		return again, nil
	}
	why := f.why(t, left)
	if !t.same() {
		return 0, unix.ESRCH // it has ended, or executed another program
	}
	return 0, f.refuse(t.process, left, why)
}

// abandon leaves a process alone that does not answer, or whose list of mappings is too long, until it makes another object, and after a few times
// for good.
func (f *Finder) abandon(t *target, devices []handle, err error) error {
	if r := (*refusal)(nil); errors.As(err, &r) {
		f.mu.Lock()
		if f.failed[t.process] == nil {
			f.failed[t.process] = &failures{since: time.Now()}
		}
		f.failed[t.process].times += mostFailed / 4
		f.mu.Unlock()
	}
	return f.refuse(t.process, devices, err)
}

// search searches for the contexts of some devices, and returns those without. A context may not be complete yet: then a later call finds it.
func (f *Finder) search(t *target, devices []handle) (left []handle, err error) {
	left = slices.Clone(devices)
	at := make(map[uint64]*Open)
	var failed error
	shift := 0 // one program has one libc
	found := func(address uint64, context []byte) bool {
		fd := int(int32(binary.NativeEndian.Uint32(context[cmdFD:])))
		i := slices.IndexFunc(left, func(d handle) bool { return d.fd == fd })
		if i < 0 {
			return false
		}
		functions, err := f.found(t, context)
		if failed = fatal(err); failed != nil {
			return true
		}
		if err != nil && t.flaw == nil && t.code(calls, context) {
			t.flaw = err
		}
		if functions != nil {
			at[address] = newOpen(t, left[i], context, functions)
			shift, _ = shiftOf(context)
			left = slices.Delete(left, i, i+1)
		}
		return len(left) == 0
	}
	err = t.scan(contextSize(), func(address uint64, memory []byte) bool { return search(address, memory, fdsOf(devices), found) })
	if err = errors.Join(err, failed); err == nil && len(at) > 0 && !f.looked() {
		qps, cqs := qpObject.shifted(shift), cqObject.shifted(shift)
		err = t.scan(qps.size, func(_ uint64, memory []byte) bool {
			searchObjects(memory, []object{qps, cqs}, slices.Collect(maps.Keys(at)), func(o object, memory []byte) {
				at[pointer(memory, 0)].add(o, f.foundObject(t, o, memory))
			})
			return false
		})
	}
	for _, o := range at {
		f.settle(t.process, *o)
	}
	return left, err
}

// fatal returns an error that ends the search in a process: it has ended, does not answer, or must not be read.
func fatal(err error) error {
	if r := (*refusal)(nil); err == nil || errors.As(err, &r) && r.reason != silent {
		return nil
	}
	return err
}

// looked reports whether all processes were looked into: the QPs of later ones are reported when they are changed.
func (f *Finder) looked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// found attaches the followers to the functions of a context, and returns them if that is done: memory may look like a context by chance, and
// the process may end meanwhile.
func (f *Finder) found(t *target, context []byte) (map[string]place, error) {
	at := make(map[string]place)
	for _, call := range Calls() { // in order, so that the same is refused each time
		address := pointer(context, calls[call])
		if t.dummy(address) {
			if call == "post_send" || call == "poll_cq" {
				return nil, nil // the provider is about to set its own
			}
			continue
		}
		p, err := f.prover.prove(t, address)
		var r *refusal
		if errors.As(err, &r) {
			return nil, &refusal{r.reason, fmt.Sprintf("%s of its struct ibv_context %s", call, r.text)}
		}
		if err != nil {
			return nil, err
		}
		at[call] = p
	}
	if !f.addAll(t, "", at) {
		return nil, nil
	}
	return at, nil
}

// End lets nobody wait for a process any longer.
func (f *Finder) End() { f.questions.End() }

// Close lets go of the files, after the last follower was closed, and names what keeps processes of ours that cannot be killed.
func (f *Finder) Close() error {
	f.turns.close()
	for _, h := range f.questions.Holders() {
		f.report("verbs: " + h.String())
	}
	return f.prover.close()
}

// used returns the libraries in which something is followed.
func (f *Finder) used() map[*library]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetEnded()
	all := make(map[*library]bool)
	for _, spots := range f.places {
		for _, s := range spots {
			all[s.library] = true
		}
	}
	for _, u := range f.uses {
		for _, places := range u.places {
			for _, p := range places {
				all[p.library] = true
			}
		}
	}
	return all
}

// report passes a text on, once.
func (f *Finder) report(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reportLocked(text)
}

// mostReports bounds the messages: each process of a user may be a reason for one.
const mostReports = 1 << 10

func (f *Finder) reportLocked(text string) {
	if f.noted[text] || len(f.noted) > mostReports {
		return
	}
	if len(f.noted) == mostReports {
		text = "verbs: there are no more messages; what is refused is counted"
	}
	f.noted[text] = true
	f.note(text)
}
