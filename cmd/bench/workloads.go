package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A workload is one task, in the language of each peer.
type workload struct {
	name      string
	trace     string  // program of trace
	bpftrace  string  // program of bpftrace, or "" if it cannot do that
	c         string  // name of the program in peer.bpf.c, or "" if there is none
	target    float64 // 0: there is none
	countedAs string  // pattern of the count in the tool's output; TID stands for the thread that made the calls
	command   string  // what makes the events, if it is not the loop
	preloaded string  // question of the wrapper by LD_PRELOAD, or ""
}

// targetC is what a counting workload may cost, compared with hand-written C.
const targetC = 1.15

// counting are the workloads whose cost is compared with bpftrace's and hand-written C's.
func counting() []workload {
	return []workload{
		{
			name:      "`@ = count()`",
			trace:     "syscall:enter { @ = count() }",
			bpftrace:  "tracepoint:raw_syscalls:sys_enter { @ = count(); }",
			c:         "count",
			target:    0.72,
			countedAs: `(?m)^@: (\d+)$`,
		},
		{
			name:      "`@[tid] = count()`",
			trace:     "syscall:enter { @[tid] = count() }",
			bpftrace:  "tracepoint:raw_syscalls:sys_enter { @[tid] = count(); }",
			c:         "count_by_tid",
			target:    0.78,
			countedAs: `(?m)^@\[TID\]: (\d+)$`,
		},
		{
			name:     "`@[tid] = hist(nr)`",
			trace:    "syscall:enter { @[tid] = hist((uint64)nr) }",
			bpftrace: "tracepoint:raw_syscalls:sys_enter { @[tid] = hist(args.id); }",
			c:        "hist_by_tid",
			target:   0.82,
			// The number of getppid is 110 on amd64 and 173 on arm64.
			countedAs: `(?m)^@\[TID\]:[^@]*\[(?:64, 128|128, 256)\) +(\d+) `,
		},
		{
			name:     "predicate that rejects", // there is no such number
			trace:    "syscall:enter / nr == 9999 / { @ = count() }",
			bpftrace: "tracepoint:raw_syscalls:sys_enter /args.id == 9999/ { @ = count(); }",
			c:        "reject",
			target:   0.75,
		},
	}
}

// timed is what most programs measure: how long a call takes. Both tools keep its beginning in a map, bpftrace in one of the program's.
func timed() workload {
	return workload{
		name:  "`@[ret] = hist(latency)`",
		trace: "syscall:exit { @[ret] = hist(latency) }",
		bpftrace: `tracepoint:raw_syscalls:sys_enter { @start[tid] = nsecs; }
			tracepoint:raw_syscalls:sys_exit / @start[tid] / { @[args.ret] = hist(nsecs - @start[tid]); delete(@start, tid); }`,
		target: 0.5,
	}
}

// waits is what runqlat.bt of bpftrace measures: how long each task waited for a CPU. The command lets two processes on one CPU wake each other.
func waits() workload {
	return workload{
		name:  "wait for a CPU, `@ = hist(latency)`",
		trace: "sched:runq { @ = hist(latency) }",
		bpftrace: `tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @qtime[args.pid] = nsecs; }
			tracepoint:sched:sched_switch {
				if (args.prev_state == 0) { @qtime[args.prev_pid] = nsecs; }
				if (args.next_pid == 0) { return; }
				$ns = @qtime[args.next_pid];
				if $ns { @usecs = hist((nsecs - $ns) / 1000); delete(@qtime, args.next_pid); }
			}`,
		target: 0.7,
		command: `taskset -c $(($(nproc) - 1)) bash -ec '
			coproc cat
			for i in {1..20000}; do echo >&"${COPROC[1]}"; read -ru "${COPROC[0]}"; done'`,
	}
}

// quantiles has no form for peers; ownHist is what it is compared with, trace's and bpftrace's.
func quantiles() (quantile, ownHist workload) {
	quantile = workload{
		name:   "`@[comm, nr] = quantile(latency, 50, 99)`",
		trace:  "syscall:exit { @[comm, nr] = quantile(latency, 50, 99) }",
		target: 1.3,
	}
	ownHist = workload{
		name:  "`@[comm, nr] = hist(latency)`",
		trace: "syscall:exit { @[comm, nr] = hist(latency) }",
		bpftrace: `tracepoint:raw_syscalls:sys_enter { @start[tid] = nsecs; }
			tracepoint:raw_syscalls:sys_exit / @start[tid] / { @[comm, args.id] = hist(nsecs - @start[tid]); delete(@start, tid); }`,
	}
	return quantile, ownHist
}

// costly returns all workloads for which the cost per call is measured.
func costly() []workload {
	quantile, ownHist := quantiles()
	return append(counting(), timed(), quantile, ownHist)
}

// flood prints a line for each system call.
func flood() workload {
	return workload{
		name:     "`printf` flood to a pipe",
		trace:    `syscall:enter { printf("%d %s %d\n", tid, comm, nr) }`,
		bpftrace: `tracepoint:raw_syscalls:sys_enter { printf("%d %s %d\n", tid, comm, args.id); }`,
		target:   2.5,
	}
}

// recorded writes all fields of each system call of the flood to a file.
func recorded() workload {
	return workload{name: "`record` of the flood to a file", trace: "syscall:enter", target: 0.9}
}

// counted reads from a tool's output how many calls of thread tid it has counted.
func (w workload) counted(output string, tid int) (int64, error) {
	pattern := strings.ReplaceAll(w.countedAs, "TID", strconv.Itoa(tid))
	m := regexp.MustCompile(pattern).FindStringSubmatch(output)
	if m == nil {
		return 0, fmt.Errorf("no count for thread %d in its output; compare it with countedAs in cmd/bench/workloads.go", tid)
	}
	return strconv.ParseInt(m[1], 10, 64)
}
