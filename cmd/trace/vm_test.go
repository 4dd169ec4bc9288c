//go:build vm

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests run in a virtual machine with an NVMe disk and an RDMA device (cmd/vmtest), on a real kernel, with real commands and
// verbs. The oracle is never ours: rdma, ftrace, nvme, fio, and what the programs print themselves.

// jsonEvent is a line of -f json, as lineOf has it.
type jsonEvent map[string]any

// lineOf makes one object from a line: an event has its fields beside its probe, and a map has a name and rows, each a key and a
// value.
func lineOf(line jsonEvent) jsonEvent {
	switch data, _ := line["data"].(map[string]any); line["type"] {
	case "event":
		event := jsonEvent{"type": "event", "probe": line["probe"], "time": line["time"]}
		maps.Copy(event, numbered(data).(map[string]any))
		return event
	case "map", "hist", "stats":
		for name := range data {
			line["name"] = name
		}
		rows, _ := line["rows"].([]any)
		for _, r := range rows {
			row := r.(map[string]any)
			numbered(row)
			if buckets, ok := row["buckets"]; ok {
				row["value"] = buckets
			}
		}
		line["entries"] = rows
	}
	return line
}

// at follows a dotted name; absent fields are nil.
func (e jsonEvent) at(name string) any {
	var v any = map[string]any(e)
	for part := range strings.SplitSeq(name, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[part]
	}
	return v
}

// num returns a number; the test fails if it is not one.
func (e jsonEvent) num(t *testing.T, name string) int64 {
	t.Helper()
	switch n := e.at(name).(type) {
	case json.Number:
		if v, err := n.Int64(); err == nil {
			return v
		}
		if v, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
			return int64(v)
		}
	case string: // what a double cannot hold
		if v, err := strconv.ParseInt(n, 10, 64); err == nil {
			return v
		}
	}
	t.Fatalf("%s is %v in %v", name, e.at(name), e)
	return 0
}

func (e jsonEvent) text(name string) string { return fmt.Sprint(e.at(name)) }

// numbered makes numbers of addresses, which are strings like 0xffff888100c0ffee.
func numbered(v any) any {
	switch v := v.(type) {
	case string:
		if n, err := strconv.ParseUint(v, 0, 64); err == nil && strings.HasPrefix(v, "0x") {
			return json.Number(strconv.FormatUint(n, 10))
		}
	case []any:
		for i, x := range v {
			v[i] = numbered(x)
		}
	case map[string]any:
		for name, x := range v {
			v[name] = numbered(x)
		}
	}
	return v
}

// recorder is a running trace with -f json.
type recorder struct {
	cmd           *exec.Cmd
	events, notes string // files: standard output and standard error
	started       int64  // on the clock of nsecs
}

// start runs trace as a process of its own and returns when it has attached.
func start(t *testing.T, args ...string) *recorder {
	t.Helper()
	return startCommand(t, exec.Command("trace", append([]string{"-v", "-f", "json"}, args...)...))
}

// startAsNobody is start for an ordinary user with only these capabilities, like "bpf,perfmon".
func startAsNobody(t *testing.T, caps string, args ...string) *recorder {
	t.Helper()
	return startCommand(t, asNobody(t, caps, append([]string{"-v", "-f", "json"}, args...)...))
}

// asNobody is a command that runs trace as an ordinary user with only these capabilities.
func asNobody(t *testing.T, caps string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("trace")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755); err != nil { // a temporary folder of root
		t.Fatal(err)
	}
	set := "-all"
	for name := range strings.FieldsFuncSeq(caps, func(r rune) bool { return r == ',' }) {
		set += ",+" + name
	}
	setpriv := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", set, "--ambient-caps", set, path}
	if os.Getenv("VMTEST_KERNEL") == "5.10" {
		setpriv = append([]string{"prlimit", "--memlock=unlimited"}, setpriv...) // it counts maps against this limit
	}
	command := append(setpriv, args...)
	return exec.Command(command[0], command[1:]...)
}

