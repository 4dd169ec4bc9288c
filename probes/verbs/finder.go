//go:build linux

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trace/probes/proc"
)

// A place is a function in a file of a process.
type place struct {
	function
	path string // by which it can be opened: while the process lives, or until the finder lets go of the file
	// library is its name in the process.
	library string
}

// same reports whether two places are the same function, under whatever path.
func (p place) same(o place) bool { return p.function == o.function }

// Finder finds the functions, and attaches to each of them, once, what follows it.
type Finder struct {
	note     func(text string)
	identify func(path string) (file, error)

	// QPs lists the kernel's QPs, and Callers is who called a function that is followed; nil: it is unknown.
	QPs     func() ([]QP, error)
	Callers func() (map[int]bool, error)

	// looking is held during a search, so that a context that is found by one is not lost to another.
	looking   sync.Mutex
	mu        sync.Mutex
	places    map[string][]place // by call
	uses      map[process]map[string][]place
	files     map[file]*os.File // that these are in: the process by which one was found may end
	followers []*Follower
	opens     map[process][]Open // the devices of processes: their contexts were found, or it is known why not
	contexts  map[int]*contexts  // by process id
	failed    map[process]*failures
	listeners []*Listener
	objects   map[functions]bool // of QPs and CQs that are followed
	clocks    clocks
	ready     map[process]ready
	refused   map[string]int // by reason
	denied    []error        // of processes that may not be looked into: hidepid, or another user namespace
	noted     map[string]bool
	begun     bool // all processes were looked into
}

// process is a process at a time: numbers are used again.
type process struct {
	pid   int
	start uint64 // since boot, in ticks
}

// LookAll looks into all processes.
func (f *Finder) LookAll() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		again, err := f.look(pid)
		for tries := 0; tries < 5 && err == nil && again > 0; tries++ { // it may be opening the device
			time.Sleep(settled)
			again, err = f.look(pid)
		}
		if err == nil && again > 0 {
			err = f.giveUp(pid)
		}
		if errors.Is(err, fs.ErrPermission) {
			f.denied = append(f.denied, err)
		} else {
			f.notFollowed(pid, err)
		}
	}
	if len(f.denied) > 0 {
		f.report(fmt.Sprintf("verbs: %d processes are not followed, like: %v", len(f.denied), f.denied[0]))
	}
	f.mu.Lock()
	f.begun = true
	f.mu.Unlock()
	f.nameWriters()
	return nil
}

// settled is after how long a process is looked at again that is opening a device.
const settled = 50 * time.Millisecond

// Look looks for contexts of a process, and returns after how long it must be called again; 0: not, and what [Finder.Made] noted and was not
// found is lost. It is cheap if the process has no open device, or none that is new.
func (f *Finder) Look(pid int) (again time.Duration) {
	f.reopened(pid)
	again, err := f.look(pid)
	if again == 0 {
		f.lose(pid)
	}
	f.notFollowed(pid, err)
	return again
}

// notFollowed reports why a process is not followed, unless it has ended.
func (f *Finder) notFollowed(pid int, err error) {
	if err != nil && !gone(err) {
		f.report(fmt.Sprintf("verbs: process %d is not followed: %v", pid, err))
	}
}

func (f *Finder) look(pid int) (again time.Duration, err error) {
	f.looking.Lock()
	defer f.looking.Unlock()
	devices, err := devicesOf(pid)
	if err != nil || len(devices) == 0 {
		return 0, err
	}
	start, err := startOf(pid)
	if err != nil {
		return 0, err
	}
	self := process{pid, start}
	left := f.unknown(self, devices)
	f.mu.Lock()
	failed := f.failed[self]
	f.mu.Unlock()
	if len(left) == 0 || failed != nil && failed.times == mostFailed {
		return 0, nil
	}
	if err := wide(pid); err != nil {
		return 0, f.refuse(self, left, err)
	}
	left, err = f.search(self, left)
	if err != nil {
		return 0, err
	}
	if len(left) == 0 {
		f.forgive(self)
		return 0, nil
	}
	if again := f.fail(self); again > 0 {
		return again, nil
	}
	return 0, f.refuse(self, left, f.why(self, left))
}

