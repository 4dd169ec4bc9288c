//go:build !vm

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"trace/probes"
)

// What is recorded with its stacks and what is traced at the same time print the same, in text and in JSON, although the process and its
// cgroup are gone when the recording is read.
func TestReplayNames(t *testing.T) {
	requireLive(t)
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mount, _, ok := catalog.Cgroups().Mount()
	cgroup := fmt.Sprintf("/trace-replay-%d", os.Getpid())
	move := fmt.Sprintf("echo 0 >%s%s/cgroup.procs", mount, cgroup)
	if !ok || os.Mkdir(mount+cgroup, 0o755) != nil {
		move, cgroup = "true", ""
	} else {
		t.Cleanup(func() { os.Remove(mount + cgroup) })
	}
	const events = `syscall:enter / nr == getppid && comm == "helper" /`
	programs := []string{
		events + ` { @k[kstack] = count(); @k2[kstack(2), kstack(1) == kstack(2), kstack(127) == kstack] = count() }`,
		events + ` { @u[ustack] = count(); @u1[ustack(1)] = count() }`,
		events + ` { printf("%s %s\n", ustack(2), kstack(3)) }`,
		events + ` { @[cgroup] = count() }`,
		events + fmt.Sprintf(` { @[cgroup == %q, cgroup startsWith "/trace-", string(cgroup)] = count() }`, "/"+strings.TrimPrefix(cgroup, "/")),
	}
	output := func(i int) string { return filepath.Join(dir, fmt.Sprint("live", i)) }
	// Each trace is the command of the one before.
	next := writeScript(t, filepath.Join(dir, "workload"), fmt.Sprintf("(%s; exec helper 30)\nhelper 20\nrmdir %s%s 2>/dev/null || true", move, mount, cgroup))
	for i, p := range programs {
		args := fmt.Sprintf("-q -o %s", output(i))
		if i%2 == 1 {
			args += " -f json"
		}
		next = writeScript(t, filepath.Join(dir, fmt.Sprint("trace", i)), fmt.Sprintf("exec trace %s --children -c 'sh %s' '%s'", args, next, p))
	}
	file := filepath.Join(dir, "rec")
	if out, err := exec.Command("trace", "record", "--stacks", "-o", file, "--children", "-c", "sh "+next, events).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, p := range programs {
		args := []string{"-q", "-r", file}
		if i%2 == 1 {
			args = append(args, "-f", "json")
		}
		got, err := exec.Command("trace", append(args, p)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", p, err, got)
			continue
		}
		want, err := os.ReadFile(output(i))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.ContainsAny(string(want), "@+") || string(got) != string(want) {
			t.Errorf("%s: the recording prints\n%s\nwant\n%s", p, got, want)
		}
		if cgroup != "" && strings.Contains(p, "[cgroup]") && !strings.Contains(string(got), cgroup) {
			t.Errorf("no %s in %s", cgroup, got)
		}
	}
}

// What a program prints, and what its recording of the same moment prints: the same events at the same times, the same intervals, the same
// end. Events that the program does not want are not in the file; a predicate that asks a map is asked again.
func TestRecordedBesides(t *testing.T) {
	requireLive(t)
	const program = `syscall:exit / nr == getppid && comm == "helper" / {
	@took[comm] = hist(latency); @[ustack(3)] = count(); @calls[pid] += 1; printf("%d %t\n", nsecs, latency)
}
syscall:exit / nr == getppid && comm == "helper" && has_key(@calls, pid) && @calls[pid] > 5 / { @late[pid] = count() }
interval:1s { printf("%d: %d\n", nsecs, len(@calls)); time("%S\n") }
interval:1s { @seconds = count() }
end { print(nsecs) }`
	dir := t.TempDir()
	file := filepath.Join(dir, "rec")
	work := writeScript(t, filepath.Join(dir, "work"), "helper 20; sleep 2.5; helper 30")
	live, err := exec.Command("trace", "-q", "--record", file, "--children", "-c", "sh "+work, program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"@late[", "]: 15\n", "]: 25\n"} {
		if !strings.Contains(string(live), want) {
			t.Errorf("no %s in\n%s", want, live)
		}
	}
	// Two and a half seconds, and longer where the machine is busy.
	seconds := regexp.MustCompile(`(?m)^@seconds: ([2-9])$`).FindSubmatch(live)
	if seconds == nil {
		t.Fatalf("no two seconds in\n%s", live)
	}
	replayed, err := exec.Command("trace", "-r", file, program).CombinedOutput()
	if err != nil || string(replayed) != string(live) {
		t.Errorf("%v: it printed\n%s\nits recording prints\n%s", err, live, replayed)
	}
	info, err := exec.Command("trace", "info", file).CombinedOutput()
	described := regexp.MustCompile(`(?m)^  length +(\S+)\n(?:.*\n)*  interval:1s +` + string(seconds[1]) + ` events\n  syscall:exit +50 events$`).FindSubmatch(info)
	if err != nil || described == nil {
		t.Fatalf("%v\n%s", err, info)
	}
	length, err := time.ParseDuration(string(described[1]))
	if err != nil {
		t.Fatal(err)
	}
	// Another program has its own intervals, and ignores the recorded moments.
	other, err := exec.Command("trace", "-q", "-r", file, `syscall:exit { @ = count() } interval:500ms { @half = count() }`).CombinedOutput()
	// The length is rounded.
	most := fmt.Sprintf("@: 50\n@half: %d\n", (length+time.Millisecond)/(500*time.Millisecond))
	least := fmt.Sprintf("@: 50\n@half: %d\n", (length-time.Millisecond)/(500*time.Millisecond))
	if err != nil || string(other) != most && string(other) != least {
		t.Errorf("%v\n%s\nof a recording of %v", err, other, length)
	}
}

