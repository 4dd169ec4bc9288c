package probes

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// otherThreadExecs is set for the process that TestSyscallOfOtherThread looks at.
const otherThreadExecs = "TRACE_TEST_OTHER_THREAD_EXECS"

// execByOtherThread waits for a line, makes a system call that there is not, and has a thread that is not the leader execute another program.
func execByOtherThread(t *testing.T) {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for {
		go func() {
			runtime.LockOSThread()
			if syscall.Gettid() == os.Getpid() {
				select {} // keeps the leader
			}
			syscall.RawSyscall(^uintptr(0), 0, 0, 0)
			panic(syscall.Exec("/bin/true", []string{"true"}, nil))
		}()
		time.Sleep(10 * time.Millisecond)
	}
}

// A thread takes another id inside of an execve, and what it had begun is not another thread's: the call has its latency. A call without
// a number has none.
func TestSyscallOfOtherThread(t *testing.T) {
	if os.Getenv(otherThreadExecs) != "" {
		execByOtherThread(t)
	}
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprint("full tables: ", full), func(t *testing.T) { traceOtherThread(t, full) })
	}
}

func traceOtherThread(t *testing.T, fullTables bool) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestSyscallOfOtherThread$")
	cmd.Env = append(os.Environ(), otherThreadExecs+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h, err := Detect(load(t), HostOptions{FullTables: fullTables})
	if err != nil {
		t.Fatal(err)
	}
	p := h.catalog.Match("syscall:exit")[0]
	s := attachWants(t, h, want{probe: p, fields: p.Fields, pid: cmd.Process.Pid})
	events := collect(t, s, func() {
		io.WriteString(in, "\n")
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	if n := lossesOf(t, s)[0].Overflowed; (n > 0) != fullTables {
		t.Errorf("%d beginnings in the hash", n)
	}
	execve, longest := syscall.SYS_EXECVE, int(30*time.Second)
	execs, unnumbered := 0, 0
	for _, e := range events {
		latency, err := strconv.Atoi(e["latency"])
		switch {
		case e["raw_nr"] == "-1":
			unnumbered++
			if e["nr"] != "-" {
				t.Errorf("a call without a number: %v", e)
			}
		case e["nr"] == "-":
			t.Errorf("a call without a number: %v", e)
		case e["nr"] == strconv.Itoa(execve) && e["ret"] == "0":
			execs++
			if err != nil || latency <= 0 || latency > longest || e["tid"] != e["pid"] {
				t.Errorf("an exec: %v", e)
			}
		}
	}
	if execs != 1 || unnumbered == 0 {
		t.Errorf("%d exec, %d calls without a number, of %d", execs, unnumbered, len(events))
	}
}

// Registers are the same whether the verifier knows their type or not.
func TestSyscallRegisters(t *testing.T) {
	for _, way := range []way{typedTracepoint{}, rawTracepoint{}, ftraceEvent{}} {
		seen, ways := 0, 0
		for _, p := range detect(t).catalog.Match("syscall:*") {
			h := detect(t)
			index := slices.IndexFunc(h.variantsOf(p), func(v variant) bool { return v.way == way })
			if err := h.variantsOf(p)[index].check(); err != nil {
				t.Logf("not by %s: %v", way, err)
				continue
			}
			reqs, o := requestsFor(want{probe: p, fields: p.Fields, pid: os.Getpid()})
			s, err := attachOnly(h, index, reqs[0], o)
			requirePermitted(t, err)
			ways++
			defer s.Close()
			for _, e := range collect(t, s, func() { syscall.RawSyscall6(syscall.SYS_PRCTL, 1<<40, 12, 13, 14, 15, 16) }) {
				if e["nr"] != strconv.Itoa(syscall.SYS_PRCTL) {
					continue
				}
				seen++
				if e["compat"] != "false" || e["raw_nr"] != e["nr"] {
					t.Errorf("by %s: not the call: %v", way, e)
				}
				if p.Name == "enter" && strings.Join([]string{e["arg0"], e["arg1"], e["arg2"], e["arg3"], e["arg4"], e["arg5"]}, " ") != "1099511627776 12 13 14 15 16" {
					t.Errorf("by %s: other arguments: %v", way, e)
				}
			}
		}
		if (way == rawTracepoint{}) && ways != 2 {
			requirePermitted(t, Available(detect(t), []Request{{Probe: detect(t).catalog.Match("syscall:enter")[0], Code: rejectAll()}}))
			t.Errorf("by %s: only %d of two probes", way, ways)
		}
		if seen != ways {
			t.Errorf("by %s: %d events of one call, expected %d", way, seen, ways)
		}
	}
}
