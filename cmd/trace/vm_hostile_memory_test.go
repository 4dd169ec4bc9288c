//go:build vm

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang/run"
)

// hostileCrowd are 20 processes of a user without rights, which have a device open, or pretend to: see testdata/vm/hostile_memory.c.
var hostileCrowd = []string{
	"huge", "huge", "huge", "zero", "missing", "flip", "fuse-flip", "name", "qp", "fuse-name", "fuse-qp", "fuse-code", "fuse-overlay", "fuse-exe",
	"fuse-fd", "fuse-lock", "regular", "fifo", "char", "folder",
}

// unanswered are those that trace cannot know, and names. forged have no device.
var (
	unanswered = []string{"huge", "missing", "fuse-code", "fuse-overlay"}
	forged     = []string{"regular", "fifo", "char", "folder"}
)

// A hostileProcess is one of them.
type hostileProcess struct {
	how string
	*quiet
}

// startHostileCrowd starts some of them.
func startHostileCrowd(t *testing.T, path string, hows []string) (all []hostileProcess) {
	t.Helper()
	for i, how := range hows {
		args := []string{path, how}
		if strings.HasPrefix(how, "fuse-") || strings.Contains(strings.Join(forged, " "), how) {
			folder := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%d", how, i))
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			args = append(args, folder)
		}
		all = append(all, hostileProcess{how, startQuiet(t, "unshare", append([]string{"--mount"}, args...)...)})
	}
	return all
}

// endCrowd ends them: what waits for one of them goes on.
func endCrowd(all []hostileProcess) {
	for _, p := range all {
		p.in.Close()
	}
}

func buildHostileMemory(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	sh(t, `chmod 755 %[1]s %[2]s
gcc -Wall -Werror -O2 -o %[1]s/hostile_memory testdata/vm/hostile_memory.c -libverbs -lpthread
modprobe fuse
sysctl -q vm.unprivileged_userfaultfd=1`, dir, filepath.Dir(dir))
	return dir + "/hostile_memory"
}

