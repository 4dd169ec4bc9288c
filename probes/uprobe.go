//go:build linux

package probes

import (
	"fmt"
	"io"

	"github.com/cilium/ebpf"

	"trace/probes/kernel"
	"trace/probes/verbs"
)

func (datapath) symbols() []string { return []string{usersFunction} }

func (datapath) accepts(a Arg) error { return acceptsNone(a) }

// variants returns the only variant: a program at the entry of each function, one at its return, or both, as the object has them.
func (d datapath) variants(s *hostHook) []variant {
	v := variant{way: uprobe{}, caps: uprobe{}.needs(s.Kernel, nil), search: s.finder.search}
	for _, w := range []uprobe{{finder: s.finder}, {finder: s.finder, atReturn: true}} {
		for _, call := range d {
			if name := fmt.Sprintf("%s_%s__%s", w, s.hook.name, call); s.object.program(name) != nil {
				v.programs = append(v.programs, program{name: name, way: w, target: call})
			}
		}
	}
	v.check = s.followsUsers(v.caps)
	return []variant{v}
}

// A uprobe calls a program at the entry of a function of a process, or at its return. Its targets are names of functions of libibverbs; the
// finder finds where they are.
type uprobe struct {
	finder   *finder
	atReturn bool
}

func (u uprobe) String() string {
	if u.atReturn {
		return "uretprobe"
	}
	return "uprobe"
}

// needs: CAP_PERFMON does not suffice for uprobes since 6.16 and stable kernels of July 2025 (ba677dbe77af, "perf: Revert to requiring
// CAP_SYS_ADMIN for uprobes"). The memory of processes is read for CAP_SYS_PTRACE, and what files other users' processes have open for
// CAP_DAC_READ_SEARCH.
func (uprobe) needs(*kernel.Kernel, []string) []string {
	return []string{kernel.CapSysAdmin, kernel.CapPtrace, kernel.CapReadSearch}
}

func (uprobe) prepare(*ebpf.ProgramSpec, string) {}

func (u uprobe) attach(prog *ebpf.Program, call string, a Arg) ([]io.Closer, error) {
	var among func(pid int) bool
	if c, ok := a.(*chosen); ok {
		among = c.has
	}
	follower, err := u.finder.follow(call, among, func(path string, offset uint64, to verbs.Reach) (io.Closer, error) {
		return attachUprobe(prog, call, u.atReturn, path, offset, to)
	})
	if err != nil {
		return nil, err
	}
	return []io.Closer{follower}, nil
}

// exclusive: since 6.0 programs of uprobes may be preempted, and others run meanwhile (bpf_prog_run_array_uprobe, include/linux/bpf.h).
func (uprobe) exclusive(*kernel.Kernel) bool { return false }

// preempted: before that nothing preempts them, and since then the kernel skips none.
func (uprobe) preempted(*kernel.Kernel) bool { return false }

// missed: the kernel counts no uprobe that it has skipped. Before 6.0 it skips those that a program of a perf event interrupts; none of ours
// runs in interrupts with them.
func (uprobe) missed(io.Closer) uint64 { return 0 }

// frames: the stack begins in the kernel's handler of the trap.
func (uprobe) frames() int { return 0 }

func (uprobe) readsFtrace() bool { return false }

// traps: it is a breakpoint.
func (uprobe) traps() bool { return true }

// vanishes: the uprobe is at a file, whatever modules do.
func (uprobe) vanishes() bool { return false }
