//go:build vm

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// full reports whether the long forms are run (FULL=1 of .ci/vmtest). CI has no time for all that differs little.
func full() bool { return *soak > time.Minute }

var soak = flag.Duration("soak", 20*time.Second, "how long TestVMSoak and TestVMSoakVerbs keep everything busy")

// everything is all probes of RDMA and NVMe that are traced, not read.
const everything = "ib:*, mlx5:*, cm:*, nvme:*, rdma:qp, rdma:resource"

// TestVMSoak has all probes of RDMA and NVMe at work at once while fio and connections keep the machine as busy as it can be. One trace
// counts in the kernel, by stacks, too; another one records, without them: to name each stack of this load an emulated CPU has no time. Their
// events and their reported losses make up ftrace's counts, and they do not grow.
func TestVMSoak(t *testing.T) {
	sh(t, "modprobe mlx5_ib") // loads without its device, with all its functions
	counter := start(t, everything+` { @events[probe] = count(); @stacks[probe, kstack] = count() }
		interval:2s { print(@events); print(@stacks, 5) }`)
	recording := filepath.Join(t.TempDir(), "recording")
	recorder := startCommand(t, exec.Command("trace", "record", "-v", "--max-size", "64MiB", "-o", recording, everything))
	hits := startHits(t)

	var counterMemory, recorderMemory []usage
	ios := busy(t, *soak, func() {
		counterMemory = append(counterMemory, usageOf(t, counter.cmd.Process.Pid))
		recorderMemory = append(recorderMemory, usageOf(t, recorder.cmd.Process.Pid))
	})
	want := hits()
	counted := counter.counts(t)
	recorder.end(t)

	stacks := 0
	for probe, n := range counted.byStack {
		stacks += n
		if n > counted.events[probe] {
			t.Errorf("%s: %d stacks of %d events", probe, n, counted.events[probe])
		}
	}
	total := 0
	for _, n := range counted.events {
		total += n
	}
	if dropped := total - stacks; dropped != droppedUpdates(t, counter.messages(t), "@stacks") {
		t.Errorf("%d events, %d stacks; the report:\n%s", total, stacks, counter.messages(t))
	}
	// Some calls of the kernel's functions are about objects that it does not show (TestVMRdmaEvents): both tools must have the same number.
	want["rdma:resource"] = counted.events["rdma:resource"]
	// Each tool asks for the QPs of before at its start, and sees others ask: TestVMRdmaQPsFromBefore counts them.
	delete(counted.events, "rdma:qp")
	checkSoak(t, "counter", counted.events, lostOf(t, counter.messages(t)), want)
	recorded := map[string]int{}
	for probe, n := range tallies(t, recorder.messages(t)) {
		recorded[probe] = n[1]
	}
	delete(recorded, "rdma:qp")
	checkSoak(t, "recorder", recorded, lostOf(t, recorder.messages(t)), want)
	if n := counted.events["nvme:complete_rq"]; ios == 0 || n < ios {
		t.Errorf("%d commands, fio reports %d", n, ios)
	}
	for _, probe := range strings.Fields("ib:create_qp ib:modify_qp ib:reg_mr ib:get_gid cm:send_req cm:disconnect nvme:sq rdma:resource") {
		if want[probe] == 0 {
			t.Errorf("there was no %s", probe)
		}
	}
	checkUsage(t, "counter", counterMemory)
	checkUsage(t, "recorder", recorderMemory)
	t.Logf("fio: %d commands in %v; %d events, %d of them with stacks that had room", ios, *soak, total, stacks)
}

// checkSoak wants nothing to be missing that is not reported, and nothing that was not there. What is reported may be more than what is
// missing: runs that the kernel skipped may be of the beginning or of the end of a function.
func checkSoak(t *testing.T, name string, got, lost, want map[string]int) {
	t.Helper()
	for probe := range maps.Keys(merge(got, lost, want)) {
		if missing := want[probe] - got[probe]; missing < 0 || missing > lost[probe] {
			t.Errorf("%s: %s: %d, and %d reported as lost; ftrace counts %d", name, probe, got[probe], lost[probe], want[probe])
		}
	}
	t.Logf("%s: events %v", name, got)
	t.Logf("%s: lost %v", name, lost)
}

// merge has the keys of all.
func merge(all ...map[string]int) map[string]int {
	keys := map[string]int{}
	for _, m := range all {
		maps.Copy(keys, m)
	}
	return keys
}

