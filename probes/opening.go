//go:build linux

package probes

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"trace/probes/kernel"
	"trace/probes/proc"
	"trace/probes/verbs"
)

func (openings) symbols() []string { return []string{usersFunction} }

func (openings) accepts(a Arg) error { return acceptsNone(a) }

// variants returns the only variant: a program that Go runs with each event.
func (openings) variants(s *hostHook) []variant {
	w := opening{finder: s.finder}
	v := variant{way: w, programs: []program{{name: w.String() + "_" + s.hook.name, way: w, target: s.hook.name}}, caps: w.needs(s.Kernel, nil), search: s.finder.search}
	v.check = s.followsUsers(v.caps)
	return []variant{v}
}

// followsUsers returns a check whether the processes that use RDMA devices can be followed.
func (s *hostHook) followsUsers(caps []string) func() error {
	return func() error {
		if err := s.Permits(caps); err != nil {
			return err
		}
		there, err := s.HasFunction(s.module(), usersFunction)
		if err == nil && !there {
			err = fmt.Errorf("function %s does not exist", usersFunction)
		}
		if err != nil {
			return s.module().Explain(err)
		}
		return s.HasKprobes() // it is followed by one
	}
}

// An opening is a program that Go runs when a process opens a device, and with those that are open.
type opening struct{ finder *finder }

// String begins the names of its programs: they have no other place in the kernel, and are loaded like programs of raw tracepoints.
func (opening) String() string { return "raw_tp" }

// needs: the memory and the files of processes are read, as for a uprobe, but nothing is attached to their code.
func (opening) needs(*kernel.Kernel, []string) []string {
	return append(kernel.PerfCaps(), kernel.CapPtrace, kernel.CapReadSearch)
}

func (opening) prepare(*ebpf.ProgramSpec, string) {}

func (w opening) attach(prog *ebpf.Program, hook string, _ Arg) ([]io.Closer, error) {
	run := &opener{maker{prog, w.finder.events[hook], w.finder.note}, w.finder}
	listener, err := w.finder.listen(run.opened, func() { run.lost(countUnseen) })
	if err != nil {
		return nil, err
	}
	return []io.Closer{listener}, nil
}

// exclusive: Go runs one at a time, and the kernel does not preempt the task meanwhile (bpf_prog_test_run_raw_tp, net/bpf/test_run.c).
func (opening) exclusive(*kernel.Kernel) bool { return true }

func (opening) preempted(*kernel.Kernel) bool { return false }

func (opening) missed(io.Closer) uint64 { return 0 }

func (opening) frames() int { return 0 }

func (opening) readsFtrace() bool { return false }

func (opening) vanishes() bool { return false }

func (opening) traps() bool { return false }

// An opener makes the events.
type opener struct {
	maker
	finder *finder
}

// interfaces are enum verbs_interface of bpf/verbs_open.h.
const (
	interfaceOld  = 1
	interfaceWR   = 2
	interfaceCQEx = 4
)

func (r *opener) opened(o verbs.Open, before bool) {
	f := r.event()
	f.process(o.PID, r.finder.cgroups)
	f.text("dev", o.Device)
	f.text("provider", o.Provider)
	f.text("library", o.Library)
	f.text("build_id", o.BuildID)
	interfaces := uint64(0)
	if o.Context != nil {
		interfaces |= interfaceOld
	}
	if o.QPs != nil {
		interfaces |= interfaceWR
	}
	if o.CQs != nil {
		interfaces |= interfaceCQEx
	}
	if interfaces != 0 {
		f.number("interfaces", interfaces)
	}
	if before {
		f.number("seeded", 1)
	}
	r.deliver(f)
}

// process sets the common fields of a process, as far as they are known.
func (f filled) process(pid int, cgroups *kernel.Cgroups) {
	f.number("pid", uint64(pid))
	f.text("comm", readLine(pid, "comm"))
	status := proc.Status(pid)
	f.status(status, "uid", "Uid")
	f.status(status, "pgid", "NSpgid")
	if f.status(status, "ppid", "PPid") {
		parent, _ := strconv.Atoi(status["PPid"][0])
		f.text("pcomm", readLine(parent, "comm"))
	}
	var namespace uint64
	if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil {
		if _, err := fmt.Sscanf(link, "pid:[%d]", &namespace); err == nil {
			f.number("pidns", namespace)
		}
	}
	if id, ok := cgroups.ID(cgroupOf(pid, cgroups)); ok {
		f.number("cgroup", id)
	}
}

// status sets a field from the first number of a line of /proc/PID/status.
func (f filled) status(status map[string][]string, field, line string) bool {
	if len(status[line]) == 0 {
		return false
	}
	n, err := strconv.ParseUint(status[line][0], 10, 32)
	if err != nil {
		return false
	}
	f.number(field, n)
	return true
}

// readLine reads a file of a process that has one line, "" if it cannot be read.
func readLine(pid int, file string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// cgroupOf returns the path of the cgroup of a process in the tree of this host, "" if it is unknown: proc_pid_cgroup(5).
func cgroupOf(pid int, cgroups *kernel.Cgroups) string {
	_, controller, _ := cgroups.Mount()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 && slices.Contains(strings.Split(fields[1], ","), controller) {
			return fields[2]
		}
	}
	return ""
}
