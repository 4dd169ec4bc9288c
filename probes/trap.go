//go:build linux

package probes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// A TrapCost is what a uprobe with an empty program adds to a call of a function on this machine.
type TrapCost struct {
	Name string        `json:"name"`
	Cost time.Duration `json:"ns"`
}

// Traps measures what uprobes cost here, in less than a second: at a function's entry, at its entry and its return, and at an entry whose first
// instruction the kernel does not emulate but single-steps.
func (h *Host) Traps() ([]TrapCost, error) {
	if err := h.kernel.Permits(uprobe{}.needs(h.kernel, nil)); err != nil {
		return nil, err
	}
	_ = rlimit.RemoveMemlock() // see newSet
	nothing, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "nothing", Type: ebpf.Kprobe, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return nil, explain(err)
	}
	defer nothing.Close()
	var all []TrapCost
	for _, m := range []struct {
		name     string
		code     trapped
		atReturn bool
	}{{"entry", emulated, false}, {"entry and return", emulated, true}, {"entry, single-stepped", stepped, false}} {
		cost, err := m.code.cost(nothing, m.atReturn)
		if err != nil {
			return nil, err
		}
		all = append(all, TrapCost{m.name, cost})
	}
	return all, nil
}

// cost measures the calls with a program and without it.
func (t trapped) cost(program *ebpf.Program, atReturn bool) (_ time.Duration, err error) {
	f, err := t.file()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	code, err := unix.Mmap(int(f.Fd()), 0, elfHead+len(t.code), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(code)
	address := uintptr(unsafe.Pointer(&code[elfHead]))
	entry := &address // what a func is: a pointer to where its address is
	calls := *(*func())(unsafe.Pointer(&entry))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	without := shortest(calls)
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	file, err := link.OpenExecutable(path)
	if err != nil {
		return 0, err
	}
	var links []io.Closer
	defer func() { err = errors.Join(err, closeAll(links)) }()
	options := &link.UprobeOptions{Address: elfHead + t.function, PID: os.Getpid()}
	entered, err := file.Uprobe("trapped", program, options)
	if err != nil {
		return 0, explain(err)
	}
	links = append(links, entered)
	if atReturn {
		returned, err := file.Uretprobe("trapped", program, options)
		if err != nil {
			return 0, explain(err)
		}
		links = append(links, returned)
	}
	return max(0, shortest(calls)-without) / trappedCalls, nil
}

// shortest is how long it takes when nothing disturbs it: the first runs bring code and stack into the caches, and a busy machine interrupts some.
func shortest(calls func()) (least time.Duration) {
	for range 50 {
		began := time.Now()
		calls()
		if took := time.Since(began); least == 0 || took < least {
			least = took
		}
	}
	return least
}
