//go:build vm

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestVMStacks(t *testing.T) { stacks(t) }

// TestVMSameStacksAsBpftrace runs a fixed workload under trace and bpftrace at once: the stacks of the kernel and of a process, and how
// often each was seen, are the same.
func TestVMSameStacksAsBpftrace(t *testing.T) {
	for name, test := range map[string]struct{ ours, theirs, run string }{
		"nvme": {`nvme:setup_cmd / comm == "dd" / { @[kstack] = count() }`,
			`tracepoint:nvme:nvme_setup_cmd / comm == "dd" / { @[kstack] = count(); }`,
			"dd if=/dev/nvme0n1 of=/dev/null bs=4k count=200 iflag=direct; dd if=/dev/zero of=/dev/nvme0n2 bs=64k count=20 oflag=direct; " +
				"dd if=/dev/nvme0n1 of=/dev/null bs=1M count=4"},
		"system calls": {`syscall:enter / comm == "dd" && nr in [read, write] / { @[kstack] = count() }`,
			`tracepoint:raw_syscalls:sys_enter / comm == "dd" && (args->id == 0 || args->id == 1) / { @[kstack] = count(); }`,
			"dd if=/dev/zero of=/dev/null bs=1 count=500"},
		"process": {`syscall:enter / comm == "tiny" && nr == getppid / { @[ustack] = count() }`,
			`tracepoint:raw_syscalls:sys_enter / comm == "tiny" && args->id == 110 / { @[ustack] = count(); }`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := startTool(t, "attached", "bpftrace", "-e", test.theirs+` interval:ms:100 { printf("attached\n"); }`)
			a := startTool(t, "Attached", "trace", test.ours)
			if test.run == "" {
				defer stoppedTiny(t)()
			} else {
				sh(t, "%s", test.run)
			}
			a.end(t)
			b.end(t)
			mine, others := stackCounts(t, a.out.String()), stackCounts(t, b.out.String())
			if len(mine) == 0 || !maps.Equal(mine, others) {
				t.Errorf("trace printed\n%s\nbpftrace printed\n%s", a.out.String(), strings.ReplaceAll(b.out.String(), "attached\n", ""))
			}
			t.Logf("%d stacks", len(mine))
		})
	}
}

// stoppedTiny runs tiny and stops it in its sleep: bpftrace finds names only as long as the process is there.
func stoppedTiny(t *testing.T) (kill func()) {
	t.Helper()
	path, err := filepath.Abs("../../probes/symbols/testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

var stackBlock = regexp.MustCompile(`(?s)@\[\n(.*?)\]: (\d+)\n`)

// stackCounts reads a map of stacks. The tracepoints that bpftrace uses are called a level below ours: it shows what calls them. Modules
// and places in the source are not in its output.
func stackCounts(t *testing.T, text string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, m := range stackBlock.FindAllStringSubmatch(text, -1) {
		var stack []string
		for frame := range strings.Lines(m[1]) {
			frame, _, _ = strings.Cut(strings.TrimSpace(frame), " ")
			if len(stack) == 0 && strings.HasPrefix(frame, "__traceiter_") {
				continue
			}
			stack = append(stack, frame)
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		counts[strings.Join(stack, "\n")] += n
	}
	return counts
}

// walksPastTrampoline reports whether the kernel finds who called a function whose return a kretprobe has caught: since 5.15, and since 5.18
// by the other function.
func walksPastTrampoline(t *testing.T) bool {
	t.Helper()
	return strings.TrimSpace(sh(t, "grep -cwE '(kretprobe|rethook)_find_ret_addr' /proc/kallsyms || true")) != "0"
}

// TestVMFunctionStacks captures stacks where a function returns: they begin with it, or with its caller, and lead to the system call.
func TestVMFunctionStacks(t *testing.T) {
	m := mapByTrace(t, []string{`ib:modify_qp / comm == "ibv_rc_pingpong" / { @[kstack, ustack] = count() }`},
		"ibv_rc_pingpong -d rxe0 -g 1 -n 5 >/dev/null & sleep 1; ibv_rc_pingpong -d rxe0 -g 1 -n 5 10.9.0.1 >/dev/null; wait")
	if len(m) == 0 {
		t.Fatal("no stacks")
	}
	for _, e := range m {
		frames := e.frames(t, 0)
		t.Logf("%d\n%s\n%s", e.count(t), strings.Join(frames, "\n"), strings.Join(e.frames(t, 1), "\n"))
		// Where the kernel jumps from the function to the trampoline, its caller comes first.
		if first := frames[0]; !strings.HasPrefix(first, "ib_modify_qp") && !strings.HasPrefix(first, "modify_qp") && !strings.Contains(first, "trampoline") {
			t.Errorf("the stack begins with %s", first)
		}
		last := "entry_SYSCALL_64"
		if !walksPastTrampoline(t) {
			last = "kretprobe_trampoline"
		}
		if got := frames[len(frames)-1]; !strings.HasPrefix(got, last) {
			t.Errorf("the stack ends with %s, want %s", got, last)
		}
		for _, f := range frames {
			if strings.HasPrefix(f, "bpf_") {
				t.Errorf("%s is of tracing", f)
			}
		}
	}
}

// TestVMRecordedStacks records completions with their stacks, which was once too much for the verifier of 5.10, and compares the recording
// with what was counted at the same time.
func TestVMRecordedStacks(t *testing.T) {
	dir := t.TempDir()
	file, live, script := filepath.Join(dir, "rec"), filepath.Join(dir, "live"), filepath.Join(dir, "script")
	const reads, program = 50, `nvme:complete_rq / comm == "dd" / { @[kstack] = count() }`
	traced := fmt.Sprintf("trace -q -o %s -c 'dd if=/dev/nvme0n1 of=/dev/null bs=4k count=%d iflag=direct status=none' '%s'", live, reads, program)
	if err := os.WriteFile(script, []byte(traced), 0o600); err != nil {
		t.Fatal(err)
	}
	sh(t, "trace record --stacks -o %s -c 'sh %s' nvme:complete_rq", file, script)
	got := sh(t, "trace -q -r %s '%s'", file, program)
	total := 0
	for _, n := range stackCounts(t, got) {
		total += n
	}
	if want := sh(t, "cat %s", live); got != want || total < reads || !strings.Contains(got, "nvme_") {
		t.Errorf("%d completions, want %d; the recording prints\n%s\nlive it was\n%s", total, reads, got, want)
	}
}
