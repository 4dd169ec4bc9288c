//go:build !vm

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endsCalls is how many calls the tests of ends make: user space takes several times as long to handle them as helper to make them.
const endsCalls = 20000

// slowly is a clause in user space with a loop for each call of helper. do is what it does besides.
func slowly(do string) string {
	return `syscall:exit / comm == "helper" && nr == getppid / { for ($i : 0..300) { $x = $i } ` + do + ` }`
}

// callSlowly starts trace, and lets helper make its calls.
func callSlowly(t *testing.T, args ...string) *tracing {
	t.Helper()
	tr := startTrace(t, append([]string{"--strict", "--no-warnings", "--buffer-size", "16MiB"}, args...)...)
	if err := exec.Command("helper", fmt.Sprint(endsCalls)).Run(); err != nil {
		t.Fatal(err)
	}
	return tr
}

// output returns what the command prints until its end, whose status it checks.
func (tr *tracing) output(status int) (data, notes string) {
	tr.Helper()
	var out bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = out.ReadFrom(tr.stdout)
	}()
	_, notes = tr.ends(status)
	<-read
	return out.String(), notes
}

// What has arrived before the end of a run is handled, whatever ends it, with loops as without: helper counts its calls.
func TestEndHandlesAll(t *testing.T) {
	requireLive(t)
	all := fmt.Sprintf("@n: %d\n", endsCalls)
	for _, test := range []struct {
		name    string
		flags   []string
		program string
		end     func(*tracing)
		want    string
	}{
		{"Ctrl-C", nil, slowly("@n = count()"), func(tr *tracing) { tr.signal(unix.SIGINT) }, all},
		{"Ctrl-C, and its group gets it, too", nil, slowly("@n = count()"), func(tr *tracing) { tr.signal(unix.SIGINT); tr.signal(unix.SIGINT) }, all},
		{"time", []string{"--timeout", "3s"}, slowly("@n = count()"), func(*tracing) {}, all},
		{"exit of a clause without event", nil, slowly("@n = count()") + " self:signal:SIGUSR1 { exit() }", func(tr *tracing) { tr.signal(unix.SIGUSR1) }, all},
		{"printed events", []string{"-n", "2"}, slowly(`@n++; if (@n > 15000) { printf("printed\n") }`), func(*tracing) {}, "printed\nprinted\n" + all},
		{"exit of an event", nil, slowly(`@n++; if (@n == 15000) { exit() }`), func(*tracing) {}, "@n: 15000\n"},
		{"the same without the kernel", []string{"--no-kernel", "-n", "2"}, slowly(`@n++; if (@n > 15000) { printf("printed\n") }`), func(*tracing) {}, "printed\nprinted\n" + all},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr := callSlowly(t, append(test.flags, test.program)...)
			test.end(tr)
			if data, notes := tr.output(exitOK); data != test.want {
				t.Errorf("got %q, want %q; its notes:\n%s", data, test.want, notes)
			}
		})
	}
}

// So it is when the command ends, and its recording has the same.
func TestEndOfCommandHandlesAll(t *testing.T) {
	requireLive(t)
	file := filepath.Join(t.TempDir(), "recording")
	want := fmt.Sprintf("@n: %d\n", endsCalls)
	for _, args := range [][]string{
		{"--buffer-size", "16MiB", "--record", file, "-c", fmt.Sprintf("helper %d", endsCalls)},
		{"-r", file},
		{"--buffer-size", "16MiB", "--no-kernel", "-c", fmt.Sprintf("helper %d", endsCalls)},
	} {
		args = append(args, "-q", "--strict", slowly("@n = count()"))
		if out, err := exec.Command("trace", args...).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: %v: got %q, want %q", args, err, out, want)
		}
	}
}

// endless keeps user space busy with the first call.
const endless = `syscall:exit / comm == "helper" && nr == getppid / { while (true) { @turns++ } @n = count() }`