// search searches for the contexts of some devices, and returns those without. A context may not be complete yet: then a later call finds it.
func (f *Finder) search(self process, devices []handle) (left []handle, err error) {
	regions, err := proc.Mappings(self.pid)
	if err != nil {
		return nil, err
	}
	left = slices.Clone(devices)
	at := make(map[uint64]*Open)
	found := func(address uint64, context []byte) bool {
		fd := int(int32(binary.NativeEndian.Uint32(context[cmdFD:])))
		i := slices.IndexFunc(left, func(d handle) bool { return d.fd == fd })
		if i < 0 {
			return false
		}
		if functions := f.found(self, regions, context); functions != nil {
			at[address] = newOpen(self.pid, left[i], context, functions)
			left = slices.Delete(left, i, i+1)
		}
		return len(left) == 0
	}
	err = scan(self.pid, regions, contextSize, func(address uint64, memory []byte) bool { return search(address, memory, fdsOf(devices), found) })
	if err == nil && len(at) > 0 && !f.looked() {
		err = scan(self.pid, regions, qpObject.size, func(_ uint64, memory []byte) bool {
			searchObjects(memory, slices.Collect(maps.Keys(at)), func(o object, memory []byte) {
				at[binary.NativeEndian.Uint64(memory)].add(o, f.foundObject(self, regions, o, memory))
			})
			return false
		})
	}
	for _, o := range at {
		f.settle(self, *o)
	}
	return left, err
}

// looked reports whether all processes were looked into: the QPs of later ones are reported when they are changed.
func (f *Finder) looked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// LookQP looks at a QP of a process, and at its CQs: the address that the kernel has of its struct ibv_qp, and the kernel's number of it, 0 if that is
// unknown. If it is settled, another number at that address is a reason to refuse it: before that the program may be about to set it.
func (f *Finder) LookQP(pid int, address uint64, number uint32, settled bool) {
	start, err := startOf(pid)
	if err != nil {
		return
	}
	self := process{pid, start}
	head := make([]byte, qpNum+4)
	n, err := read(pid, address, head)
	if is := binary.NativeEndian.Uint32(head[qpNum:]); number != 0 && is != number {
		if settled && !gone(err) {
			f.refuseQP(self, address, number)
		}
		return
	}
	if err != nil || n < len(head) {
		return
	}
	send, receive := binary.NativeEndian.Uint64(head[sendCQ:]), binary.NativeEndian.Uint64(head[recvCQ:])
	f.lookAt(self, cqObject, send)
	if receive != send {
		f.lookAt(self, cqObject, receive)
	}
	f.lookAt(self, qpObject, address)
}

// lookAt looks at an object of a process.
func (f *Finder) lookAt(self process, o object, address uint64) {
	memory := make([]byte, o.size)
	if n, err := read(self.pid, address, memory); err != nil || n < len(memory) {
		return // it is smaller, or the process has ended
	}
	like := functions{self, o.name, string(memory[o.functions:])}
	f.mu.Lock()
	known := f.objects[like]
	f.mu.Unlock()
	if known {
		f.timed(self, o, memory)
		return
	}
	context := make([]byte, contextSize)
	if n, err := read(self.pid, binary.NativeEndian.Uint64(memory), context); err != nil || n < len(context) {
		return
	}
	devices, err := devicesOf(self.pid)
	if err != nil || !search(0, context, fdsOf(devices), func(uint64, []byte) bool { return true }) {
		return
	}
	regions, err := proc.Mappings(self.pid)
	if err != nil {
		return
	}
	if f.foundObject(self, regions, o, memory) != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r, sends := f.ready[self]; sends { // it may have posted before
			r.followed = false
			f.ready[self] = r
		}
		if len(f.objects) == mostKnown {
			clear(f.objects)
		}
		f.objects[like] = true
	}
}

// functions are the pointers to functions of a process's QP or CQ: most of its QPs have the same.
type functions struct {
	process
	of, pointers string
}

// foundObject attaches the followers to the functions of an object, if all that it has are in one library, and returns them if that is done.
func (f *Finder) foundObject(self process, regions []proc.Mapping, o object, memory []byte) map[string]place {
	first, ok := code(self.pid, regions, binary.NativeEndian.Uint64(memory[o.calls[o.has]:]))
	if !ok {
		return nil
	}
	at := make(map[string]place)
	for call, offset := range o.calls {
		address := binary.NativeEndian.Uint64(memory[offset:])
		if address == 0 {
			continue
		}
		p, ok := code(self.pid, regions, address)
		switch {
		case ok && p.library == first.library:
			at[call] = p
		case offset <= o.sure:
			return nil
		}
	}
	if !f.addAll(self, o.name+" of ", at) {
		return nil
	}
	f.timed(self, o, memory)
	return at
}

