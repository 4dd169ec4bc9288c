//go:build linux

package probes

import (
	"errors"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"trace/probes/proc"
	"trace/probes/verbs"
)

// traced is what the uprobes of the tests are at. A function that checks its stack begins anew after the check, at the uprobe:
// when the stack grows, and when the scheduler wants the goroutine to stop.
//
//go:noinline
//go:nosplit
func traced(n *int) { *n++ }

// tracedAt returns where that is in the file of this test.
func tracedAt(t *testing.T) (path string, offset uint64) {
	t.Helper()
	address := uint64(reflect.ValueOf(traced).Pointer())
	regions, err := proc.Mappings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(regions, func(r proc.Mapping) bool { return r.Start <= address && address < r.End })
	return "/proc/self/exe", address - regions[i].Start + regions[i].Offset
}

// A runCounter counts its runs. It calls itself until there were so many in a row.
type runCounter struct {
	program *ebpf.Program
	runs    *ebpf.Map // in all, and in a row
	itself  *ebpf.Map
}

func newRunCounter(t *testing.T, inRow int32) *runCounter {
	t.Helper()
	runs, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	itself, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, runs.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, 8, asm.DWord),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R0, 8, asm.R2, asm.DWord),
		asm.JGE.Imm(asm.R2, inRow, "last"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, itself.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
		asm.Mov.Imm(asm.R1, 0).WithSymbol("last"),
		asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
		asm.Ja.Label("end"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := itself.Put(uint32(0), program); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close(); runs.Close(); itself.Close() })
	return &runCounter{program, runs, itself}
}

func (c *runCounter) count(t *testing.T) uint64 {
	t.Helper()
	var n [2]uint64
	if err := c.runs.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n[0]
}

// callAs calls the function in a thread of a user.
func callAs(t *testing.T, user, times int) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends as that user
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), ^uintptr(0), ^uintptr(0)); errno != 0 {
			done <- errno
			return
		}
		n := 0
		for range times {
			traced(&n)
		}
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// What is attached for one user sees the calls of that user's processes alone, and what is attached for the others all but these. What is attached for a process sees no other.
func TestReach(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user in a thread")
	}
	const user, calls = 65534, 10
	path, offset := tracedAt(t)
	c := newRunCounter(t, 1)
	attach := func(to verbs.Reach) io.Closer {
		a, err := attachUprobe(c.program, "traced", false, path, offset, to)
		if errors.Is(err, os.ErrPermission) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	expect := func(what string, want uint64) {
		t.Helper()
		before := c.count(t)
		callAs(t, 0, calls)
		callAs(t, user, 2*calls)
		if got := c.count(t) - before; got != want {
			t.Errorf("%s: %d calls are seen, want %d", what, got, want)
		}
	}
	a := attach(verbs.Reach{})
	expect("all", 3*calls)
	a.Close()
	a = attach(verbs.Reach{PID: os.Getpid()})
	expect("this process", 3*calls)
	a.Close()
	a = attach(verbs.Reach{PID: os.Getppid()})
	expect("another process", 0)
	a.Close()
	a = attach(verbs.Reach{Whose: verbs.OneUsers, User: user})
	expect("one user", 2*calls)
	others := attach(verbs.Reach{Whose: verbs.Others, User: user})
	expect("one user, and the others", 3*calls)
	a.Close()
	expect("the others", calls)
	others.Close()
	expect("detached", 0)
}

// A chain of requests that is as long as the programs allow (MOST, bpf/verbs.bpf.c), with the call at its end, is seen for one user, too.
func TestReachLeavesCalls(t *testing.T) {
	const most = 32 + 1
	c := newRunCounter(t, most)
	path, offset := tracedAt(t)
	a, err := attachUprobe(c.program, "traced", false, path, offset, verbs.Reach{Whose: verbs.OneUsers, User: uint32(os.Getuid())})
	if errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	n := 0
	traced(&n)
	if got := c.count(t); got != most {
		t.Errorf("the program ran %d times in a row, want %d", got, most)
	}
}

// At a return the program decides, as the kernel does not.
func TestReachAtReturn(t *testing.T) {
	c := newRunCounter(t, 1)
	for pid, want := range map[int]uint64{os.Getpid(): 1, os.Getppid(): 0} {
		only, err := newRestricted(c.program, whose(verbs.Reach{PID: pid}, true))
		if err != nil {
			t.Fatal(err)
		}
		path, offset := tracedAt(t)
		a, err := attachUprobe(only.program, "traced", false, path, offset, verbs.Reach{}) // Go's functions cannot have one at their return
		if errors.Is(err, os.ErrPermission) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		before, n := c.count(t), 0
		traced(&n)
		if got := c.count(t) - before; got != want {
			t.Errorf("process %d: %d runs, want %d", pid, got, want)
		}
		if err := errors.Join(a.Close(), only.Close()); err != nil {
			t.Error(err)
		}
	}
}
