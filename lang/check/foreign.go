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

// This file holds the advice for words of bpftrace that have another name here, or no counterpart.

const (
	listed     = "fields have names: see trace -lv"
	noSymbols  = "no probe has addresses of code"
	noPointers = "there are no pointers to follow: a field holds the value itself"
	noCommands = "trace observes and changes nothing"
	perUser    = "the user is uid, a number"
)

// foreignWords maps the builtin variables of bpftrace to advice.
var foreignWords = map[string]string{
	"args":        "write args.name for a field, or its name alone",
	"ctx":         listed,
	"curtask":     "the thread is tid, and its process pid",
	"func":        "the event is probe",
	"gid":         "the group is known in live events of the current task alone; the user is uid",
	"jiffies":     "a recording has the time as nsecs",
	"leader_comm": "a recording has the name of the thread as comm",
	"ncpus":       "a recording does not say how many CPUs there were",
	"numaid":      "a recording has the CPU as cpu",
	"usermode":    "a sample that meets a process has no kstack: kstack == nil",
	"username":    perUser,
	"walltime":    `strftime("%H:%M:%S", nsecs) is the time of day`,
}

// foreignWord returns advice for a word that is not a field, or "".
func foreignWord(word string) string {
	digits, isArg := strings.CutPrefix(word, "arg")
	if isArg && digits != "" && strings.Trim(digits, "0123456789") == "" {
		return listed
	}
	if usage := aggregationUsage(word); usage != "" {
		return "call the aggregation: " + usage
	}
	return foreignWords[word]
}

// NameProbes completes the mistakes that a parser found. The parser knows no probes; NameProbes adds which probes to use instead of
// a probe of bpftrace.
func NameProbes(err error, catalog []*event.Probe) error {
	var mistakes syntax.ErrorList
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			m.Help = cmp.Or(instead(m.Foreign, catalog), m.Help)
		}
	}
	return err
}

// instead returns advice on the probes that see what a probe of bpftrace names: a kernel function, a tracepoint or a system call.
// It returns "" if no probe does.
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
		if place != "" && slices.Contains(p.Targets, place) {
			there = append(there, p)
		}
	}
	if there == nil {
		return ""
	}
	return fmt.Sprintf("to see %s, use %s", place, syntax.Enumerate(there))
}

// foreignFunctions maps functions of bpftrace, and some others that its users may try, to advice.
var foreignFunctions = map[string]string{
	"abs":           "write x < 0 ? -x : x",
	"container_of":  noPointers,
	"histogram":     "write @x = hist(x)",
	"kptr":          noPointers,
	"mean":          "write @x = avg(x)",
	"offsetof":      noPointers,
	"override":      noCommands,
	"path":          "use the field itself: it holds the path",
	"percentile":    "write @x = quantile(x, 50, 99)",
	"percpu_kaddr":  noPointers,
	"reg":           listed,
	"skboutput":     noCommands,
	"socket_cookie": noPointers,
	"stack_len":     "limit the frames instead: kstack(5)",
	"strcmp":        `compare with ==: comm == "fio"`,
	"uaddr":         noSymbols,
	"unwatch":       noCommands,
	"uptr":          noPointers,
	"write_user":    noCommands,
}
