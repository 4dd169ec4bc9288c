package probes_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"trace/lang"
	"trace/lang/check"
	"trace/lang/codegen/bpftest"
	"trace/lang/exec"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes"
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
		Sink: output.NewPrinter(&printed, output.Text, time.Now()), Now: func() uint64 { return 0 }, Context: b.Context(),
	}))(b)
	b.Cleanup(func() { run.Close() })
	loaded := must(probes.LoadUnattached(host, divided.Requests()[0], run.Maps()))(b)
	if len(loaded) != 2 {
		b.Fatalf("%d programs", len(loaded))
	}
	return nvmePrograms{loaded["raw_tp_nvme_inflight"], loaded["raw_tp_nvme_complete_rq"]}, func() (n int) {
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
	requests := newNvmeRequests(b)
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

// nvmeRequests are the addresses of requests on a queue.
type nvmeRequests []uint64

const (
	nvmeQueue    = 2    // its number among the queues for I/O
	requestBytes = 1024 // each, and for what requests point to
)

// newNvmeRequests fills the memory of a map with what the programs read of requests.
func newNvmeRequests(b *testing.B) (all nvmeRequests) {
	b.Helper()
	spec := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: (inFlight + 1) * requestBytes, MaxEntries: 1}
	memory := must(ebpf.NewMap(spec))(b)
	b.Cleanup(func() { memory.Close() })
	image := make([]byte, spec.ValueSize)
	address := addressOf(b, memory, image)
	types := must(btf.LoadKernelSpec())(b)
	set := func(at int, structure, member string, value uint64) {
		offset := at + offsetOf(b, types, structure, member)
		binary.NativeEndian.PutUint64(image[offset:], value)
	}
	const there = inFlight * requestBytes
	for at := 0; at < there; at += requestBytes {
		all = append(all, address+uint64(at))
		set(at, "request", "q", address+there)
		set(at, "request", "mq_hctx", address+there)
	}
	// Both are at one place, and no member that is read is at the other one's.
	set(there, "blk_mq_hw_ctx", "queue_num", nvmeQueue)
	set(there, "request_queue", "queuedata", address)
	if err := memory.Put(uint32(0), image); err != nil {
		b.Fatal(err)
	}
	return all
}

// addressOf returns where the kernel has the only value of a map.
func addressOf(b *testing.B, memory *ebpf.Map, value []byte) uint64 {
	b.Helper()
	load := asm.LoadMapValue(asm.R1, 0, 0)
	if err := load.AssociateMap(memory); err != nil {
		b.Fatal(err)
	}
	locate := must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		load,
		asm.StoreMem(asm.R1, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}}))(b)
	defer locate.Close()
	must(locate.Run(&ebpf.RunOptions{}))(b)
	if err := memory.Lookup(uint32(0), value); err != nil {
		b.Fatal(err)
	}
	return binary.NativeEndian.Uint64(value)
}

func offsetOf(b *testing.B, types *btf.Spec, structure, member string) int {
	b.Helper()
	var s *btf.Struct
	if err := types.TypeByName(structure, &s); err != nil {
		b.Skipf("needs a kernel with block devices: %v", err)
	}
	for _, m := range s.Members {
		if m.Name == member {
			return int(m.Offset.Bytes())
		}
	}
	b.Fatalf("struct %s has no %s", structure, member)
	return 0
}

// batch submits and completes each request once. It returns the ns for one by the kernel's account and by the clock.
func (all nvmeRequests) batch(b *testing.B, programs nvmePrograms) (accounted, took float64) {
	before := runtimeOf(b, programs)
	began := time.Now()
	for _, p := range []*ebpf.Program{programs.submit, programs.complete} {
		for _, request := range all {
			must(p.Run(&ebpf.RunOptions{Context: [12]uint64{request}}))(b)
		}
	}
	took = float64(time.Since(began))
	return float64(runtimeOf(b, programs)-before) / float64(len(all)), took / float64(len(all))
}

func runtimeOf(b *testing.B, programs nvmePrograms) (sum time.Duration) {
	for _, p := range []*ebpf.Program{programs.submit, programs.complete} {
		sum += must(p.Stats())(b).Runtime
	}
	return sum
}

// must returns a result whose error fails the test.
func must[T any](result T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}