// endsWithin interrupts trace, and reports whether it ends in a time. If not, the crowd is ended, for which it may wait in the kernel.
func endsWithin(t *testing.T, trace *exec.Cmd, limit time.Duration, crowd []hostileProcess) (took time.Duration, ok bool) {
	t.Helper()
	began := time.Now()
	if err := trace.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	for !ended(t, trace) {
		if time.Since(began) > limit+20*time.Second {
			t.Logf("trace does not end; its threads wait in\n%s", sh(t, "head -n 12 /proc/%d/task/*/stack", trace.Process.Pid))
			endCrowd(crowd)
			trace.Process.Kill()
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	took = time.Since(began)
	trace.Wait()
	return took, took <= limit
}

// userPurse is how many bytes may be read at once of the processes of one user, and userIncome in each second that follows. mostHeld is how much memory
// the work on processes may take: probes/verbs/turns.go.
const (
	userPurse, userIncome = 16 << 30, 100 << 20
	mostHeld              = 2 * 96 << 20 // with its garbage
)

// A search is what it costs trace to find the honest program.
type search struct {
	kilobytes  uint64        // read of processes
	peak       uint64        // of its own memory, in kB
	start, end time.Duration // until it has attached, and from the interrupt on
}

var searchedLine = regexp.MustCompile(`(\d+) KiB of processes were read to find what they call`)

// TestVMHostileMemory has trace look into 20 hostile processes: it attaches, finds the honest program after few bytes more, ends at an
// interrupt, also while it looks, and takes no more memory.
func TestVMHostileMemory(t *testing.T) {
	path := buildHostileMemory(t)
	alone := searchFor(t, 18800, time.Minute, nil)
	t.Logf("alone: %+v", alone)
	crowd := startHostileCrowd(t, path, hostileCrowd)
	t.Cleanup(func() { endCrowd(crowd) })
	limit := alone.end + time.Second
	beside := searchFor(t, 18801, limit, crowd)
	t.Logf("beside 20 hostile processes: %+v", beside)
	if most := 2*alone.kilobytes + (userPurse+userIncome*uint64(beside.start.Seconds()+1))>>10; beside.kilobytes > most {
		t.Errorf("%d KiB are read before it has attached, at most %d are allowed; %d if the honest program is alone", beside.kilobytes, most, alone.kilobytes)
	}
	if most := alone.peak + mostHeld>>10; beside.peak > most {
		t.Errorf("%d kB of memory are taken, %d without hostile processes", beside.peak, alone.peak)
	}
	if t.Failed() {
		return // the crowd may have ended
	}
	for _, wait := range []time.Duration{alone.start / 4, alone.start / 2, alone.start, 2 * alone.start} {
		trace := exec.Command("trace", "verbs:poll_cq")
		if err := trace.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(wait)
		took, ok := endsWithin(t, trace, limit, crowd)
		if t.Logf("interrupted after %v: it ends in %v", wait, took); !ok {
			t.Errorf("more than %v", limit)
			return // the crowd has ended
		}
	}
	diagnose(t, crowd)
}

// searchFor has trace find the honest program, and count what that does. It must name who is refused.
func searchFor(t *testing.T, port int, limit time.Duration, crowd []hostileProcess) (s search) {
	t.Helper()
	server := honestPings.serve(t, port)
	trace := &tool{cmd: exec.Command("trace", "-v", programTotals("pid")), name: "trace"}
	trace.cmd.Stdout, trace.cmd.Stderr = &trace.out, &trace.out
	began := time.Now()
	if err := trace.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { trace.cmd.Process.Kill() })
	attached := func() bool { return strings.Contains(trace.out.String(), "ttached") }
	for !attached() {
		if time.Since(began) > 2*time.Minute {
			_, ok := endsWithin(t, trace.cmd, limit, crowd)
			t.Fatalf("trace does not attach, and ends at an interrupt: %t\n%s", ok, trace.out.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.start = time.Since(began)
	client := honestPings.connect(t, port)
	client.result()
	server.result()
	s.peak = peakOf(t, trace.cmd.Process.Pid)
	var ok bool
	if s.end, ok = endsWithin(t, trace.cmd, limit, crowd); !ok {
		t.Errorf("trace ends after %v, at most %v are allowed", s.end, limit)
	}
	text := trace.out.String()
	want := make(map[string]uint64)
	served := honestPings.counts(t, server.out.String(), false)
	served.receives["false"] -= honestPings.early
	served.addTo(want, server.cmd.Process.Pid)
	honestPings.counts(t, client.out.String(), true).addTo(want, client.cmd.Process.Pid)
	compareCounts(t, countsOf(mapsOf(text)), want)
	if found := searchedLine.FindStringSubmatch(text); found == nil {
		t.Error("how much was read is not reported")
	} else {
		s.kilobytes, _ = strconv.ParseUint(found[1], 10, 64)
	}
	// On a machine with other work, what a user may take of the beginning is spent before all of his large processes are looked into.
	later := strings.Contains(text, "verbs: processes of user 1000 are looked into later: there is much to read in them\n")
	for _, p := range crowd {
		if strings.Contains(strings.Join(unanswered, " "), p.how) && !named(trace, p.pid, refusal) && !(later && p.how == "huge") {
			t.Errorf("process %d, %s, is not named", p.pid, p.how)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	return s
}

// peakOf returns how much memory a process has had, in kB.
func peakOf(t *testing.T, pid int) uint64 {
	t.Helper()
	kB, err := strconv.ParseUint(strings.TrimSpace(sh(t, "sed -n 's/^VmHWM:\\s*\\([0-9]*\\) kB/\\1/p' /proc/%d/status", pid)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kB
}

// diagnose has doctor name those that are refused, and none without a device.
func diagnose(t *testing.T, crowd []hostileProcess) {
	t.Helper()
	out, err := exec.Command("timeout", "-s", "KILL", "120", "trace", "doctor", "verbs", "-f", "json").Output()
	var d run.VerbsDiagnosis
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	listed := make(map[int]run.VerbsDiagnosis)
	for _, p := range d.Processes {
		listed[p.PID] = d
		for _, h := range crowd {
			if p.PID == h.pid && strings.Contains(strings.Join(unanswered, " "), h.how) && (len(p.Devices) == 0 || p.Devices[0].Refused == "") {
				t.Errorf("doctor shows process %d, %s: %+v", h.pid, h.how, p)
			}
		}
	}
	for _, h := range crowd {
		_, is := listed[h.pid]
		if strings.Contains(strings.Join(forged, " "), h.how) && is {
			t.Errorf("doctor lists process %d, %s, which has no device", h.pid, h.how)
		}
	}
}

// Processes that become hostile while trace runs do not keep it from finding a honest one that has a library of its own.
func TestVMHostileLater(t *testing.T) {
	path := buildHostileMemory(t)
	dir := filepath.Dir(path)
	data := buildDatapath(t)
	trace := startTool(t, "ttached", "trace", programTotals("pid"))
	crowd := startHostileCrowd(t, path, hostileCrowd)
	t.Cleanup(func() { endCrowd(crowd) })
	for _, p := range crowd {
		if p.how != "fuse-lock" { // it waits itself
			fmt.Fprintln(p.in)
		}
	}
	own := fmt.Sprintf("mkdir -p %s/own && mount -t tmpfs none %[1]s/own && cp %s/* %[1]s/own && mount --bind %[1]s/own %[2]s && exec %s op=write count=50 wait=1",
		dir, libraryFolder, data)
	honest := startDatapathBy(t, exec.Command("unshare", "--mount", "sh", "-ec", own))
	waitUntil(t, "the honest program is found", func() bool { return named(trace, honest.cmd.Process.Pid, "") })
	want := make(map[string]uint64)
	honest.finish(t).processCounts("RDMA_WRITE").addTo(want, honest.cmd.Process.Pid)
	if took, ok := endsWithin(t, trace.cmd, 10*time.Second, crowd); !ok {
		t.Errorf("trace ends after %v", took)
	}
	compareCounts(t, countsOf(mapsOf(trace.out.String())), want)
}
