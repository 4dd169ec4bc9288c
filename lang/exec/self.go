package exec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// This file has what a clause without an event reads of the process that runs it: trace itself.

// self returns the function of a word, or nil if there is no such word.
func self(word string) func() any {
	switch word {
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
	case "cpu":
		return cpu
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

// cpu returns the CPU that the process was last on, or nil if it is not known: proc_pid_stat(5), field 39, counted after the name.
func cpu() any {
	const fieldAfterName = 39 - 3
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil
	}
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	if len(fields) <= fieldAfterName {
		return nil
	}
	n, err := strconv.ParseUint(fields[fieldAfterName], 10, 64)
	if err != nil {
		return nil
	}
	return n
}
