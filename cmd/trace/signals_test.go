//go:build !vm

package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SIGUSR1 prints the maps as they are at that moment, in the format of the run, and it goes on. So it does where an interval empties them.
func TestMapsOnSignal(t *testing.T) {
	requireLive(t)
	for _, test := range []struct{ format, clause, one, two string }{
		{"text", "", "@: 3\n", "@: 6\n"},
		{"text", " interval:1h { print(@); clear(@) }", "@: 3\n", "@: 6\n"},
		{"json", "", `"value":3`, `"value":6`},
	} {
		tr := startTrace(t, "-f", test.format, `syscall:enter / comm == "helper" && nr == getppid / { @ = count() }`+test.clause)
		data := bufio.NewReader(tr.stdout)
		for _, want := range []string{test.one, test.two} {
			if err := exec.Command("helper", "3").Run(); err != nil {
				t.Fatal(err)
			}
			tr.signal(unix.SIGUSR1)
			line, err := data.ReadString('\n')
			if strings.Contains(line, "attached_probes") {
				line, err = data.ReadString('\n')
			}
			if err != nil || !strings.Contains(line, want) {
				t.Errorf("-f %s%s: the signal prints %q, want %q: %v", test.format, test.clause, line, want, err)
			}
		}
		tr.signal(unix.SIGINT)
		if rest, err := io.ReadAll(data); err != nil || !strings.Contains(string(rest), test.two) {
			t.Errorf("the end prints %q: %v", rest, err)
		}
		tr.endsWithin(time.Second, exitOK)
	}
}

