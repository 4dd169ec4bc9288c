package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A signal reaches the process of an event that passes the predicate, and no other.
func TestSignalsAreSent(t *testing.T) {
	requireLive(t)
	dir := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"victim", "other"} {
		if err := exec.Command("cp", sleep, filepath.Join(dir, name)).Run(); err != nil {
			t.Fatal(err)
		}
	}
	command := fmt.Sprintf("sh -c '%s/other 0.2; echo other $?; %[1]s/victim 60; echo victim $?'", dir)
	for call, status := range map[string]int{`signal("TERM")`: 143, `signal_thread("SIGKILL")`: 137, `signal(nr - nr + 2)`: 130} {
		program := `syscall:enter / nr in [nanosleep, clock_nanosleep] && comm == "victim" / { ` + call + `; @sent = count() }`
		cmd := exec.Command("trace", "--unsafe", "-c", command, program)
		var report strings.Builder
		cmd.Stderr = &report
		out, err := cmd.Output()
		if want := fmt.Sprintf("other 0\nvictim %d\n@sent: 1\n", status); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v\n%s", call, out, err, &report)
		}
		if !strings.Contains(report.String(), "trace: the program sent 1 signal\n") {
			t.Errorf("%s: %s", call, &report)
		}
	}
}

// Linux has no signal of such a number.
func TestSignalsAreRefused(t *testing.T) {
	requireLive(t)
	out, err := exec.Command("trace", "--unsafe", "-c", "true", `syscall:enter / pid == cpid && nr == exit_group / { signal(nr + 1000) }`).CombinedOutput()
	const want = "trace: 1 signal could not be sent: the process of the event was not running, as in an interrupt, or the kernel refused\n"
	if err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "the program sent") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSignalsNeedTheKernel(t *testing.T) {
	requireLive(t)
	for program, want := range map[string]string{
		`syscall:enter / nr == getppid / { signal("KILLED") }`:         `"KILLED" is not a signal`,
		`syscall:enter / nr == getppid / { signal(65) }`:               "65 is not a signal",
		`syscall:enter / nr == getppid && pid < 0 / { signal() }`:      "signal() has no argument here",
		`syscall:enter / nr == getppid / { @x = nr; signal(len(@x)) }`: "signal() acts in the kernel, at the event, and this clause runs in user space",
	} {
		out, err := exec.Command("trace", "--unsafe", "-c", "true", program).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", program, err, out)
		}
	}
	out, err := exec.Command("trace", "--unsafe", "--no-kernel", "-c", "true", `syscall:enter / pid == cpid / { signal_thread(9) }`).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "signal_thread() acts in the kernel") || !strings.Contains(string(out), "help: --no-kernel;") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestCommandsAreCounted(t *testing.T) {
	out, err := exec.Command("trace", "--unsafe", `begin { system("echo %d", 7); system("exit 3") }`).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "7\n") || !strings.Contains(string(out), "trace: the program ran 2 commands\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// What the CPU has at an event is read in the kernel. The count of ticks lies between two readings of /proc/timer_list.
func TestPropertiesOfTheCPU(t *testing.T) {
	requireLive(t)
	before := ticks(t)
	const program = `syscall:enter / pid == cpid && numaid < 1024 && usermode == 0 / { @[numaid] = count(); printf("%d %s\n", jiffies, username); exit() }`
	out, err := exec.Command("trace", "-q", "-c", "true", program).Output()
	var at uint64
	var user string
	if _, scanErr := fmt.Sscan(string(out), &at, &user); err != nil || scanErr != nil || user != "root" {
		t.Fatalf("%v, %v: %s", err, scanErr, out)
	}
	if after := ticks(t); at < before || at > after {
		t.Errorf("jiffies is %d, and the kernel counts from %d to %d", at, before, after)
	}
	for flag, want := range map[string]string{
		"--no-kernel": "help: --no-kernel; use it in a clause of its own",
		"--compare":   "help: --compare runs it there, too; use it in a clause of its own",
	} {
		out, err := exec.Command("trace", flag, "-c", "true", `syscall:enter / pid == cpid / { @[numaid] = count() }`).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "numaid is read in the kernel, at the event, and this clause runs in user space") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", flag, err, out)
		}
	}
}

// A sample that met the program itself has no stack of the kernel, and each other sample has one.
func TestUsermodeOfSamples(t *testing.T) {
	requireLive(t)
	m := mapByTrace(t, []string{"profile:499hz / pid != 0 / { @[usermode, kstack == nil] = count() }"},
		"timeout 1 sh -c 'while :; do :; done'; timeout 1 cat /dev/zero >/dev/null; true")
	for _, r := range m {
		if (r.Key[0] == 1.0) != (r.Key[1] == true) {
			t.Errorf("usermode, and no stack of the kernel: %v", r.Key)
		}
	}
	if len(m) != 2 {
		t.Errorf("%v", m)
	}
}

// The group is the current one of the task, and the name of a process is not the name of its thread.
func TestGroupAndLeader(t *testing.T) {
	requireLive(t)
	out, err := exec.Command("trace", "-q", "-c", "setpriv --regid 4321 --clear-groups true", "syscall:enter / pid == cpid / { @[gid, comm] = count() }").Output()
	if err != nil || strings.Contains(string(out), "[0, true]") || !strings.Contains(string(out), "@[4321, true]: ") || !strings.Contains(string(out), "@[0, setpriv]: ") {
		t.Errorf("%v: %s", err, out)
	}
	for _, probe := range []string{"sched:runq", "mlx5:cmd", "nvme:complete_rq"} { // of another task than the current one
		out, err := exec.Command("trace", "--explain", probe+" { @[gid] = count() }").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no field gid in "+probe) {
			t.Errorf("%s: %v: %s", probe, err, out)
		}
	}
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var call func()
	call = func() {
		runtime.LockOSThread() // the thread ends with its name
		if unix.Gettid() == os.Getpid() {
			go call()
			<-ended // keeps the leader
			return
		}
		if err := os.WriteFile("/proc/thread-self/comm", []byte("a thread"), 0o666); err != nil {
			t.Error(err)
		}
		for ; ; time.Sleep(10 * time.Millisecond) {
			select {
			case <-ended:
				return
			default:
				unix.Getppid()
			}
		}
	}
	go call()
	out, err = exec.Command("trace", "-q", fmt.Sprintf(`syscall:enter / pid == %d && comm == "a thread" / { print(leader_comm); exit() }`, os.Getpid())).Output()
	close(ended)
	if err != nil || string(out) != string(name) {
		t.Errorf("%v: %q, want %q", err, out, name)
	}
}

// ticks returns how many ticks the kernel has counted.
func ticks(t *testing.T) (n uint64) {
	t.Helper()
	list, err := os.ReadFile("/proc/timer_list")
	if err != nil {
		t.Skipf("needs the kernel's own count: %v", err)
	}
	_, after, _ := strings.Cut(string(list), "\njiffies: ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
