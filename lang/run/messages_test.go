package run

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"trace/lang/exec"
)

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestOptionErrors(t *testing.T) {
	wantError(t, checkMemory(1<<62), "the maps of this program would take 4398046511104 MiB, more than a quarter of the ")
	wantError(t, checkMemory(1<<62), " MiB of memory that are available: lower --map-size (--explain shows the size of each map)")
	_, err := SplitWords("a | b")
	wantError(t, err, `(there is no shell: to use one, write -c "sh -c '…'")`)
	for value, want := range map[string]string{
		"100ms": "expected two durations, like 100ms/1s: attached for 100 ms in each second", "x/1s": "expected two durations", "100ms/": "expected two durations",
		"0/1s": "attaching takes about as long: use at least 10ms/100ms", "-1s/1s": "attaching takes about as long",
		"1s/1s": "1s is not a part of 1s; without --burst it is attached all the time", "2s/1s": "2s is not a part of 1s",
	} {
		var b Burst
		wantError(t, b.Set(value), want)
	}
	var b Burst
	if err := b.Set("100ms/1s"); err != nil || b != (Burst{100 * time.Millisecond, time.Second}) || b.String() != "100ms/1s" || new(Burst).String() != "" {
		t.Errorf("%v %v", &b, err)
	}
	rec, err := OpenRecordings("../../scripts/testdata/nvme_latency.rec")
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	_, err = NewReplay(Options{Text: "nvme:*", Filter: Filter{Children: true}}, rec)
	wantError(t, err, "--children: a recording does not have the tree of processes")
}

// A thread is not a process, and in a container with process ids of its own no process is known.
func TestThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tids := make(chan int)
	end := make(chan struct{})
	defer close(end)
	go func() {
		runtime.LockOSThread()
		tids <- syscall.Gettid()
		<-end
	}()
	tid, want := <-tids, ": this is a thread: use the id of its process"
	if tid == os.Getpid() {
		tid = syscall.Gettid()
	}
	if own, err := os.Readlink("/proc/self/ns/pid"); err == nil && own != initialPIDs {
		want = ": this container has its own process ids, but events have the host's: start it with --pid=host, or filter by comm, cgroup or pidns"
	}
	_, err := openProcess(tid)
	wantError(t, err, want)
}

func TestUnreadFIFO(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := OpenForWriting(ctx, name)
	wantError(t, err, "output file: no process reads "+name)
}

func TestDifference(t *testing.T) {
	updates := exec.MapLosses{Map: "@"}
	updates.Full = 2
	for want, report := range map[string]Report{
		"the engines cannot be compared: 1 event did not reach user space, so their output differs: raise --buffer-size, or trace fewer events": {
			Probes: []Probe{{RingFull: 1}}},
		"the engines cannot be compared: @ lost 2 updates, not the same ones in each engine, so their output differs": {
			Maps: []exec.MapLosses{updates}},
		"the engines differ, which is a bug in trace, unless the program calls time() at an event; the second run, entirely in user space, printed:\n2": {},
	} {
		l := &Live{options: Options{Machine: Machine{Compare: true}}, report: report}
		l.first.WriteString("1")
		l.second.WriteString("2")
		wantError(t, l.difference(), want)
	}
	// Each run has records of its own, so events of two CPUs can come in another order.
	l := &Live{options: Options{Machine: Machine{Compare: true}}}
	l.first.WriteString("1\n2\n2\n")
	l.second.WriteString("2\n1\n2\n")
	if err := l.difference(); err != nil {
		t.Error(err)
	}
	l.second.WriteString("1\n")
	if l.difference() == nil {
		t.Error("a line that only one run printed is no difference")
	}
}