// startHits lets ftrace count what each probe is about; the returned function returns how much of it came since. The
// functions are the driver's; their names are the same on every kernel.
func startHits(t *testing.T) func() map[string]int {
	t.Helper()
	functions := map[string]string{
		"ib:create_qp": "rxe_create_qp", "ib:modify_qp": "rxe_modify_qp", "ib:destroy_qp": "rxe_destroy_qp",
		"ib:get_gid": "rdma_get_gid_attr", "ib:gid_ndev": "rdma_read_gid_attr_ndev_rcu",
	}
	maps.Copy(functions, objectProbes)
	symbols := sh(t, "cat /proc/kallsyms")
	events := map[string]string{} // probes by the folders of events
	for probe, list := range functions {
		for function := range strings.FieldsSeq(list) {
			if regexp.MustCompile(`(?m) [tT] ` + function + `\b`).MatchString(symbols) {
				sh(t, "echo p:soak/%s %[1]s >> %s/kprobe_events", function, tracefs)
				t.Cleanup(func() { sh(t, "echo -:soak/%s >> %s/kprobe_events", function, tracefs) })
				events["soak/"+function] = probe
			}
		}
	}
	for group, prefix := range map[string]string{"nvme": "nvme_", "rdma_cma": "cm_"} {
		folders, err := filepath.Glob(filepath.Join(tracefs, "events", group, prefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range folders {
			name := strings.TrimPrefix(filepath.Base(folder), prefix)
			if name == "prepare_mra" {
				name = "send_mra"
			}
			events[group+"/"+filepath.Base(folder)] = strings.TrimSuffix(prefix, "_") + ":" + name
		}
	}
	instances := map[string]string{} // probes by the folder of a trace of their own
	for event, probe := range events {
		folder := filepath.Join(tracefs, "instances", filepath.Base(event))
		mkdir(t, folder)
		enable := filepath.Join(folder, "events", event, "enable")
		t.Cleanup(func() {
			writeFile(t, enable, "0")
			os.Remove(folder)
		})
		writeFile(t, filepath.Join(folder, "buffer_size_kb"), "64")
		writeFile(t, enable, "1")
		instances[folder] = probe
	}
	return func() map[string]int {
		t.Helper()
		counts := map[string]int{}
		for folder, probe := range instances {
			counts[probe] += written(t, folder)
		}
		return counts
	}
}

var bufferStat = regexp.MustCompile(`(?m)^(entries|overrun|commit overrun|dropped events): (\d+)$`)

// written is how many events went into a trace of ftrace: those that are there, and those that later ones took the room of.
func written(t *testing.T, folder string) (total int) {
	t.Helper()
	for _, m := range bufferStat.FindAllStringSubmatch(sh(t, "cat %s/per_cpu/cpu*/stats", folder), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		switch m[1] {
		case "entries", "overrun":
			total += n
		default:
			if n > 0 {
				t.Fatalf("%s: %s: %d", folder, m[1], n)
			}
		}
	}
	return total
}

// busy runs fio on both disks, and connections of two kinds one after the other. Meanwhile look is called each second: a connection may take
// a minute. It returns how many commands fio reports.
func busy(t *testing.T, lasts time.Duration, look func()) int {
	t.Helper()
	small, large := namespaces(t)
	for _, ns := range []namespace{small, large} { // a command for each read and write
		writeFile(t, "/sys/block/"+ns.disk+"/queue/nomerges", "2")
	}
	fio := exec.Command("fio", append(fioArgs(small, "--time_based", fmt.Sprint("--runtime=", int(lasts.Seconds())), "--iodepth=32 --rw=randrw --bs=4k"),
		"--name=small", "--name=large", "--filename=/dev/"+large.disk)...)
	var out strings.Builder
	fio.Stdout, fio.Stderr = &out, os.Stderr
	if err := fio.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- fio.Wait() }()
	defer eachSecond(look)()
	for {
		select {
		case err := <-ended:
			var run fioRun
			if err := json.Unmarshal([]byte(out.String()), &run); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Fatalf("fio: %v", err)
			}
			ios := 0
			for _, job := range run.Jobs {
				ios += job.Read.Total + job.Write.Total
			}
			return ios
		default:
		}
		connectOnce(t, waitForListener, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "100")
		connectOnce(t, waitForRping, "rping", "-a", "10.9.0.1", "-C", "5")
	}
}

// eachSecond calls look until end is called.
func eachSecond(look func()) (end func()) {
	done := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		for {
			look()
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
		}
	})
	return func() {
		close(done)
		looks.Wait()
	}
}

