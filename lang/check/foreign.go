package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"trace/lang/syntax"
	"trace/probes/event"
)

// This file is what to say about words of bpftrace that have another name here, or none.

const (
	listed     = "fields have names, and trace -lv lists them"
	noSymbols  = "the probes at hand have no addresses of code"
	noPointers = "there are no pointers to follow: a field holds the value itself"
	noCommands = "trace observes, and changes nothing"
	noRandom   = "there are no random numbers; nsecs % 100 == 0 holds for about one event of a hundred"
	asserts    = "write if (…) { exit(1) }"
	perUser    = "the user is uid, a number"
)

// foreignWords are the builtin values of bpftrace.
var foreignWords = map[string]string{
	"args":     "fields stand alone, without args",
	"ctx":      listed,
	"curtask":  "the thread is tid, and its process pid",
	"func":     "the event is probe",
	"gid":      perUser,
	"numaid":   "the CPU is cpu",
	"ppid":     "the process is pid",
	"rand":     noRandom,
	"retval":   "what a function returned is ret",
	"username": perUser,
	"walltime": `strftime("%H:%M:%S", nsecs) is the time of day`,
}

// foreignWord says what to write for a word that is no field, or returns "".
func foreignWord(word string) string {
	if field, ok := strings.CutPrefix(word, "args."); ok {
		return fmt.Sprintf("fields stand alone: write %s", field)
	}
	digits, isArg := strings.CutPrefix(word, "arg")
	if isArg && digits != "" && strings.Trim(digits, "0123456789") == "" {
		return listed
	}
	if usage := aggregationUsage(word); usage != "" {
		return "an aggregation has brackets: " + usage
	}
	return foreignWords[word]
}

// NameProbes completes the mistakes of a parser, which knows no probes: for one of bpftrace it says which is there instead.
func NameProbes(err error, catalog []*event.Probe) error {
	var mistakes syntax.ErrorList
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			m.Help = cmp.Or(instead(m.Foreign, catalog), m.Help)
		}
	}
	return err
}

// instead says which probes see what a probe of bpftrace names: a function of the kernel, a tracepoint, or a system call. It returns
// "" if none does.
func instead(foreign string, catalog []*event.Probe) string {
	place := foreign[strings.LastIndexByte(foreign, ':')+1:]
	if call, ok := strings.CutPrefix(place, "sys_enter_"); ok {
		return fmt.Sprintf("write syscall:enter / nr == %s /", call)
	}
	if call, ok := strings.CutPrefix(place, "sys_exit_"); ok {
		return fmt.Sprintf("write syscall:exit / nr == %s /", call)
	}
	var there []*event.Probe
	for _, p := range catalog {
		if place != "" && slices.Contains(p.Sources, place) {
			there = append(there, p)
		}
	}
	if there == nil {
		return ""
	}
	return fmt.Sprintf("to see %s, use %s", place, syntax.Enumerate(there))
}

// foreignFunctions are functions of bpftrace, and some that its users may try.
var foreignFunctions = map[string]string{
	"abs":           "write x < 0 ? -x : x",
	"bswap":         "fields are in the byte order of the machine",
	"buf":           "a field that holds bytes is a value",
	"assert":        asserts,
	"cat":           "no files are read: a program sees events",
	"cgroup_path":   "the field cgroup is printed as its path",
	"cgroupid":      `a path is a string beside a cgroup: cgroup == "/system.slice"`,
	"errorf":        "write printf(…)",
	"fail":          `write printf("…"), and exit(1)`,
	"find":          "has_key(@m, k) asks whether there is a key, and @m[k] is its value",
	"getopt":        "declare a flag of the program, param x = 1, and read it as $x",
	"histogram":     "write @x = hist(x)",
	"kaddr":         noSymbols,
	"kptr":          noPointers,
	"ksym":          noSymbols,
	"macaddr":       "the probes at hand have no such addresses",
	"mean":          "write @x = avg(x)",
	"memcmp":        `strings compare: comm == "fio"`,
	"nsecs":         "nsecs stands without brackets",
	"offsetof":      noPointers,
	"override":      noCommands,
	"path":          "a field that holds a path is a string",
	"percentile":    "write @x = quantile(x, 50, 99)",
	"pton":          `an address is a string beside a GID: sgid == "fe80::1"`,
	"rand":          noRandom,
	"reg":           listed,
	"signal":        noCommands,
	"sizeof":        noPointers,
	"stack_len":     "kstack(5) has at most five frames",
	"static_assert": asserts,
	"str":           "a field that holds a string is one",
	"str_concat":    `write join([a, b], "")`,
	"strcmp":        `strings compare: comm == "fio"`,
	"strcontains":   `write s contains "part"`,
	"strerror":      "error numbers are printed as names",
	"strlen":        "write len(s)",
	"strncmp":       `write s startsWith "part"`,
	"syscall_name":  "nr is printed as the name of the call",
	"strstr":        `write indexOf(s, "part")`,
	"system":        noCommands,
	"tseries":       "write @x = rate() in one clause, and print(@x) in interval:1s",
	"uaddr":         noSymbols,
	"unwatch":       noCommands,
	"uptr":          noPointers,
	"usym":          noSymbols,
	"warnf":         "write printf(…)",
}