// What is made at the end holds no maps in between: they are text for the user.
func TestMapsOnSignalBesideDocument(t *testing.T) {
	requireLive(t)
	for _, format := range []string{"folded", "html"} {
		tr := startTrace(t, "-f", format, "-o", filepath.Join(t.TempDir(), "document"),
			`syscall:enter / comm == "helper" && nr == getppid / { @n = count(); @[kstack] = count() }`)
		if err := exec.Command("helper", "3").Run(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			tr.signal(unix.SIGUSR1)
			for line := ""; line != "@n: 3\n"; {
				var err error
				if line, err = tr.stderr.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
		}
		tr.signal(unix.SIGINT)
		if rest := tr.endsWithin(time.Second, exitOK); strings.Contains(rest, "@n: 3") {
			t.Errorf("-f %s prints the maps at the end, too: %s", format, rest)
		}
	}
}

// A clause of the signal runs in the place of the maps.
func TestClauseOfSignal(t *testing.T) {
	requireLive(t)
	tr := startTrace(t, `syscall:enter { @n++ } self:signal:SIGUSR1 { @++; print((probe, @)); if (@ == 2) { clear(@); exit() } } end { clear(@n) }`)
	data := bufio.NewReader(tr.stdout)
	for _, want := range []string{"(self:signal:SIGUSR1, 1)\n", "(self:signal:SIGUSR1, 2)\n"} {
		tr.signal(unix.SIGUSR1)
		if line, err := data.ReadString('\n'); err != nil || line != want {
			t.Errorf("the signal prints %q, want %q: %v", line, want, err)
		}
	}
	if rest, err := io.ReadAll(data); err != nil || len(rest) > 0 {
		t.Errorf("the end prints %q: %v", rest, err)
	}
	tr.endsWithin(time.Second, exitOK)
}

func (tr *tracing) signal(sig os.Signal) {
	tr.Helper()
	if err := tr.cmd.Process.Signal(sig); err != nil {
		tr.Fatal(err)
	}
}

// A reader that does not read blocks nothing: neither with many events nor with large maps.
func TestEndsOnBlockedOutput(t *testing.T) {
	requireLive(t)
	callsComeIn(t)
	for _, program := range []string{"syscall:enter", `begin { for ($i : 0..4000) { @["some text that takes its room", $i] = $i } }` + " " + silent} {
		t.Run(program, func(t *testing.T) {
			tr := startTrace(t, program)
			time.Sleep(500 * time.Millisecond) // the pipe holds 64 KiB
			tr.signal(unix.SIGINT)
			if rest := tr.endsWithin(time.Second, exitFailed); !strings.Contains(rest, "cannot write to standard output: nobody reads it") {
				t.Errorf("its output: %s", rest)
			}
		})
	}
}

// One that reads slowly gets everything.
func TestSlowReaderGetsAll(t *testing.T) {
	requireLive(t)
	tr := startTrace(t, `begin { for ($i : 0..4000) { @["some text that takes its room", $i] = $i } }`+" "+silent)
	tr.signal(unix.SIGINT)
	lines, buf := 0, make([]byte, 16<<10)
	for {
		time.Sleep(100 * time.Millisecond)
		n, err := tr.stdout.Read(buf)
		lines += strings.Count(string(buf[:n]), "\n")
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if lines != 4000 {
		t.Errorf("%d lines of 4000", lines)
	}
	tr.endsWithin(time.Second, exitOK)
}

// Ctrl-C goes to the command, too. Then its end is not a failure, whichever ends first.
func TestInterruptedCommand(t *testing.T) {
	requireLive(t)
	for range 5 {
		cmd := exec.Command("trace", "--strict", "-c", "sleep 60", silent)
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(stderr)
		if line, err := said.ReadString('\n'); err != nil || !strings.HasPrefix(line, "Attached") {
			t.Fatalf("%q: %v", line, err)
		}
		time.Sleep(100 * time.Millisecond)
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(said)
		if err := cmd.Wait(); err != nil || len(rest) > 0 {
			t.Errorf("%v; its output: %s", err, rest)
		}
	}
}

// Waits before and without events end with Ctrl-C, too; each command line names what it waits for.
func TestEndsWhileWaiting(t *testing.T) {
	requireLive(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	recording := filepath.Join(t.TempDir(), "rec")
	if out, err := exec.Command("trace", "record", "-q", "-o", recording, "--children", "-c", "helper 3", `syscall:enter / comm == "helper" && nr == getppid /`).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	recorded, err := os.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, command string }{
		{"reader of a FIFO", "exec trace -o " + fifo + " '" + silent + "'"},
		{"writer of a FIFO", "exec trace -r " + fifo + " syscall:enter"},
		{"more of a recording", "exec trace -q -r /dev/stdin 'syscall:enter { @ = count() }'"},
		{"stubborn command", "exec trace -c 'sh -c \"trap : TERM; while :; do sleep 0.1; done\"' '" + silent + "'"},
		{"moment of a recording", "exec trace -r " + recording + " --speed 0.0001 'syscall:enter interval:1h { @ = 1 }'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", test.command)
			cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
			out := filepath.Join(t.TempDir(), "out")
			file, err := os.Create(out)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			stdin, more := pipe(t)
			if _, err := more.Write(recorded); err != nil { // a pipe has room for it
				t.Fatal(err)
			}
			cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, file, file
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1500 * time.Millisecond)
			began := time.Now()
			if err := unix.Kill(-cmd.Process.Pid, unix.SIGINT); err != nil {
				t.Error(err)
			}
			defer time.AfterFunc(10*time.Second, func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }).Stop()
			cmd.Wait()
			text, _ := os.ReadFile(out)
			if took := time.Since(began); took > 1200*time.Millisecond {
				t.Errorf("it took %v; its output:\n%s", took, text)
			}
			if strings.Contains(string(text), "goroutine") {
				t.Errorf("%s", text)
			}
			if test.name == "more of a recording" && !strings.Contains(string(text), "@: 3") {
				t.Errorf("what was read is not printed:\n%s", text)
			}
		})
	}
}

// A run that is interrupted before anything is attached has no result, and does not look like one that found nothing.
func TestInterruptedBeforeAttached(t *testing.T) {
	requireLive(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var out, notes strings.Builder
	status := runCommand(ctx, []string{"-q", "syscall:exit { @[nr] = count() }"}, strings.NewReader(""), &out, &notes)
	if want := "trace: interrupted before anything was attached\n"; status != exitInterrupted || out.String() != "" || notes.String() != want {
		t.Errorf("status %d\n%s%s", status, &out, &notes)
	}
}