// connectOnce runs a server and its client.
func connectOnce(t *testing.T, wait func(*testing.T), args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // fio leaves them little time
	defer cancel()
	role := func(flags ...string) *exec.Cmd {
		return exec.CommandContext(ctx, args[0], append(slices.Clone(args[1:]), flags...)...)
	}
	server, client := role(), role("10.9.0.1")
	if args[0] == "rping" {
		server, client = role("-s"), role("-c")
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t)
	if out, err := client.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", client.Args, err, out)
	}
	server.Wait() // rping means that its client has gone
}

// usage is the memory of a process, in KiB: its own, and the memory of its BPF maps in the kernel.
type usage struct{ own, kernel int }

var (
	rss     = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)
	memlock = regexp.MustCompile(`(?m)^map_type:(?s:.*)^memlock:\t(\d+)`)
)

// usageOf is for any goroutine.
func usageOf(t *testing.T, pid int) (u usage) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
		return u
	}
	m := rss.FindSubmatch(status)
	if m == nil {
		t.Errorf("process %d has no memory:\n%s", pid, status)
		return u
	}
	fmt.Sscan(string(m[1]), &u.own)
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Error(err)
	}
	for _, path := range infos {
		info, _ := os.ReadFile(path) // a file that was open for a moment is gone
		if m := memlock.FindSubmatch(info); m != nil {
			var bytes int
			fmt.Sscan(string(m[1]), &bytes)
			u.kernel += bytes >> 10
		}
	}
	return u
}

// fewestLooks are as many as tell what a program gathers at its start from what grows. In half a minute neither the blocks of a recording
// nor the heap that Go's collector allows are full: a recorder with 12 MB in use went from 20 to 34 MB.
const fewestLooks = 60

// checkUsage wants a process to need no more in the second half than it has needed in the first: 4 MiB apart, which is what Go's
// collector may let pile up. Its maps have their room from the start.
func checkUsage(t *testing.T, name string, all []usage) {
	t.Helper()
	most := func(part []usage) (m usage) {
		for _, u := range part {
			m.own, m.kernel = max(m.own, u.own), max(m.kernel, u.kernel)
		}
		return m
	}
	if len(all) < 2 {
		t.Fatalf("%s: memory was looked at only %d times", name, len(all))
	}
	first, second := most(all[:len(all)/2]), most(all[len(all)/2:])
	t.Logf("%s: memory was looked at %d times, KiB at the start %v, at most %v in the first half, %v in the second", name, len(all), all[0], first, second)
	if second.kernel != all[0].kernel || second.kernel == 0 {
		t.Errorf("%s: memory of maps changes: %v", name, all)
	}
	if len(all) < fewestLooks {
		t.Logf("%s: too few looks to tell what it gathers at its start from what grows", name)
		return
	}
	if second.own > first.own+4<<10 {
		t.Errorf("%s: memory grows: %v", name, all)
	}
}

// soaked is what the counting program has at its end.
type soaked struct {
	events, byStack map[string]int // by probe
}

func (tr *recorder) counts(t *testing.T) soaked {
	t.Helper()
	tr.end(t)
	s := soaked{}
	for _, m := range tr.decoded(t) { // the last print of a map is the one at the end
		sums := map[string]int{}
		entries, _ := m.at("entries").([]any)
		for _, entry := range entries {
			e := jsonEvent(entry.(map[string]any))
			probe := ""
			if key, _ := e.at("key").([]any); len(key) > 0 {
				probe = fmt.Sprint(key[0])
			}
			sums[probe] += int(e.num(t, "value"))
		}
		switch m.text("name") {
		case "@events":
			s.events = sums
		case "@stacks":
			s.byStack = sums
		}
	}
	return s
}

// lostOf returns by probe what was lost, from the report.
func lostOf(t *testing.T, notes string) map[string]int {
	t.Helper()
	lost := map[string]int{}
	for probe, n := range tallies(t, notes) {
		if n[3] > 0 {
			lost[probe] = n[3]
		}
	}
	return lost
}

// droppedUpdates returns how many updates of a map failed for lack of room or memory, or by contention, from the report.
func droppedUpdates(t *testing.T, notes, name string) int {
	t.Helper()
	dropped := 0
	for _, m := range regexp.MustCompile(`(?m)^trace: `+name+`: .*?(\d+) updates?\b`).FindAllStringSubmatch(notes, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		dropped += n
	}
	return dropped
}