// found attaches the followers to the functions of a context, and returns them if that is done: memory may look like a context by chance, and
// the process may end meanwhile.
func (f *Finder) found(self process, regions []proc.Mapping, context []byte) map[string]place {
	at := make(map[string]place)
	for call, offset := range calls {
		p, ok := code(self.pid, regions, binary.NativeEndian.Uint64(context[offset:]))
		switch {
		case !ok:
			return nil
		case !dummy(p):
			at[call] = p
		case call == "post_send" || call == "poll_cq":
			return nil // the provider is about to set its own
		}
	}
	if !f.addAll(self, "", at) {
		return nil
	}
	return at
}

// addAll attaches the followers to functions of a process; what names them in a message. It reports whether that is done: the process may end meanwhile.
func (f *Finder) addAll(self process, what string, at map[string]place) bool {
	for call, p := range at {
		var err error
		if p.file, err = f.identify(p.path); err != nil {
			return false
		}
		if marked(p) {
			p.offset += endbr64
		}
		at[call] = p
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for call, p := range at {
		if err := f.hold(&p); err != nil {
			return false
		}
		at[call] = p
	}
	libraries, ok := f.use(self, at)
	for call, p := range at {
		if slices.ContainsFunc(f.places[call], p.same) {
			continue
		}
		attached, err := f.add(call, p)
		if err != nil {
			f.reportLocked(fmt.Sprintf("verbs: %s of process %d is not followed: %v", call, self.pid, err))
			return false
		}
		if attached {
			libraries[p.library] = true
		}
	}
	f.announce(self, what, libraries)
	return ok
}

// dummy reports whether a function is the library's own, which refuses the call: verbs_set_ops (libibverbs/dummy_ops.c) begins with these.
func dummy(p place) bool { return strings.HasPrefix(filepath.Base(p.library), "libibverbs.so") }

// add attaches what follows all processes to a function of a call, all or none, and reports whether there is any.
func (f *Finder) add(call string, p place) (some bool, err error) {
	var attached []*Follower
	for _, w := range f.followers {
		if w.call != call || w.among != nil || w.paused {
			continue
		}
		if err := w.add(p); err != nil {
			for _, o := range attached {
				last := len(o.closers) - 1
				err = errors.Join(err, o.closers[last].Close())
				o.closers = o.closers[:last]
			}
			return false, err
		}
		attached = append(attached, w)
	}
	f.places[call] = append(f.places[call], p)
	return len(attached) > 0, nil
}

// hold opens the file of a place, and replaces its path with one that stays.
func (f *Finder) hold(p *place) error {
	open := f.files[p.file]
	if open == nil {
		var err error
		if open, err = os.Open(p.path); err != nil {
			return err
		}
		f.files[p.file] = open
	}
	p.path = fmt.Sprintf("/proc/self/fd/%d", open.Fd())
	return nil
}

// Close lets go of the files, after the last follower was closed.
func (f *Finder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, open := range f.files {
		errs = append(errs, open.Close())
	}
	clear(f.files)
	return errors.Join(errs...)
}

// endbr64 is the size of the instruction that marks the target of an indirect jump. The kernel has to single-step it, which takes four
// times as long as other first instructions.
const endbr64 = 4

// marked reports whether a function begins with endbr64.
func marked(p place) bool {
	f, err := os.Open(p.path)
	if err != nil {
		return false
	}
	defer f.Close()
	var first [endbr64]byte
	_, err = f.ReadAt(first[:], int64(p.offset))
	return err == nil && first == [endbr64]byte{0xf3, 0x0f, 0x1e, 0xfa}
}

// report passes a text on, once.
func (f *Finder) report(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reportLocked(text)
}

func (f *Finder) reportLocked(text string) {
	if !f.noted[text] {
		f.noted[text] = true
		f.note(text)
	}
}

// NewFinder returns a finder that has not looked yet. note gets what cannot be followed, and why, and the libraries that are found after
// [Finder.LookAll].
func NewFinder(note func(text string)) *Finder {
	return &Finder{
		note: note, identify: fileOf, places: make(map[string][]place), uses: make(map[process]map[string][]place),
		opens: make(map[process][]Open), contexts: make(map[int]*contexts), failed: make(map[process]*failures), objects: make(map[functions]bool), clocks: newClocks(),
		ready: make(map[process]ready), refused: make(map[string]int), noted: make(map[string]bool),
		files: make(map[file]*os.File),
	}
}

// startOf returns when a process began.
func startOf(pid int) (uint64, error) {
	stat, err := proc.ReadStat(pid)
	if err != nil {
		return 0, err
	}
	return stat.Number(proc.StartTime)
}