// A recording shows what was left out when it was made: with info, to a program that names it, and on a page.
func TestRecordedLeftOut(t *testing.T) {
	requireLive(t)
	if _, err := os.Stat("/sys/module/nvme_core"); err == nil {
		t.Skip("needs a machine without nvme_core")
	}
	dir := t.TempDir()
	file, page := filepath.Join(dir, "rec"), filepath.Join(dir, "page.html")
	run := func(want int, args ...string) string {
		cmd := exec.Command("trace", args...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%q: exit status %d, want %d\n%s", args, got, want, out)
		}
		return string(out)
	}
	laidOut := func() string {
		made, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		return string(made)
	}
	const program, warns, why = `nvme:sq, syscall:exit { @[probe] = count() }`, "config = { missing_probes = warn } ", "module nvme_core is not loaded"
	run(0, "record", "-o", file, "-c", "helper 20", `nvme:*, syscall:exit / comm == "helper" /`)
	for name, out := range map[string]string{
		"info":     run(0, "info", file),
		"a glob":   run(0, "-r", file, "nvme:*, syscall:exit { @[probe] = count() }"),
		"missing":  run(0, "-r", file, warns+program),
		"named":    run(2, "-r", file, program),
		"page":     run(0, "-q", "-r", file, "-f", "html", "-o", page, warns+program) + laidOut(),
		"its live": run(0, "-q", "-f", "html", "-o", page, "-c", "helper 20", warns+program) + laidOut(),
	} {
		if !strings.Contains(out, "nvme:sq") || !strings.Contains(out, why) {
			t.Errorf("%s shows nothing of nvme:sq, %s:\n%s", name, why, out)
		}
	}
	if made := laidOut(); !strings.Contains(made, "not traced: nvme:sq") || strings.Contains(made, "nothing was lost") {
		t.Errorf("the page does not say that nvme:sq was not traced")
	}
}

// trace info describes a recording that was cut off.
func TestInfo(t *testing.T) {
	whole := readDoc(t, "docs/testdata/load.rec")
	file := filepath.Join(t.TempDir(), "cut.rec")
	if err := os.WriteFile(file, []byte(whole[:len(whole)*3/4]), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("trace", "info", file).Output()
	for _, want := range []string{`(?m)^  length +[0-9.]+m?s, then it was cut off$`, `(?m)^  nvme:complete_rq +[0-9]+ events$`} {
		if err != nil || !regexp.MustCompile(want).Match(out) {
			t.Errorf("trace info: %v\n%s\nlacks %s", err, out, want)
		}
	}
}

// A recording that -n or exit() ended ends its replay at the same time; of a longer one the rest is not played.
func TestRecordedEnd(t *testing.T) {
	requireLive(t)
	const all = `syscall:exit / nr == getppid && comm == "helper" / { printf("%%d\n", nsecs)%s; @all = count() } end { printf("end %%d\n", nsecs) }`
	exits := fmt.Sprintf(all, "; @n += 1; if (@n == 5) { exit() }")
	for _, args := range [][]string{{"-n", "5", fmt.Sprintf(all, "")}, {exits}} {
		file := filepath.Join(t.TempDir(), "rec")
		live, err := exec.Command("trace", append([]string{"-q", "--record", file, "--children", "-c", "helper 50"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		replayed, err := exec.Command("trace", append([]string{"-r", file}, args...)...).CombinedOutput()
		if err != nil || string(replayed) != string(live) || !regexp.MustCompile(`^(\d+\n){5}end `).Match(live) {
			t.Errorf("%q: %v: it printed\n%s\nits recording prints\n%s", args, err, live, replayed)
		}
	}
	file := filepath.Join(t.TempDir(), "longer")
	if out, err := exec.Command("trace", "-q", "--record", file, "--children", "-c", "helper 50", fmt.Sprintf(all, "")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	replayed, err := exec.Command("trace", "-r", file, exits).CombinedOutput()
	lines := strings.Split(string(replayed), "\n")
	if err != nil || len(lines) != 9 || "end "+lines[4] != lines[5] {
		t.Errorf("%v: the replay goes on after exit():\n%s", err, replayed)
	}
}

// writeScript returns the name of a file with a shell script.
func writeScript(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// A recording without stacks is reported before it is read.
func TestReplayWithoutStacks(t *testing.T) {
	file := recordReads(t, 3)
	for _, word := range []string{"kstack", "ustack(5)"} {
		out, err := exec.Command("trace", "-r", file, "nvme:complete_rq { @["+word+"] = count() }").CombinedOutput()
		var exited *exec.ExitError
		if !errors.As(err, &exited) || exited.ExitCode() != exitUsage || !strings.Contains(string(out), "record with --stacks") {
			t.Errorf("%s: %v\n%s", word, err, out)
		}
	}
}
