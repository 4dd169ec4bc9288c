package check

import (
	"trace/lang/agg"
	"trace/lang/ir"
)

// builtins are the values that are not fields.
var builtins = []string{
	"cpid", "elapsed", "gid", "has_cpid", "jiffies", "kstack", "leader_comm", "ncpus", "numaid", "probe", "probetype", "rand", "recorded", "usermode", "username", "ustack",
}

// aggregationNames returns the names of the aggregations in alphabetical order.
func aggregationNames() []string {
	var names []string
	for _, how := range agg.All() {
		names = append(names, how.Name)
	}
	return names
}

// aggregationUsage returns how to write an aggregation, or "" if there is no such aggregation.
func aggregationUsage(name string) string {
	how, _ := agg.Lookup(name)
	return how.Usage
}

func isStack(word string) bool { return word == "kstack" || word == "ustack" }

// getopt declares a flag of the program.
const getopt = "getopt"

// Functions that are statements, and functions with a value that have no signature.
var (
	statements = []string{"assert", "cat", "clear", "errorf", "exit", "fail", "print", "printf", ir.ToProcess, ir.ToThread, "static_assert", "system", "time", "warnf", "zero"}
	special    = []string{"bswap", "cgroup_path", "cgroupid", "delete", "find", getopt, "has_key", "kaddr", "ksym", "len", "pton", "sizeof", "str", "strcap", "syscall_name", "usym"}
)
