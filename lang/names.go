package lang

import (
	"fmt"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trace/probes"
)

// errnoNames are the error numbers of Linux under their C names. The first name of a number is the one that is printed.
var errnoNames = sync.OnceValue(func() *probes.Enum {
	e := &probes.Enum{Name: "errno"}
	add := func(name string, v int64) { e.Names, e.Values = append(e.Names, name), append(e.Values, v) }
	add("EOPNOTSUPP", 95) // as the kernel's sources say it; the table below says ENOTSUP
	const last = 133
	for v := range int64(last + 1) {
		if name := unix.ErrnoName(syscall.Errno(v)); name != "" {
			add(name, v)
		}
	}
	add("EWOULDBLOCK", 11)
	add("EDEADLOCK", 35)
	// Those of include/linux/errno.h, which functions inside the kernel return but programs never see.
	for i, name := range strings.Fields(`ERESTARTSYS ERESTARTNOINTR ERESTARTNOHAND ENOIOCTLCMD ERESTART_RESTARTBLOCK EPROBE_DEFER
		EOPENSTALE ENOPARAM - EBADHANDLE ENOTSYNC EBADCOOKIE ENOTSUPP ETOOSMALL ESERVERFAULT EBADTYPE EJUKEBOX EIOCBQUEUED
		ERECALLCONFLICT ENOGRACE`) {
		if name != "-" {
			add(name, 512+int64(i))
		}
	}
	return e
})

// enumOf returns the names that stand for values of a type, or nil.
func enumOf(t *probes.Type) *probes.Enum {
	switch {
	case t == nil:
		return nil
	case t.Unit == probes.Errno:
		return errnoNames()
	}
	return t.Enum
}

// enumerate writes some of many things.
func enumerate[T any](all []T) string {
	const most = 12
	var b strings.Builder
	for i, x := range all {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(all)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, x)
	}
	return b.String()
}

// didYouMean suggests one of names for a misspelt word, or returns "".
func didYouMean(word string, names []string) string {
	if name := nearest(word, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return ""
}

// nearest returns the name closest to word: the same but for case, its last part (state for qp.state), or at most about a
// third of the letters away. It returns "" if none is.
func nearest(word string, names []string) string {
	best, limit := "", (len(word)+2)/3+1
	for _, name := range names {
		d := distance(strings.ToLower(word), strings.ToLower(name))
		if strings.HasSuffix(name, "."+word) {
			d = 0
		}
		if d < limit {
			best, limit = name, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with their neighbour to get from a to b.
func distance(a, b string) int {
	// Three rows of the table d[i][j], the distance of a[:i] and b[:j].
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// foreignWords are what bpftrace calls things that have another name here, or none.
var foreignWords = map[string]string{
	"args": "fields stand alone, without args", "retval": "what a function returned is ret", "ret_val": "what a function returned is ret",
	"curtask": "the thread is tid, and its process pid", "func": "the event is probe", "username": "the user is uid, a number",
	"gid": "the user is uid", "rand": "there are no random numbers", "cpid": "restrict a program to a process with -p",
	"kstack": "the probes at hand capture no stacks", "ustack": "the probes at hand capture no stacks", "ctx": "fields stand alone, and trace -lv lists them",
	"walltime": "strftime(\"%H:%M:%S\", nsecs) is the time of day", "numaid": "the CPU is cpu", "ppid": "the process is pid",
}

// foreignWord says what to write for a word of bpftrace, or returns "".
func foreignWord(word string) string {
	if field, ok := strings.CutPrefix(word, "args."); ok {
		return fmt.Sprintf("fields stand alone: write %s", field)
	}
	digits, isArg := strings.CutPrefix(word, "arg")
	if isArg && digits != "" && strings.Trim(digits, "0123456789") == "" {
		return "fields have names, and trace -lv lists them"
	}
	if usage := aggregators[word].usage; usage != "" {
		return "an aggregation has brackets: " + usage
	}
	return foreignWords[word]
}

// builtins are the values that are no fields.
var builtins = []string{"elapsed", "probe"}

// foreignFunctions are those of bpftrace that have another name here, or none.
var foreignFunctions = map[string]string{
	"str": "a field that holds a string is one", "buf": "a field that holds bytes is one", "ksym": symbols, "usym": symbols, "kaddr": symbols,
	"uaddr": symbols, "reg": "fields have names, and trace -lv lists them", "kstack": noStacks, "ustack": noStacks, "stack_len": noStacks,
	"strncmp": "strings compare: comm == \"fio\", comm startsWith \"fi\"", "strcmp": "strings compare: comm == \"fio\"",
	"strcontains": "write s contains \"part\"", "strstr": "write indexOf(s, \"part\")", "strlen": "write len(s)", "strerror": "error numbers are printed as names",
	"cgroupid": "the field cgroup is a number", "cgroup_path": "the field cgroup is a number", "macaddr": "there is none for the probes at hand",
	"kptr": noPointers, "uptr": noPointers, "sizeof": noPointers, "offsetof": noPointers, "bswap": "fields are in the byte order of the machine",
	"system": noCommands, "signal": noCommands, "override": noCommands, "cat": noCommands, "unwatch": noCommands, "errorf": "write printf(…)",
	"warnf": "write printf(…)", "pton": "an address is a string beside a GID: sgid == \"fe80::1\"", "nsecs": "nsecs stands without brackets",
	"path": "a field that holds a path is a string", "tseries": "write @x = rate() in one clause, and print(@x) in interval:1s",
	"abs": "write x < 0 ? -x : x", "percentile": "write @x = quantile(x, 50, 99)", "histogram": "write @x = hist(x)", "mean": "write @x = avg(x)",
	"exit_code": "write exit()",
}

const (
	symbols    = "the probes at hand have no addresses of code"
	noStacks   = "the probes at hand capture no stacks"
	noPointers = "there are no pointers to follow: a field holds the value itself"
	noCommands = "trace observes, and changes nothing"
)
