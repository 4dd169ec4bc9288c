package exec

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"trace/lang/check"
	"trace/lang/codegen/bpftest"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
)

// Calls of many threads, which end and whose numbers are used again, while programs are executed and the CPUs sampled, have their own latencies:
// those in a table by thread, and those in the hash for which it has no room.
func TestLatencyOfManyThreads(t *testing.T) {
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprint("full tables: ", full), func(t *testing.T) { traceManyThreads(t, full) })
	}
}

const (
	crowd       = 4   // threads for each CPU at once
	generations = 10  // of threads, one after the other
	crowdCalls  = 500 // of getppid by each thread, which sleeps once
	nap         = 2 * time.Millisecond
)

func traceManyThreads(t *testing.T, fullTables bool) {
	text := fmt.Sprintf(`syscall:exit / pid == %[1]d && nr == getppid / { @calls = count(); @sum = sum((uint64)latency) }
		syscall:exit / pid == %[1]d && nr == clock_nanosleep / { @naps = count() }
		syscall:exit / pid == %[1]d && nr == clock_nanosleep && ret == 0 / { @shortest = min((uint64)latency) }
		syscall:exit / pid == %[1]d && nr in [getppid, clock_nanosleep] && latency == nil / { @unknown = count() }
		profile:10000hz { @samples = count() }`, os.Getpid())
	var took time.Duration
	numbers := mapsOf(t, probes.HostOptions{FullTables: fullTables}, text, func() { took = callByManyThreads(t) })
	naps := crowd * generations * runtime.NumCPU()
	if numbers["calls"] != naps*crowdCalls || numbers["naps"] != naps || numbers["unknown"] != 0 || numbers["samples"] == 0 {
		t.Errorf("%v, want %d calls and %d naps", numbers, naps*crowdCalls, naps)
	}
	if numbers["shortest"] < int(nap) || numbers["sum"] > int(took) {
		t.Errorf("the shortest nap of %v took %d ns; the calls took %d ns, by the threads' own clock %v", nap, numbers["shortest"], numbers["sum"], took)
	}
}

// callByManyThreads returns how long the calls of getppid took at most.
// Signals of Go's scheduler break some naps, whose calls return EINTR.
func callByManyThreads(t *testing.T) time.Duration {
	var took atomic.Int64
	for range generations {
		var wg sync.WaitGroup
		for range crowd * runtime.NumCPU() {
			wg.Go(func() {
				runtime.LockOSThread() // the thread ends with the function
				began := time.Now()
				for range crowdCalls {
					unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
				}
				took.Add(int64(time.Since(began)))
				naptime := unix.NsecToTimespec(int64(nap))
				unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &naptime, nil) // Go's own threads call nanosleep
			})
		}
		wg.Go(func() {
			if err := exec.Command("true").Run(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
	return time.Duration(took.Load())
}

var number = regexp.MustCompile(`(?m)^@(\w+): (\d+)$`)

// mapsOf runs a program in the kernel while do runs, and returns its maps, which hold numbers.
func mapsOf(t *testing.T, options probes.HostOptions, text string, do func()) map[string]int {
	t.Helper()
	out, _ := traced(t, options, text, do)
	numbers := make(map[string]int)
	for _, found := range number.FindAllStringSubmatch(out, -1) {
		numbers[found[1]], _ = strconv.Atoi(found[2])
	}
	return numbers
}

// traced runs a program in the kernel while do runs, and returns what it prints at its end, and what was lost.
func traced(t *testing.T, options probes.HostOptions, text string, do func()) (string, []probes.Losses) {
	t.Helper()
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	host, err := probes.Detect(catalog, options)
	if err != nil {
		t.Fatal(err)
	}
	program, err := compile("program", text, catalog.Probes(), check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	divided, err := plan.New(program, plan.Options{StackLeft: catalog.StackLeft, CompareExchange: plan.CompareExchange, CPUs: ebpf.MustPossibleCPU()})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	run, err := Start(divided, Options{Sink: output.NewPrinter(&out, output.Text, event.NewWallClock(time.Now())), Now: now, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	session, err := probes.Attach(t.Context(), host, divided.Requests(), probes.AttachOptions{Maps: run.Maps(), Layouts: divided.Layouts()})
	if err != nil {
		t.Fatal(err)
	}
	do()
	if err := session.Detach(); err != nil {
		t.Fatal(err)
	}
	losses, err := session.Losses()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run.End(); err != nil {
		t.Fatal(err)
	}
	return out.String(), losses
}
