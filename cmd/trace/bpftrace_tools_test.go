package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A tool of bpftrace, the changes of docs/from-bpftrace.md, and what a thread of this test does meanwhile.
type foreignTool struct {
	name    string
	changes []string // old and new in turn
	work    func()
	// line selects and shortens the lines to compare.
	line func(string) string
}

// rareCalls is how often the thread makes a call that nobody else makes.
const rareCalls = 200000

var foreignTools = []foreignTool{
	{
		name: "cpuwalk",
		work: func() {
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
			}
		},
		// The bars depend on the CPUs that others use.
		line: func(line string) string { return bar.FindString(line) },
	},
	{
		name:    "syscount",
		changes: []string{"tracepoint:raw_syscalls:sys_enter", "syscall:enter", "args.id", "nr"},
		work: func() {
			for range rareCalls {
				unix.RawSyscall(unix.SYS_SCHED_GET_PRIORITY_MAX, 0, 0, 0)
			}
		},
		line: func(line string) string {
			line = strings.Replace(line, fmt.Sprintf("@syscall[%d]", unix.SYS_SCHED_GET_PRIORITY_MAX), "@syscall[sched_get_priority_max]", 1)
			if strings.Contains(line, "[sched_get_priority_max]") || strings.HasPrefix(line, "Top ") {
				return line
			}
			return ""
		},
	},
	{
		name: "syncsnoop",
		changes: []string{
			"tracepoint:syscalls:sys_enter_sync,\ntracepoint:syscalls:sys_enter_syncfs,\ntracepoint:syscalls:sys_enter_fsync,\n" +
				"tracepoint:syscalls:sys_enter_fdatasync,\ntracepoint:syscalls:sys_enter_sync_file_range*,\ntracepoint:syscalls:sys_enter_msync\n",
			"syscall:enter / nr in [sync, syncfs, fsync, fdatasync, sync_file_range, msync] /\n",
			"comm, probe)", "comm, nr)",
		},
		work: func() {
			none := ^uintptr(0)
			unix.RawSyscall(unix.SYS_FSYNC, none, 0, 0)
			unix.RawSyscall(unix.SYS_FDATASYNC, none, 0, 0)
			unix.RawSyscall(unix.SYS_SYNCFS, none, 0, 0)
			unix.RawSyscall(unix.SYS_MSYNC, 0, 0, 0)
			unix.RawSyscall6(unix.SYS_SYNC_FILE_RANGE, none, 0, 0, 0, 0, 0)
			unix.RawSyscall(unix.SYS_FSYNC, none, 0, 0)
		},
		line: func(line string) string {
			return byThisTest(strings.Replace(line, "tracepoint:syscalls:sys_enter_", "", 1))
		},
	},
	{
		name: "setuids",
		changes: []string{
			"tracepoint:syscalls:sys_enter_setuid,\ntracepoint:syscalls:sys_enter_setfsuid\n", "syscall:enter / nr in [setuid, setfsuid] /\n",
			"args.uid", "(int32)arg0",
			"tracepoint:syscalls:sys_enter_setresuid\n", "syscall:enter / nr == setresuid /\n",
			"args.ruid", "(int32)arg0", "args.euid", "(int32)arg1", "args.suid", "(int32)arg2",
			"tracepoint:syscalls:sys_exit_setuid\n/@seen[tid]/", "syscall:exit\n/nr == setuid && @seen[tid]/",
			"tracepoint:syscalls:sys_exit_setfsuid\n/@seen[tid]/", "syscall:exit\n/nr == setfsuid && @seen[tid]/",
			"tracepoint:syscalls:sys_exit_setresuid\n/@seen[tid]/", "syscall:exit\n/nr == setresuid && @seen[tid]/",
		},
		work: func() {
			none := ^uintptr(0)
			unix.RawSyscall(unix.SYS_SETUID, 0, 0, 0)
			unix.RawSyscall(unix.SYS_SETUID, none, 0, 0) // fails
			unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
			unix.RawSyscall(unix.SYS_SETRESUID, none, 0, none)
		},
		line: byThisTest,
	},
	{
		name: "killsnoop",
		changes: []string{
			"tracepoint:syscalls:sys_enter_kill,\ntracepoint:syscalls:sys_enter_tkill,\ntracepoint:syscalls:sys_enter_tgkill\n{\n" +
				"  @tpid[tid] = args.pid;\n  @tsig[tid] = args.sig;\n}",
			"syscall:enter / nr in [kill, tkill] / {\n  @tpid[tid] = arg0;\n  @tsig[tid] = arg1;\n}\n" +
				"syscall:enter / nr == tgkill / {\n  @tpid[tid] = arg1;\n  @tsig[tid] = arg2;\n}",
			"tracepoint:syscalls:sys_exit_kill,\ntracepoint:syscalls:sys_exit_tkill,\ntracepoint:syscalls:sys_exit_tgkill\n/@tpid[tid]/",
			"syscall:exit\n/nr in [kill, tkill, tgkill] && @tpid[tid]/",
		},
		work: func() {
			pid := uintptr(os.Getpid())
			unix.RawSyscall(unix.SYS_KILL, pid, 0, 0)
			unix.RawSyscall(unix.SYS_KILL, 1<<22+1, uintptr(unix.SIGTERM), 0) // above the greatest number of a process
			unix.RawSyscall(unix.SYS_TKILL, pid, uintptr(unix.SIGURG), 0)
			unix.RawSyscall(unix.SYS_TGKILL, pid, pid, uintptr(unix.SIGCHLD))
			unix.RawSyscall(unix.SYS_TGKILL, pid, 1<<22+1, 40)
		},
		line: byThisTest,
	},
}

