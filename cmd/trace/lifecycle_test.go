package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silent is a program that attaches a busy probe and never prints.
const silent = `syscall:enter / comm == "nobody has it" /`

// tracing is a running trace command that has attached its probes.
type tracing struct {
	*testing.T
	cmd    *exec.Cmd
	stdout *os.File
	stderr *bufio.Reader
}

// startTrace starts the command and waits until its probes are attached.
func startTrace(t *testing.T, args ...string) *tracing {
	t.Helper()
	tr := runTrace(t, args...)
	if line := tr.stderrLine(); !strings.HasPrefix(line, "Attached ") {
		t.Fatalf("instead of being attached: %s", line)
	}
	return tr
}

// runTrace starts the command.
func runTrace(t *testing.T, args ...string) *tracing {
	t.Helper()
	cmd := exec.Command("trace", args...)
	stdout, stdoutEnd := pipe(t)
	stderr, stderrEnd := pipe(t)
	cmd.Stdout, cmd.Stderr = stdoutEnd, stderrEnd
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	stdoutEnd.Close()
	stderrEnd.Close()
	return &tracing{t, cmd, stdout, bufio.NewReader(stderr)}
}

// callsComeIn makes system calls until the test ends: of trace's own processes syscall: has none, and an idle machine makes no others.
func callsComeIn(t *testing.T) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while kill -0 $PPID && sleep 0.01; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func (tr *tracing) stderrLine() string {
	tr.Helper()
	line, err := tr.stderr.ReadString('\n')
	if err != nil {
		tr.Fatal(err)
	}
	return line
}

// endsWithin checks that the command ends in time and with a status, and returns the rest of its standard error.
func (tr *tracing) endsWithin(limit time.Duration, status int) string {
	tr.Helper()
	took, rest := tr.ends(status)
	if took > limit {
		tr.Errorf("it took %v to end", took)
	}
	return rest
}

// ends checks that the command ends with a status, and returns how long it took and the rest of its standard error.
func (tr *tracing) ends(status int) (took time.Duration, rest string) {
	tr.Helper()
	defer time.AfterFunc(30*time.Second, func() { tr.cmd.Process.Kill() }).Stop()
	began := time.Now()
	text, err := io.ReadAll(tr.stderr)
	if err != nil {
		tr.Fatal(err)
	}
	tr.cmd.Wait()
	took = time.Since(began)
	if got := tr.cmd.ProcessState; got.ExitCode() != status {
		tr.Errorf("ended with %v, want %d; its output:\n%s", got, status, text)
	}
	return took, string(text)
}

func TestEndsOnSignal(t *testing.T) {
	requireLive(t)
	callsComeIn(t)
	// Under nohup SIGHUP is ignored, and stays so in what this process starts; what is caught here is not.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGHUP)
	defer signal.Stop(caught)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		for _, program := range []string{silent, "syscall:enter"} {
			t.Run(fmt.Sprintf("%v/%s", sig, program), func(t *testing.T) {
				var took time.Duration
				for range 3 { // other tests may keep all CPUs busy
					tr := startTrace(t, program)
					go io.Copy(io.Discard, tr.stdout)
					if err := tr.cmd.Process.Signal(sig); err != nil {
						t.Fatal(err)
					}
					if took, _ = tr.ends(exitOK); took <= time.Second {
						return
					}
				}
				t.Errorf("it took %v to end", took)
			})
		}
	}
}

// The reader of the data goes away, while events come and while none does.
func TestEndsOnClosedOutput(t *testing.T) {
	requireLive(t)
	callsComeIn(t)
	for _, program := range []string{silent, "syscall:enter"} {
		t.Run(program, func(t *testing.T) {
			tr := startTrace(t, program)
			tr.stdout.Close()
			if rest := tr.endsWithin(time.Second, exitOK); strings.Contains(rest, "pipe") {
				t.Errorf("not quiet: %s", rest)
			}
		})
	}
}

func TestEventsComePromptly(t *testing.T) {
	requireLive(t)
	tr := startTrace(t, `syscall:enter / comm == "helper" && nr == getppid /`)
	began := time.Now()
	if err := exec.Command("helper", "1").Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(tr.stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 500*time.Millisecond {
		t.Errorf("the event came after %v", took)
	}
}

func TestProcess(t *testing.T) {
	requireLive(t)
	cat := exec.Command("cat")
	end, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprint(cat.Process.Pid)
	tr := startTrace(t, "-p", pid, "-f", "json", "syscall:enter")
	end.Close()
	go cat.Wait()
	data, err := io.ReadAll(tr.stdout)
	if err != nil {
		t.Fatal(err)
	}
	tr.endsWithin(time.Second, exitOK)
	lines := bytes.Count(data, []byte(`"probe":`))
	if of := bytes.Count(data, []byte(`"pid":`+pid+`,`)); lines == 0 || of != lines {
		t.Errorf("%d of %d events are of process %s:\n%s", of, lines, pid, data)
	}
}

// Lost events show in the report, in the data, and in the exit status.
func TestStrictCountsLosses(t *testing.T) {
	requireLive(t)
	cmd := exec.Command("trace", "-q", "--strict", "-f", "json", "--buffer-size", "4KiB", "-c", "helper 300000", "syscall:enter")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitLost {
		t.Fatalf("%v, want exit status %d; its output:\n%s", err, exitLost, &stderr)
	}
	report := regexp.MustCompile(`lost (\d+) of (\d+) syscall:enter events: .*\n$`).FindStringSubmatch(stderr.String())
	if report == nil {
		t.Fatalf("no report at the end of:\n%s", &stderr)
	}
	var lost, total int
	fmt.Sscan(report[1]+" "+report[2], &lost, &total)
	inData := 0
	for _, line := range regexp.MustCompile(`(?m)^\{"type":"lost_events","count":\d+,"data":\{"events":(\d+)\}\}$`).FindAllSubmatch(data, -1) {
		var n int
		fmt.Sscan(string(line[1]), &n)
		inData += n
	}
	if inData != lost {
		t.Errorf("%d events are lost in the data, %d in the report", inData, lost)
	}
	if printed := bytes.Count(data, []byte(`{"type":"event",`)); lost+printed != total || total < 300000 {
		t.Errorf("%d lost + %d printed, %d in total", lost, printed, total)
	}
}

// However often maps are read and emptied, and however many processes come and go, a run needs no more descriptors. Stacks of processes
// are left out: the files that they are looked up in belong to all processes of the machine.
func TestDescriptorsStay(t *testing.T) {
	requireLive(t)
	tr := startTrace(t, "-o", filepath.Join(t.TempDir(), "out"), `syscall:enter / comm == "helper" && nr == getppid / { @[kstack] = count(); @n[pid] = count() }
		interval:10ms { print(@); print(@n); clear(@); clear(@n) }`)
	after := func(processes int) int {
		for range processes {
			if err := exec.Command("helper", "3").Run(); err != nil {
				t.Fatal(err)
			}
		}
		least := 1 << 20 // what is open for a moment does not count
		for range 20 {
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", tr.cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			least = min(least, len(open))
			time.Sleep(5 * time.Millisecond)
		}
		return least
	}
	if before, later := after(5), after(60); later > before {
		t.Errorf("%d descriptors after 5 processes, %d after 65", before, later)
	}
	if err := tr.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	tr.endsWithin(2*time.Second, exitOK)
}