// After Ctrl-C a line describes what is left. The next one leaves it out: all of it is lost, by the report and the status, and the maps are printed.
func TestSecondInterruptCuts(t *testing.T) {
	requireLive(t)
	tr := callSlowly(t, "-f", "json", endless+` end { for ($i : 0..2) { printf("the end is whole\n") } }`)
	tr.signal(unix.SIGINT)
	want := fmt.Sprintf("trace: %d events that came before the end are left; Ctrl-C again cuts it short, and counts what is left as lost\n", endsCalls-1)
	if line := tr.stderrLine(); line != want {
		t.Errorf("got %q, want %q", line, want)
	}
	tr.signal(unix.SIGINT)
	data, notes := tr.output(exitLost)
	if want := fmt.Sprintf("trace: lost %d of %[1]d syscall:exit events: %[1]d that came before the end and were not handled, as the end was cut short\n", endsCalls); notes != want {
		t.Errorf("got %q, want %q", notes, want)
	}
	lost := fmt.Sprintf(`{"type":"lost_events","count":%d,`, endsCalls)
	if !strings.Contains(data, lost) || strings.Count(data, "the end is whole") != 2 || !strings.Contains(data, `"@turns":`) || !strings.Contains(data, `{"@n":0}`) {
		t.Errorf("its data:\n%s", data)
	}
}

// started waits until the program prints its first line.
func (tr *tracing) started() {
	tr.Helper()
	if _, err := tr.stdout.Read(make([]byte, len("it runs\n"))); err != nil {
		tr.Fatal(err)
	}
}

// Clauses that no event triggers are cut short, too, and named.
func TestSecondInterruptCutsClauses(t *testing.T) {
	requireLive(t)
	for heading, program := range map[string]string{
		"interval:1ms": `interval:1ms { printf("it runs\n"); while (true) { @turns++ } }`,
		"end":          silent + ` begin { printf("it runs\n") } end { while (true) { @turns++ } }`,
	} {
		tr := startTrace(t, "--strict", "--no-warnings", program)
		tr.started()
		tr.signal(unix.SIGINT)
		if line, want := tr.stderrLine(), "trace: "+heading+" still runs; Ctrl-C again cuts it short, and counts what is left as lost\n"; line != want {
			t.Errorf("got %q, want %q", line, want)
		}
		tr.signal(unix.SIGINT)
		data, notes := tr.output(exitLost)
		if want := "trace: " + heading + " was cut short at the end of the run: what it would have done is missing\n"; notes != want || !strings.HasPrefix(data, "@turns: ") {
			t.Errorf("got %q, want %q; its data: %q", notes, want, data)
		}
	}
}

// The third one kills, also in a clause of the end that is endless.
func TestThirdInterruptKills(t *testing.T) {
	requireLive(t)
	tr := callSlowly(t, endless+" end { while (true) { @turns++ } }")
	tr.signal(unix.SIGINT)
	tr.stderrLine()
	tr.signal(unix.SIGINT)
	time.Sleep(2 * sameSignal)
	tr.signal(unix.SIGINT)
	defer time.AfterFunc(30*time.Second, func() { tr.cmd.Process.Kill() }).Stop()
	tr.cmd.Wait()
	if status := tr.cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }); status.Signal() != unix.SIGINT {
		t.Errorf("ended with %v", tr.cmd.ProcessState)
	}
}

// A replay reads nothing more after Ctrl-C, and its event can be cut short, too.
func TestInterruptedReplay(t *testing.T) {
	const flows = "../../scripts/testdata/rdma_flows.rec"
	tr := runTrace(t, "--strict", "--no-warnings", "-r", flows, `begin { printf("it runs\n") } ib:modify_qp { while (true) { @turns++ } }`)
	tr.started()
	tr.signal(unix.SIGINT)
	if line, want := tr.stderrLine(), "trace: the end of the run takes its time; Ctrl-C again cuts it short, and counts what is left as lost\n"; line != want {
		t.Errorf("got %q, want %q", line, want)
	}
	tr.signal(unix.SIGINT)
	data, notes := tr.output(exitLost)
	if want := "trace: ib:modify_qp was cut short at the end of the run: what it would have done is missing\n"; notes != want || !strings.HasPrefix(data, "@turns: ") {
		t.Errorf("got %q, want %q; its data: %q", notes, want, data)
	}
}
