package probes_test

import (
	"bytes"
	"flag"
	"math"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"trace/lang"
	"trace/lang/check"
	"trace/lang/codegen/bpftest"
	"trace/lang/exec"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
)

var peerObject = flag.String("nvme.c", "", "`object` compiled from cmd/bench/peer.bpf.c")

// BenchmarkNvmeLatency is what the latency of an NVMe command costs on this machine's own CPU, without a disk and without the driver's module:
// the programs run by themselves, over requests in the memory of a map. make bench runs it. The figures are of a submission and a completion
// together, in the fastest batch: what the kernel accounts, and what the clock shows over two empty programs.
func BenchmarkNvmeLatency(b *testing.B) {
	b.Run("trace", func(b *testing.B) {
		const text = "nvme:complete_rq { @[qid] = hist(latency) }"
		programs, counted := traceNvme(b, text)
		benchmarkNvme(b, programs, counted)
	})
	b.Run("C", func(b *testing.B) {
		programs, counted := nvmeByHand(b)
		benchmarkNvme(b, programs, counted)
	})
}

// nvmePrograms run at the beginning and at the end of each command.
type nvmePrograms struct{ submit, complete *ebpf.Program }

// traceNvme compiles and loads a program. counted ends it and returns the number of latencies that it prints.
func traceNvme(b *testing.B, text string) (programs nvmePrograms, counted func() int) {
	b.Helper()
	if err := bpftest.Permitted(); err != nil {
		b.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	catalog := must(probes.Load())(b)
	host := must(probes.Detect(catalog, probes.HostOptions{}))(b)
	program := must(lang.Compile("nvme", text, catalog.Probes(), check.Options{}))(b)
	divided := must(lang.Prepare(program, plan.Options{
		StackLeft: catalog.StackLeft, Alone: host.Alone, CompareExchange: plan.CompareExchange, CPUs: ebpf.MustPossibleCPU(),
	}))(b)
	var printed bytes.Buffer
	run := must(lang.Start(divided, exec.Options{
		Sink: output.NewPrinter(&printed, output.Text, event.NewWallClock(time.Now())), Now: func() uint64 { return 0 }, Context: b.Context(),
	}))(b)
	b.Cleanup(func() { run.Close() })
	loaded := must(probes.LoadUnattached(host, divided.Requests()[0], run.Maps()))(b)
	b.Cleanup(loaded.Close)
	if len(loaded.Programs) != 2 {
		b.Fatalf("%d programs", len(loaded.Programs))
	}
	return nvmePrograms{loaded.Programs[submitProgram], loaded.Programs[completeProgram]}, func() (n int) {
		if err := run.End(); err != nil {
			b.Fatal(err)
		}
		for _, bucket := range regexp.MustCompile(`(?m)^\[.*\) +(\d+) `).FindAllStringSubmatch(printed.String(), -1) {
			latencies, _ := strconv.Atoi(bucket[1])
			n += latencies
		}
		return n
	}
}

// nvmeByHand loads the programs of peer.bpf.c.
func nvmeByHand(b *testing.B) (programs nvmePrograms, counted func() int) {
	b.Helper()
	if *peerObject == "" {
		b.Skip("needs -nvme.c")
	}
	spec := must(ebpf.LoadCollectionSpec(*peerObject))(b)
	const submit, complete = "nvme_submit", "nvme_complete"
	spec.Programs = map[string]*ebpf.ProgramSpec{submit: spec.Programs[submit], complete: spec.Programs[complete]}
	loaded := must(ebpf.NewCollection(spec))(b)
	b.Cleanup(loaded.Close)
	return nvmePrograms{loaded.Programs[submit], loaded.Programs[complete]}, func() (n int) {
		var perCPU [][2 + 63]uint64
		if err := loaded.Maps["buckets_by_key"].Lookup(uint32(nvmeQueue+1), &perCPU); err != nil {
			b.Fatal(err)
		}
		for _, buckets := range perCPU {
			for _, latencies := range buckets {
				n += int(latencies)
			}
		}
		return n
	}
}

// inFlight is how many commands are on their way at once.
const inFlight = 64

func benchmarkNvme(b *testing.B, programs nvmePrograms, counted func() int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	requests := newNvmeRequests(b, inFlight*requestBytes)
	for offset := 0; offset < requests.size; offset += requestBytes {
		requests.prepare(offset)
	}
	stats := must(ebpf.EnableStats(unix.BPF_STATS_RUN_TIME))(b)
	defer stats.Close()
	empty := nvmePrograms{emptyProgram(b), emptyProgram(b)}
	accounted, took, bare := math.Inf(1), math.Inf(1), math.Inf(1)
	batches := 0
	for b.Loop() {
		_, t := requests.batch(b, empty)
		bare = min(bare, t)
		a, t := requests.batch(b, programs)
		accounted, took = min(accounted, a), min(took, t)
		batches++
	}
	b.ReportMetric(accounted, "accounted-ns/command")
	b.ReportMetric(took-bare, "added-ns/command")
	if n := counted(); n != batches*inFlight {
		b.Errorf("%d latencies of %d commands", n, batches*inFlight)
	}
}

func emptyProgram(b *testing.B) *ebpf.Program {
	b.Helper()
	p := must(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}))(b)
	b.Cleanup(func() { p.Close() })
	return p
}

// batch submits and completes each request once. It returns the ns for one by the kernel's account and by the clock.
func (r *nvmeRequests) batch(b *testing.B, programs nvmePrograms) (accounted, took float64) {
	before := runtimeOf(b, programs)
	began := time.Now()
	for _, p := range []*ebpf.Program{programs.submit, programs.complete} {
		for offset := 0; offset < r.size; offset += requestBytes {
			must(p.Run(&ebpf.RunOptions{Context: [12]uint64{r.at(offset)}}))(b)
		}
	}
	took = float64(time.Since(began))
	return float64(runtimeOf(b, programs)-before) / inFlight, took / inFlight
}

func runtimeOf(b *testing.B, programs nvmePrograms) (sum time.Duration) {
	for _, p := range []*ebpf.Program{programs.submit, programs.complete} {
		sum += must(p.Stats())(b).Runtime
	}
	return sum
}