// bar finds the bar of the CPU that the thread runs on.
var bar = regexp.MustCompile(`^(@cpu:|\[0\] )`)

// workName is the name of the thread.
const workName = "tool tester"

// byThisTest returns heads of tables, and lines about the thread without their time.
func byThisTest(line string) string {
	if !strings.Contains(line, " "+workName+" ") && !strings.HasPrefix(line, "TIME") {
		return ""
	}
	return timeOfDay.ReplaceAllStringFunc(line, sameTime)
}

// TestToolsOfBpftrace runs the tools of bpftrace whose events are in the catalog, as they are and with the changes of the documents, and
// compares what they print about the same calls.
func TestToolsOfBpftrace(t *testing.T) {
	requireLive(t)
	command := bpftraceCommand(t)
	root := command[len(command)-1]
	documents, err := os.ReadFile("../../docs/from-bpftrace.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range foreignTools {
		t.Run(tool.name, func(t *testing.T) {
			if !strings.Contains(string(documents), "| `"+tool.name+".bt` |") {
				t.Error("it is not in the documents")
			}
			file := filepath.Join("/usr/sbin", tool.name+".bt")
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			changed := string(text)
			for change := range slices.Chunk(tool.changes, 2) {
				if !strings.Contains(changed, change[0]) {
					t.Fatalf("it has no %q", change[0])
				}
				changed = strings.ReplaceAll(changed, change[0], change[1])
			}
			mine := filepath.Join(t.TempDir(), tool.name+".bt")
			if err := os.WriteFile(mine, []byte(changed), 0o666); err != nil {
				t.Fatal(err)
			}
			got := tool.output(t, []string{"trace", mine})
			want := tool.output(t, append(command, file))
			for range 2 { // in bpftrace a printf of another CPU may come between two of a line
				if slices.Equal(got, want) {
					break
				}
				want = tool.output(t, append(command, file))
			}
			if len(want) < 2 || !slices.Equal(got, want) {
				t.Errorf("it prints\n%s\nand in bpftrace\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// output returns the lines of a tool that count, while the thread works.
func (x foreignTool) output(t *testing.T, command []string) []string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timeout := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timeout.Stop()
	go func() {
		cmd.Wait()
		in.Close()
	}()
	var all, found []string
	worked := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		all = append(all, line)
		if kept := x.line(line); kept != "" {
			found = append(found, kept)
		}
		if strings.HasPrefix(line, "Attached ") && !worked {
			worked = true
			go x.workAndEnd(t, cmd)
		}
	}
	if !worked {
		t.Fatalf("%q: it does not attach:\n%s", command, strings.Join(all, "\n"))
	}
	return found
}

// workAndEnd works on a thread of its own, and interrupts the tool.
func (x foreignTool) workAndEnd(t *testing.T, cmd *exec.Cmd) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with its name
		var first unix.CPUSet
		first.Set(0)
		err := errors.Join(unix.SchedSetaffinity(0, &first), os.WriteFile("/proc/thread-self/comm", []byte(workName), 0o666))
		time.Sleep(settled)
		x.work()
		time.Sleep(settled)
		done <- err
	}()
	if err := errors.Join(<-done, cmd.Process.Signal(syscall.SIGINT)); err != nil {
		t.Error(err)
	}
}

// settled is enough for a tool to begin, and to see what happened.
const settled = 500 * time.Millisecond
