package exec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"trace/lang/ir"
	"trace/probes/event"
	"trace/probes/proc"
)

// This file has what a clause without an event reads of the process that runs it: trace itself.

// self returns the function of a word, or nil if there is no such word.
func self(e *ir.Expr) func() any {
	switch e.Fn {
	case "cgroup":
		return func() any { return ownCgroup(e.Type.Enum) }
	case "rand":
		return func() any { return uint64(rand.Uint32()) }
	case "pid", "tid":
		return func() any { return uint64(os.Getpid()) }
	case "ppid":
		return func() any { return uint64(os.Getppid()) }
	case "uid":
		return func() any { return uint64(os.Getuid()) }
	case "gid":
		return func() any { return uint64(os.Getgid()) }
	case "username":
		return func() any { return username(os.Getuid()) }
	case "comm":
		return func() any { return commOf(os.Getpid()) }
	case "pcomm":
		return func() any { return commOf(os.Getppid()) }
	case "leader_comm":
		return func() any { return commOf(os.Getpid()) }
	case "cpu":
		return cpu
	case "numaid":
		return numaNode
	case "jiffies":
		return jiffies
	}
	return nil
}

// ownCgroup returns the id of the cgroup of the process, or nil if it is not known: cgroups(7), the line of version 2.
func ownCgroup(names *event.Enum) any {
	list, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || names == nil {
		return nil
	}
	for line := range strings.Lines(string(list)) {
		if path, is := strings.CutPrefix(strings.TrimSpace(line), "0::"); is {
			if id, known := names.Value(path); known {
				return uint64(id)
			}
		}
	}
	return nil
}

// username returns the name of a user, or nil if it has none.
func username(uid int) any {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return nil
	}
	return u.Username
}

// commOf returns the name of a process, or nil if it is not known.
func commOf(pid int) any {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return nil
	}
	return strings.TrimSuffix(string(name), "\n")
}

// cpu returns the CPU that the process was last on, or nil if it is not known.
func cpu() any {
	stat, err := proc.ReadStat(os.Getpid())
	if err != nil {
		return nil
	}
	n, err := stat.Number(proc.Processor)
	if err != nil {
		return nil
	}
	return n
}

// numaNode returns the NUMA node of the CPU that the process was last on, or nil if it is not known.
func numaNode() any {
	nodes, _ := filepath.Glob(fmt.Sprintf("/sys/devices/system/cpu/cpu%v/node*", cpu())) // the pattern is right
	if len(nodes) == 0 {
		return nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(filepath.Base(nodes[0]), "node"), 10, 32)
	if err != nil {
		return nil
	}
	return n
}

// jiffies returns the kernel's count of its ticks, or nil if it does not show it: print_cpu of kernel/time/timer_list.c.
func jiffies() any {
	list, err := os.ReadFile("/proc/timer_list")
	if err != nil {
		return nil
	}
	_, after, found := strings.Cut(string(list), "\njiffies: ")
	count, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseUint(count, 10, 64)
	if !found || err != nil {
		return nil
	}
	return n
}
