//go:build linux

package verbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// devices is how many were opened.
var devices int

// full is a device that nothing else of a test has open. Tests take it for an RDMA device.
const full = "/dev/full"

// device opens it, and returns its descriptor, which no other test has: what they leave in memory may still look like a context.
func device(t *testing.T) int {
	t.Helper()
	f, err := os.Open(full)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	devices++
	fd := 500 + devices
	if err := unix.Dup3(int(f.Fd()), fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

type closer func()

func (c closer) Close() error { c(); return nil }

// newFinder returns a finder of these devices, for which any code is a function of a provider that is root's, as of this test itself.
func newFinder(note func(text string)) *Finder {
	f := NewFinder(note)
	var stat unix.Stat_t
	if err := unix.Stat(full, &stat); err != nil {
		panic(err)
	}
	f.devices.read = func() map[uint64]string { return map[uint64]string{stat.Rdev: "uverbs0"} }
	f.prover.judge = func(io.ReaderAt) (func(uint64) bool, string, error) {
		return func(uint64) bool { return true }, "", nil
	}
	f.prover.trusts = func(begun, party) bool { return true }
	return f
}

// look looks at what waits now.
func look(f *Finder) {
	for f.turns.turn() {
	}
}

// lookInto looks into a process once, and returns after how long it is looked at again; 0: not.
func lookInto(f *Finder, pid int) (again time.Duration) {
	f.Look(pid)
	look(f)
	for _, t := range f.turns.later {
		if t.of.what == "process" {
			again = t.again
		}
	}
	f.turns.close()
	return again
}

// targetOf returns a process, with its mappings.
func targetOf(t *testing.T, f *Finder, pid int) *target {
	t.Helper()
	self := f.target(pid, nil)
	t.Cleanup(self.close)
	if err := errors.Join(self.identify(), self.mapped()); err != nil {
		t.Fatal(err)
	}
	return self
}

// lookAtQP looks at a QP, now or when it has settled.
func lookAtQP(t *testing.T, f *Finder, memory []byte, number uint32, settled bool) {
	t.Helper()
	f.lookQP(targetOf(t, f, os.Getpid()), uint64(uintptr(unsafe.Pointer(&memory[0]))), number, settled, false)
}

// lookAll looks into all processes.
func lookAll(t *testing.T, f *Finder) {
	t.Helper()
	if err := f.LookAll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// kept is what allocate returned: memory on the stack of a goroutine would move.
var kept [][]byte

// allocate returns memory at a multiple of 8.
func allocate(size int) []byte {
	memory := make([]byte, size+8)
	kept = append(kept, memory)
	return memory[-uintptr(unsafe.Pointer(&memory[0]))&7:][:size]
}

// newContext makes a context in the memory of this process: its functions are at the address.
func newContext(fd int, function uint64) []byte {
	memory := allocate(contextSize())
	binary.NativeEndian.PutUint32(memory[cmdFD:], uint32(fd))
	binary.NativeEndian.PutUint64(memory[abiCompat+mutexes:], ^uint64(0))
	for _, offset := range calls {
		binary.NativeEndian.PutUint64(memory[offset:], function)
	}
	return memory
}

// mutexes is how much larger a mutex is in what tests make.
var mutexes = 0

// Where a mutex has 48 bytes, all is found as elsewhere.
func TestLargeMutex(t *testing.T) {
	usual := shifts
	shifts, mutexes = []int{0, 8}, 8
	t.Cleanup(func() { shifts, mutexes = usual, 0 })
	t.Run("QPs", TestQPs)
	t.Run("CQs", TestCQs)
}

// attachments counts what is attached, by process, file and offset.
type attachments struct {
	mu   sync.Mutex
	open map[string]int
	fail bool
}

func (a *attachments) attach(path string, offset uint64, to Reach) (io.Closer, error) {
	if a.fail {
		return nil, errors.New("refused")
	}
	at := fmt.Sprintf("%d %s+%x", to.PID, filepath.Base(path), offset)
	if to.Whose != Everyones {
		at += fmt.Sprintf(" of %s user %d", map[Whose]string{OneUsers: "the", Others: "not the"}[to.Whose], to.User)
	}
	a.add(at, 1)
	return closer(func() { a.add(at, -1) }), nil
}

func (a *attachments) add(at string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[at] += n
}

func (a *attachments) number() (n int) {
	for _, open := range a.open {
		n += open
	}
	return n
}

// follow makes something follow a call until the test ends.
func follow(t *testing.T, f *Finder, call string) {
	t.Helper()
	w, err := f.Follow(call, nil, (&attachments{open: make(map[string]int)}).attach)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
}

// A context is found in the memory of a process that has a device open. What follows its calls is attached once to each function, whenever it
// began to follow, and detached at the end.
func TestFinder(t *testing.T) {
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	a := &attachments{open: make(map[string]int)}
	early, err := f.Follow("post_send", nil, a.attach)
	if err != nil {
		t.Fatal(err)
	}
	fd := device(t)
	lookInto(f, os.Getpid())
	if a.number() != 0 {
		t.Errorf("without a context %v is attached", a.open)
	}
	lookAll(t, f)
	function := uint64(reflect.ValueOf(TestFinder).Pointer())
	memory := newContext(fd, function)
	for range 2 {
		lookInto(f, os.Getpid())
	}
	if a.number() != 1 {
		t.Errorf("%v is attached, want one function", a.open)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprintf("verbs: process %d is not followed: no struct ibv_context is in its memory, so it may use the device without libibverbs", os.Getpid()),
		fmt.Sprintf("verbs: %s is followed from now on, as process %d uses it", self, os.Getpid())}
	if !slices.Equal(notes, want) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
	late, err := f.Follow("post_send", nil, a.attach)
	if err != nil {
		t.Fatal(err)
	}
	if a.number() != 2 {
		t.Errorf("after another one follows, %v is attached", a.open)
	}
	for _, w := range []*Follower{early, late} {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if a.number() != 0 {
		t.Errorf("at the end %v is attached", a.open)
	}
	_ = memory[0]
}

// A follower that pauses is detached. What is found meanwhile is attached when it goes on, even if the process by which it was found has ended.
func TestPause(t *testing.T) {
	f := newFinder(func(string) {})
	a := &attachments{open: make(map[string]int)}
	w, err := f.Follow("post_send", nil, a.attach)
	if err != nil {
		t.Fatal(err)
	}
	function := uint64(reflect.ValueOf(TestPause).Pointer())
	memory := newContext(device(t), function)
	lookInto(f, os.Getpid())
	var paths []string
	for _, p := range f.places["post_send"] {
		paths = append(paths, p.path)
	}
	if want := fmt.Sprintf("/proc/self/fd/%d", f.places["post_send"][0].library.file.Fd()); !slices.Equal(paths, []string{want}) {
		t.Errorf("the paths are %q, want %q", paths, want)
	}
	if err := w.Pause(); err != nil || a.number() != 0 {
		t.Errorf("after a pause %v is attached: %v", a.open, err)
	}
	later := newContext(device(t), function+64)
	if lookInto(f, os.Getpid()); a.number() != 0 {
		t.Errorf("in the pause %v is attached", a.open)
	}
	if err := w.Resume(); err != nil || a.number() != 2 {
		t.Errorf("after the pause %v is attached: %v", a.open, err)
	}
	if err := errors.Join(w.Pause(), w.Resume()); err != nil || a.number() != 2 {
		t.Errorf("after another one %v is attached: %v", a.open, err)
	}
	a.fail = true
	if err := errors.Join(w.Pause(), w.Resume()); err == nil || err.Error() != "refused\nrefused" {
		t.Errorf("an error of each place: %v", err)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil || a.number() != 0 || len(f.prover.libraries) != 0 {
		t.Errorf("at the end %v is attached: %v", a.open, err)
	}
	_, _ = memory[0], later[0]
}

// What cannot be attached is reported once, and tried again with the next process.
func TestFinderRefused(t *testing.T) {
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	a := &attachments{open: make(map[string]int), fail: true}
	w, err := f.Follow("poll_cq", nil, a.attach)
	if err != nil {
		t.Fatal(err)
	}
	memory := newContext(device(t), uint64(reflect.ValueOf(TestFinder).Pointer()))
	for range 2 {
		lookInto(f, os.Getpid())
	}
	if want := fmt.Sprintf("verbs: poll_cq of process %d is not followed: refused", os.Getpid()); !slices.Equal(notes, []string{want}) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
	a.fail = false
	if lookInto(f, os.Getpid()); a.number() != 1 {
		t.Errorf("then %v is attached", a.open)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	_ = memory[0]
}

// Memory that looks like a context by chance is none: its functions are not in a file, its descriptor is not of a device, or it was linked
// with a library from before 2008.
func TestNoContext(t *testing.T) {
	fd := device(t)
	function := uint64(reflect.ValueOf(TestFinder).Pointer())
	old := newContext(fd, function)
	binary.NativeEndian.PutUint64(old[abiCompat:], 0x1000)
	for name, memory := range map[string][]byte{"data": newContext(fd, uint64(uintptr(unsafe.Pointer(&old[0])))), "closed": newContext(1<<20, function), "old": old} {
		f := newFinder(func(text string) { t.Errorf("%s: %s", name, text) })
		self := targetOf(t, f, os.Getpid())
		seen := search(0, memory, []int{fd}, func(_ uint64, context []byte) bool {
			functions, _ := f.found(self, context)
			return functions != nil
		})
		if seen || len(f.places) != 0 {
			t.Errorf("%s: %v is taken for a context", name, f.places)
		}
	}
}

// While a device is being opened its context has the library's own functions. Then it is looked at again. A provider may leave some.
func TestDummies(t *testing.T) {
	fd := device(t)
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	follow(t, f, "poll_cq")
	f.begun = true
	self := targetOf(t, f, os.Getpid())
	self.opened[0x3000] = provider{library: &library{file: os.Stdin, begins: func(uint64) bool { return true }}, shared: true}
	self.regions = []proc.Mapping{
		{Start: 0x1000, End: 0x2000, Perms: "r-xp", Inode: 1, Path: "/usr/lib/libibverbs.so.1.14.44.0"},
		{Start: 0x3000, End: 0x4000, Perms: "r-xp", Inode: 2, Path: "/usr/lib/librxe.so"},
	}
	memory := newContext(fd, 0x1000)
	if functions, err := f.found(self, memory); functions != nil || err != nil || len(f.places) != 0 {
		t.Errorf("%v is taken for the provider's", f.places)
	}
	for _, call := range []string{"post_send", "poll_cq", "post_recv"} {
		binary.NativeEndian.PutUint64(memory[calls[call]:], 0x3000)
	}
	if functions, err := f.found(self, memory); functions == nil || err != nil || len(f.places) != 3 || f.places["post_srq_recv"] != nil {
		t.Errorf("%v is found, want three functions of librxe.so", f.places)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], " /usr/lib/librxe.so ") {
		t.Errorf("it reports %q", notes)
	}
}

// qp makes a QP in the memory of this process: its context, and its functions.
func qp(context []byte, functions map[string]uint64) []byte {
	memory := allocate(qpObject.size + mutexes)
	binary.NativeEndian.PutUint64(memory, uint64(uintptr(unsafe.Pointer(&context[0]))))
	for call, function := range functions {
		binary.NativeEndian.PutUint64(memory[qpCalls[call]+mutexes:], function)
	}
	return memory
}

// A QP that cannot be read is looked at a few times again: on a busy machine a read may be given up.
func TestQPIsTriedAgain(t *testing.T) {
	function := uint64(reflect.ValueOf(TestQPIsTriedAgain).Pointer())
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	c := newContext(device(t), function)
	copy(page, qp(c, map[string]uint64{wrStart: function}))
	f := newFinder(nil)
	turns := func(goOn func() bool) {
		for next, more := f.Turn(); more && goOn(); next, more = f.Turn() {
			time.Sleep(time.Until(next))
		}
	}
	if err := unix.Mprotect(page, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	f.LookQP(os.Getpid(), addressIn(page, 0), 0)
	began := time.Now()
	turns(func() bool { return time.Since(began) < settled*3/2 }) // both looks have come
	if f.places[wrStart] != nil {
		t.Fatal("it was read")
	}
	if err := unix.Mprotect(page, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	turns(func() bool { return true })
	if len(f.places[wrStart]) != 1 {
		t.Errorf("it follows %v", f.places)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("looking ends after %v", took)
	}
	clear(c)
}

// The functions of ibv_wr_* are found in a QP that was there before, and in one that is changed later. A QP without them, memory with other
// pointers, and a QP without a context are left alone.
func TestQPs(t *testing.T) {
	function := uint64(reflect.ValueOf(TestQPs).Pointer())
	has := map[string]uint64{wrStart: function, "wr_send": function + 64, "wr_complete": function + 128}
	c := newContext(device(t), function)
	there := qp(c, has)
	binary.NativeEndian.PutUint32(there[qpCalls["wr_flush"]+mutexes:], 1) // of another field
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	follow(t, f, "wr_send")
	lookAll(t, f)
	if len(f.places["wr_send"]) != 1 || len(f.places["wr_complete"]) != 1 || f.places["wr_flush"] != nil {
		t.Errorf("%v is found", f.places)
	}
	has["wr_send"] += 64
	for name, memory := range map[string][]byte{
		"old":   qp(c, nil),
		"other": qp(c, map[string]uint64{wrStart: function, "wr_send": uint64(uintptr(unsafe.Pointer(&c[0])))}),
		"none":  qp(allocate(contextSize()), has),
	} {
		if lookAtQP(t, f, memory, 0, false); len(f.places["wr_send"]) != 1 {
			t.Errorf("%s: %v is found", name, f.places)
		}
	}
	later := qp(c, has)
	for range 2 {
		lookAtQP(t, f, later, 0, false)
	}
	if len(f.places["wr_send"]) != 2 || len(f.places["wr_complete"]) != 1 {
		t.Errorf("after another QP %v is found", f.places)
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "verbs: ibv_wr_* of ") {
		t.Errorf("it reports %q", notes)
	}
	f.lookQP(targetOf(t, f, os.Getpid()), 8, 0, false, false)
	_ = there[0]
}

// withCQ makes a QP whose CQ for sends has these functions.
func withCQ(context []byte, functions map[string]uint64) (qp []byte) {
	cq := allocate(cqObject.size + mutexes)
	binary.NativeEndian.PutUint64(cq, uint64(uintptr(unsafe.Pointer(&context[0]))))
	for call, function := range functions {
		binary.NativeEndian.PutUint64(cq[cqCalls[call]+mutexes:], function)
	}
	qp = allocate(qpObject.size + mutexes)
	binary.NativeEndian.PutUint64(qp, uint64(uintptr(unsafe.Pointer(&context[0]))))
	binary.NativeEndian.PutUint64(qp[sendCQ:], uint64(uintptr(unsafe.Pointer(&cq[0]))))
	return qp
}

// The functions of an extended CQ are found in one that was there before, and by a QP that is changed later. A CQ without them, and memory with
// other pointers, are left alone.
func TestCQs(t *testing.T) {
	function := uint64(reflect.ValueOf(TestCQs).Pointer())
	has := map[string]uint64{startPoll: function, "next_poll": function + 64, "end_poll": function + 128}
	c := newContext(device(t), function)
	withCQ(c, has)
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	follow(t, f, "read_opcode")
	lookAll(t, f)
	if len(f.places[startPoll]) != 1 || len(f.places["end_poll"]) != 1 || f.places["read_opcode"] != nil {
		t.Errorf("%v is found", f.places)
	}
	for name, functions := range map[string]map[string]uint64{
		"old": nil, "other": {startPoll: function + 192, "next_poll": uint64(uintptr(unsafe.Pointer(&c[0])))},
	} {
		qp := withCQ(c, functions)
		if lookAtQP(t, f, qp, 0, false); len(f.places[startPoll]) != 1 {
			t.Errorf("%s: %v is found", name, f.places)
		}
	}
	has["read_opcode"] = function + 256
	qp := withCQ(c, has)
	for range 2 {
		lookAtQP(t, f, qp, 0, false)
	}
	if len(f.places[startPoll]) != 1 || len(f.places["read_opcode"]) != 1 {
		t.Errorf("after another CQ %v is found", f.places)
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "verbs: ibv_start_poll of ") {
		t.Errorf("it reports %q", notes)
	}
}

// The frequency of a device is asked for once, if somebody wants it, and only where a CQ has timestamps. Who comes later gets it, too. What cannot
// be asked or kept is reported.
func TestClocks(t *testing.T) {
	function := uint64(reflect.ValueOf(TestClocks).Pointer())
	has := map[string]uint64{startPoll: function, "next_poll": function + 64, "end_poll": function + 128}
	fd := device(t)
	c := newContext(fd, function)
	at := uint64(uintptr(unsafe.Pointer(&c[0])))
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	f.begun = true
	asked := 0
	refused := errors.New("refused")
	f.clocks.ask = func(pid, of int) (uint64, error) {
		if asked++; pid != os.Getpid() || of != fd {
			t.Errorf("process %d is asked for device %d", pid, of)
		}
		return 156250, refused
	}
	put := make(map[uint64]uint64)
	keep := func(pid int, context, kilohertz uint64) error {
		if pid != os.Getpid() {
			t.Errorf("it is the clock of process %d", pid)
		}
		put[context] += kilohertz
		return nil
	}
	look := func() {
		qp := withCQ(c, has)
		lookAtQP(t, f, qp, 0, false)
	}
	follow := func(put PutClock) io.Closer {
		w, err := f.FollowClocks(put)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := follow(keep)
	look()
	has[readTicks] = function + 192
	if asked != 0 {
		t.Error("without timestamps a device is asked")
	}
	look()
	look()
	if asked != 1 || len(put) != 0 {
		t.Errorf("it is asked %d times, and %v is known", asked, put)
	}
	refused = nil
	second := follow(keep)
	third := follow(func(int, uint64, uint64) error { return errors.New("full") })
	look()
	if asked != 2 || len(put) != 1 || put[at] != 156250 {
		t.Errorf("it is asked %d times, and %v is known", asked, put)
	}
	const absent = "verbs: hw_time of process %d is absent where it reads ticks: "
	if want := []string{fmt.Sprintf(absent+"ask its device for their frequency: refused", os.Getpid()), fmt.Sprintf(absent+"keep the frequency: full", os.Getpid())}; len(notes) < 2 || !slices.Equal(notes[len(notes)-2:], want) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
	for _, w := range []io.Closer{first, second, third} {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(f.clocks.followers) != 0 {
		t.Errorf("%d followers are left", len(f.clocks.followers))
	}
}

// A file that is no device has no clock, and is not asked.
func TestFrequency(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "uverbs0"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	finder := newFinder(nil)
	for _, test := range []struct {
		pid, fd int
		want    string
	}{
		{os.Getpid(), device(t), "QUERY_DEVICE: inappropriate ioctl for device"},
		{os.Getpid(), int(f.Fd()), "is no device"},
		{os.Getpid(), 1 << 20, "is no device"},
		{1 << 30, 0, "no such file"},
	} {
		if _, err := finder.clocks.ask(test.pid, test.fd); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("descriptor %d of %d: %v, want %q", test.fd, test.pid, err, test.want)
		}
	}
}

// The look into all processes ends when its caller does.
func TestLookAllIsCancelled(t *testing.T) {
	f := newFinder(nil)
	ctx, cancel := context.WithCancel(t.Context())
	f.turns.add(&task{of: subject{pid: 1, what: "endless"}, user: 0, first: true, do: func(by *task) time.Duration {
		cancel()
		for f.turns.spend(by, turnBytes) == nil {
		}
		return 0
	}}, true)
	if err := f.LookAll(ctx); !errors.Is(err, context.Canceled) || f.Read() > 16*turnBytes {
		t.Errorf("%v after %d bytes", err, f.Read())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A process without a context is searched some times, and then reported.
func TestNoContextAtAll(t *testing.T) {
	device(t)
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	for i, want := range []time.Duration{settled, opening} {
		if again := lookInto(f, os.Getpid()); again != want || notes != nil {
			t.Fatalf("search %d is repeated after %v, and reports %q", i+1, again, notes)
		}
	}
	for _, failed := range f.failed {
		failed.since = failed.since.Add(-opening)
	}
	for range mostFailed {
		if again := lookInto(f, os.Getpid()); again != 0 {
			t.Errorf("it is repeated after %v", again)
		}
	}
	if want := fmt.Sprintf("verbs: process %d is not followed: no struct ibv_context is in its memory, so it may use the device without libibverbs", os.Getpid()); !slices.Equal(notes, []string{want}) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
	if got := f.Refused(); got != "verbs: refused: 1 devices without a context" {
		t.Errorf("%q", got)
	}
}

// Processes that may not be looked into are reported together at the start, and each for itself later.
func TestDenied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user for a moment")
	}
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	const nobody = 65534
	if err := syscall.Setresuid(0, nobody, 0); err != nil { // of all threads
		t.Fatal(err)
	}
	err := f.LookAll(t.Context())
	lookInto(f, 1)
	if back := errors.Join(syscall.Setresuid(0, 0, 0), unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)); err != nil || back != nil {
		t.Fatal(err, back)
	}
	if denied := f.Denied(); !regexp.MustCompile(`^\d+ processes are not followed, like: open /proc/\d+/fd: permission denied$`).MatchString(denied) {
		t.Errorf("denied: %q", denied)
	}
	if want := "verbs: process 1 is not followed: open /proc/1/fd: permission denied"; !slices.Equal(notes, []string{want}) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
}

// A context may be anywhere in a piece of memory, at a multiple of 8.
func FuzzSearch(f *testing.F) {
	f.Add(newContext(3, 0x1000), 0)
	f.Add([]byte(strings.Repeat("\xff", 4096)), 8)
	f.Fuzz(func(t *testing.T, memory []byte, at int) {
		at = max(0, at%4096) &^ 7
		memory = append(make([]byte, at), memory...)
		search(0x1000, memory, []int{3, -1}, func(at uint64, context []byte) bool {
			if len(context) != contextSize() || !bytes.Equal(context, memory[at-0x1000:][:contextSize()]) {
				t.Errorf("a context of %d bytes at %#x", len(context), at)
			}
			return false
		})
		searchObjects(memory, []object{qpObject, cqObject.shifted(8)}, []uint64{0x1000, ^uint64(0)}, func(o object, memory []byte) {
			if len(memory) != o.size {
				t.Errorf("%d bytes for %s", len(memory), o.name)
			}
		})
	})
}