func startCommand(t *testing.T, cmd *exec.Cmd) *recorder {
	t.Helper()
	dir := t.TempDir()
	tr := &recorder{cmd: cmd, events: filepath.Join(dir, "events"), notes: filepath.Join(dir, "notes")}
	for name, stream := range map[string]*io.Writer{tr.events: &tr.cmd.Stdout, tr.notes: &tr.cmd.Stderr} {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		*stream = f
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	tr.started = now.Nano()
	if err := tr.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.cmd.Process.Kill() })
	attached := func() bool { return strings.Contains(tr.messages(t), "Attached") }
	for deadline := time.Now().Add(10 * time.Minute); !attached(); {
		if over := time.Now().After(deadline) || ended(t, tr.cmd); over && !attached() {
			t.Fatalf("%q did not attach:\n%s", cmd.Args, tr.messages(t))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return tr
}

// ended reports whether a command has ended. It can still be waited for.
func ended(t *testing.T, cmd *exec.Cmd) bool {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	return info.Signo != 0
}

// messages returns what trace wrote to its standard error so far.
func (tr *recorder) messages(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(tr.notes)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// stop interrupts trace and returns the events; it must have lost none.
func (tr *recorder) stop(t *testing.T) []jsonEvent {
	t.Helper()
	tr.interrupt(t)
	return tr.decoded(t)
}

// stopAll interrupts trace and returns the events, and how many of each probe it reports as lost: 7.2 does not run a program that was
// preempted on that CPU, as in a target's workers.
func (tr *recorder) stopAll(t *testing.T) (events []jsonEvent, lost map[string]int) {
	t.Helper()
	tr.end(t)
	return tr.decoded(t), lostOf(t, tr.messages(t))
}

// endLosingLookups ends trace, which may have lost lookups of GIDs and nothing else: they come by the hundred, and 7.2 skips some.
func (tr *recorder) endLosingLookups(t *testing.T) {
	t.Helper()
	tr.end(t)
	for probe, n := range lostOf(t, tr.messages(t)) {
		if probe != "ib:get_gid" && probe != "ib:gid_ndev" {
			t.Errorf("%d %s events were lost", n, probe)
		}
	}
}

// untilWhole returns the events of a program while work runs. Where the kernel skipped some of them, or a helper of theirs, as 7.2 does, and
// trace reports that, it all happens again.
func untilWhole(t *testing.T, program string, work func()) []jsonEvent {
	t.Helper()
	for range 5 {
		tr := start(t, program)
		work()
		events, lost := tr.stopAll(t)
		if len(lost) == 0 && !strings.Contains(tr.messages(t), "the kernel skipped the beginning of ") {
			return events
		}
		t.Logf("again, as events were lost: %v", lost)
	}
	t.Fatal("events were lost each time")
	return nil
}

// decoded is what trace wrote to its standard output, line by line.
// decoded returns the events. No call and no NVMe command may have begun before trace did.
func (tr *recorder) decoded(t *testing.T) []jsonEvent {
	t.Helper()
	f, err := os.Open(tr.events)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events := decodeLines(t, f)
	for _, e := range events {
		group, _, _ := strings.Cut(e.text("probe"), ":")
		if slices.Contains([]string{"ib", "mlx5", "nvme"}, group) && e.at("latency") != nil && e.at("nsecs") != nil && e.num(t, "nsecs")-e.num(t, "latency") < tr.started {
			t.Errorf("it began %dns before trace: %v", tr.started-(e.num(t, "nsecs")-e.num(t, "latency")), e)
		}
	}
	return events
}

// interrupt ends trace; it must have lost no event.
func (tr *recorder) interrupt(t *testing.T) {
	t.Helper()
	tr.end(t)
	if strings.Contains(tr.messages(t), "trace: lost") {
		t.Errorf("events were lost:\n%s", tr.messages(t))
	}
}

// end interrupts trace and waits for it; events may be lost.
func (tr *recorder) end(t *testing.T) {
	t.Helper()
	if err := tr.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := tr.cmd.Wait(); err != nil {
		t.Fatalf("trace: %v\n%s", err, tr.messages(t))
	}
}

// decodeLines returns the program's output, without the notes about attached probes and losses.
func decodeLines(t *testing.T, r io.Reader) []jsonEvent {
	t.Helper()
	var events []jsonEvent
	d := json.NewDecoder(r)
	d.UseNumber()
	for {
		var e jsonEvent
		err := d.Decode(&e)
		if err == io.EOF {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		if e["type"] != "attached_probes" && e["type"] != "lost_events" {
			events = append(events, lineOf(e))
		}
	}
}

// sh runs a shell script of the test; its output, both streams, is returned. With an emulated CPU, which other machines share, gcc was seen to
// take more than two minutes.
func sh(t *testing.T, script string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", fmt.Sprintf(script, args...))
	cmd.WaitDelay = time.Second // for what it leaves in the background
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// hideTypes makes a module look like a driver from outside of the kernel's tree: no BTF of its own, and a taint.
func hideTypes(t *testing.T, module string) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"/sys/module/" + module + "/taint": "O\n", "/sys/kernel/btf/" + module: ""}
	for path, content := range files {
		if _, err := os.Stat(path); err != nil {
			continue // kernel 5.10 has no BTF of modules
		}
		hidden := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(hidden, []byte(content), 0o444); err != nil {
			t.Fatal(err)
		}
		sh(t, "mount --bind %s %s", hidden, path)
		t.Cleanup(func() { sh(t, "umount %s", path) })
	}
}

// TestVMEnginesAgree is TestEnginesAgree on the kernel of the virtual machine.
func TestVMEnginesAgree(t *testing.T) { enginesAgree(t) }
