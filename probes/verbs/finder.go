//go:build linux

package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A place is a function in a file of a process.
type place struct {
	function
	path string // by which it can be opened while the process lives
	// library is its name in the process.
	library string
}

// same reports whether two places are the same function, under whatever path.
func (p place) same(o place) bool { return p.function == o.function }

// Finder finds the functions, and attaches to each of them, once, what follows it.
type Finder struct {
	note     func(text string)
	identify func(path string) (file, error)

	mu        sync.Mutex
	places    map[string][]place // by call
	uses      map[process]map[string][]place
	followers []*Follower
	known     map[process][]int  // the devices of processes, whose contexts were found
	failed    map[process]int    // how often none was found
	objects   map[functions]bool // of QPs and CQs that are followed
	clocks    clocks
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
	var denied []error // hidepid, or another user namespace
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if err := f.look(pid); errors.Is(err, fs.ErrPermission) {
			denied = append(denied, err)
		} else {
			f.notFollowed(pid, err)
		}
	}
	if len(denied) > 0 {
		f.report(fmt.Sprintf("verbs: %d processes are not followed, like: %v", len(denied), denied[0]))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = true
	return nil
}

// Look looks for contexts of a process. It is cheap if the process has no open device, or none that is new.
func (f *Finder) Look(pid int) { f.notFollowed(pid, f.look(pid)) }

// notFollowed reports why a process is not followed, unless it has ended.
func (f *Finder) notFollowed(pid int, err error) {
	if err != nil && !gone(err) {
		f.report(fmt.Sprintf("verbs: process %d is not followed: %v", pid, err))
	}
}

func (f *Finder) look(pid int) error {
	devices, err := devicesOf(pid)
	if err != nil || len(devices) == 0 {
		return err
	}
	start, err := startOf(pid)
	if err != nil {
		return err
	}
	self := process{pid, start}
	f.mu.Lock()
	devices = slices.DeleteFunc(devices, func(fd int) bool { return slices.Contains(f.known[self], fd) })
	failed := f.failed[self]
	f.mu.Unlock()
	if len(devices) == 0 || failed == mostFailed {
		return nil
	}
	all, err := f.search(self, devices)
	if err == nil && !all {
		err = f.fail(self)
	}
	return err
}

// mostFailed is how often a process is searched without success: each search may read a GiB. A program opens a device, and then makes a few
// objects, before it posts.
const mostFailed = 16

// fail counts a search without success, and returns an error with the last one.
func (f *Finder) fail(self process) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failed) == mostKnown {
		clear(f.failed)
	}
	if f.failed[self]++; f.failed[self] < mostFailed {
		return nil
	}
	return errors.New("no struct ibv_context is in its memory, so it may use the device without libibverbs")
}

// mostKnown bounds what is remembered of processes. What was forgotten is searched again.
const mostKnown = 4096

// search searches for the contexts of some devices, and reports whether it found all. A context may not be complete yet: then a later call
// finds it.
func (f *Finder) search(self process, devices []int) (all bool, err error) {
	regions, err := regionsOf(self.pid)
	if err != nil {
		return false, err
	}
	left := slices.Clone(devices)
	var at []uint64
	found := func(address uint64, context []byte) bool {
		fd := int(int32(binary.NativeEndian.Uint32(context[cmdFD:])))
		if f.found(self, regions, context) {
			at = append(at, address)
			left = slices.DeleteFunc(left, func(o int) bool { return o == fd })
			f.mu.Lock()
			if len(f.known) == mostKnown {
				clear(f.known)
			}
			f.known[self] = append(f.known[self], fd)
			f.mu.Unlock()
		}
		return len(left) == 0
	}
	err = scan(self.pid, regions, contextSize, func(address uint64, memory []byte) bool { return search(address, memory, devices, found) })
	if err == nil && len(at) > 0 && !f.looked() {
		err = scan(self.pid, regions, qpObject.size, func(_ uint64, memory []byte) bool {
			searchObjects(memory, at, func(o object, memory []byte) { f.foundObject(self, regions, o, memory) })
			return false
		})
	}
	return len(left) == 0, err
}

// looked reports whether all processes were looked into: the QPs of later ones are reported when they are changed.
func (f *Finder) looked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// LookQP looks at a QP of a process, and at its CQs: the address of its struct ibv_qp.
func (f *Finder) LookQP(pid int, address uint64) {
	start, err := startOf(pid)
	if err != nil {
		return
	}
	self := process{pid, start}
	head := make([]byte, recvCQ+8)
	if n, err := read(pid, address, head); err != nil || n < len(head) {
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
	if err != nil || !search(0, context, devices, func(uint64, []byte) bool { return true }) {
		return
	}
	regions, err := regionsOf(self.pid)
	if err != nil {
		return
	}
	if f.foundObject(self, regions, o, memory) {
		f.mu.Lock()
		defer f.mu.Unlock()
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

// foundObject attaches the followers to the functions of an object, if all that it has are in one library, and reports whether that is done.
func (f *Finder) foundObject(self process, regions []region, o object, memory []byte) bool {
	first, ok := code(self.pid, regions, binary.NativeEndian.Uint64(memory[o.calls[o.has]:]))
	if !ok {
		return false
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
			return false
		}
	}
	if !f.addAll(self, o.name+" of ", at) {
		return false
	}
	f.timed(self, o, memory)
	return true
}

// found attaches the followers to the functions of a context. It reports whether that is done: memory may look like a context by chance, and
// the process may end meanwhile.
func (f *Finder) found(self process, regions []region, context []byte) bool {
	at := make(map[string]place)
	for call, offset := range calls {
		p, ok := code(self.pid, regions, binary.NativeEndian.Uint64(context[offset:]))
		switch {
		case !ok:
			return false
		case !dummy(p):
			at[call] = p
		case call == "post_send" || call == "poll_cq":
			return false // the provider is about to set its own
		}
	}
	return f.addAll(self, "", at)
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
		if w.call != call || w.among != nil {
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
		known: make(map[process][]int), failed: make(map[process]int), objects: make(map[functions]bool), noted: make(map[string]bool),
		clocks: newClocks(),
	}
}

// startOf returns when a process began: proc_pid_stat(5), field 22, counted after the name.
func startOf(pid int) (uint64, error) {
	const fieldAfterName = 22 - 3
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= fieldAfterName {
		return 0, io.ErrUnexpectedEOF
	}
	return strconv.ParseUint(string(fields[fieldAfterName]), 10, 64)
}
