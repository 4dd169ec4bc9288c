package probes_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"trace/lang"
	"trace/lang/check"
	"trace/lang/codegen/bpftest"
	"trace/lang/exec"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
)

// This file compares small random programs over events with a beginning. The kernel keeps the submissions of NVMe commands in one of its ways;
// user space runs the program on events that a Go map has completed. The events of the differential test in lang/exec have no beginning.
//
//	go test ./probes -run TestDifferentialKept -parallel 8 -kept.programs 100000 -timeout 2h   # so many programs
//	go test ./probes -run TestDifferentialKept -kept.seed 17 -kept.only 4711       # one that failed
var (
	keptPrograms = flag.Int("kept.programs", 100, "how many programs TestDifferentialKept runs")
	keptSeed     = flag.Uint64("kept.seed", uint64(time.Now().UnixNano()), "of its programs and commands")
	keptOnly     = flag.Int("kept.only", -1, "run only this program of the seed")
)

// keptEvents is how many commands end in front of a program.
const keptEvents = 100

// keptShards is how many programs run at once at most: most of the time the kernel frees what the last one had.
const keptShards = 8

// A keptWay is a way to keep a beginning, and how many requests use each bucket of the table.
type keptWay struct {
	name       string
	fullTables bool
	sharing    int
}

const slots = 4 // of a bucket: SLOTS in bpf/trace.h

var keptWays = []keptWay{{"a table", false, slots}, {"a table and a hash", false, 2 * slots}, {"a hash", true, 2 * slots}}

func TestDifferentialKept(t *testing.T) {
	t.Run("shards", func(t *testing.T) {
		for shard := range keptShards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				d := newKeptDiff(t)
				for n := shard; n < *keptPrograms && !t.Failed(); n += keptShards {
					if *keptOnly < 0 || *keptOnly == n {
						d.program(t, n)
					}
				}
			})
		}
	})
	t.Logf("%d programs on %d events each, -kept.seed %d", *keptPrograms, keptEvents, *keptSeed)
}

// program runs program n of the seed.
func (d *keptDiff) program(t *testing.T, n int) {
	g := &keptGen{Rand: rand.New(rand.NewPCG(*keptSeed, uint64(n)))}
	way, text := pick(g, keptWays...), g.program()
	d.compare(t, g, way, text)
	if t.Failed() {
		t.Logf("program %d of -kept.seed %d, kept in %s:\n%s", n, *keptSeed, way.name, text)
	}
}

// keptDiff is what all programs share.
type keptDiff struct {
	catalog  *probes.Catalog
	probe    *event.Probe
	hosts    map[bool]*probes.Host // by whether the tables are full
	requests *nvmeRequests
	buckets  [][]int // requests that share a bucket
	ring     *ebpf.Map
	reader   *ringbuf.Reader
}

func newKeptDiff(t *testing.T) *keptDiff {
	t.Helper()
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	_ = rlimit.RemoveMemlock() // for kernels before 5.11
	d := &keptDiff{catalog: must(probes.Load())(t), hosts: make(map[bool]*probes.Host), requests: newNvmeRequests(t, 1<<21)}
	d.probe = d.catalog.Match("nvme:complete_rq")[0]
	for _, full := range []bool{false, true} {
		d.hosts[full] = must(probes.Detect(d.catalog, probes.HostOptions{FullTables: full}))(t)
	}
	d.ring = must(ebpf.NewMap(&ebpf.MapSpec{Name: probes.RingName, Type: ebpf.RingBuf, MaxEntries: 1 << 20}))(t)
	t.Cleanup(func() { d.ring.Close() })
	d.reader = must(ringbuf.NewReader(d.ring))(t)
	t.Cleanup(func() { d.reader.Close() })
	d.reader.SetDeadline(time.Unix(1, 0)) // never waits
	d.buckets = d.sharing(2, 2*slots)
	return d
}

// sharing makes requests that share so many buckets, so many each.
func (d *keptDiff) sharing(buckets, each int) (all [][]int) {
	const tableBuckets = 8192 / slots // of nvme_inflight and nvme_inflight_times in bpf/nvme.bpf.c
	in := make(map[uint64][]int)
	var taken []int
	overlaps := func(offset int) bool {
		return slices.ContainsFunc(taken, func(other int) bool { return max(offset-other, other-offset) < requestBytes })
	}
	for offset := 0; offset < d.requests.size && len(all) < buckets; offset += 64 {
		bucket := (d.requests.at(offset) * 0x9e3779b97f4a7c15 >> 32) * tableBuckets >> 32 // name##_bucket_of in bpf/trace.h
		if overlaps(offset) {
			continue
		}
		if in[bucket] = append(in[bucket], offset); len(in[bucket]) == each {
			all, taken = append(all, in[bucket]), append(taken, in[bucket]...)
		}
	}
	if len(all) < buckets {
		panic("the requests share too few buckets")
	}
	for _, offset := range taken {
		d.requests.prepare(offset)
	}
	return all
}

// keptSide is one run of a program.
type keptSide struct {
	*exec.Run
	plan    *plan.Plan
	printed bytes.Buffer
}

func (d *keptDiff) start(t *testing.T, text string, o plan.Options) *keptSide {
	t.Helper()
	program := must(lang.Compile("kept", text, d.catalog.Probes(), check.Options{}))(t)
	s := &keptSide{plan: must(lang.Prepare(program, o))(t)}
	s.Run = must(lang.Start(s.plan, exec.Options{
		Sink: output.NewPrinter(&s.printed, output.Text, event.NewWallClock(time.Unix(0, 0))), Now: func() uint64 { return 1e12 }, Context: context.Background(),
	}))(t)
	return s
}

func (s *keptSide) event(t *testing.T, record []byte) {
	var e event.Event
	if err := event.Decode(s.plan.Layouts(), record, &e); err != nil {
		t.Error(err)
		return
	}
	must(s.Event(&e))(t)
}

// compare runs a program on both sides, with the same random commands.
func (d *keptDiff) compare(t *testing.T, g *keptGen, way keptWay, text string) {
	host := d.hosts[way.fullTables]
	options := plan.Options{StackLeft: d.catalog.StackLeft, Alone: host.Alone, CompareExchange: plan.CompareExchange, CPUs: ebpf.MustPossibleCPU()}
	kernel := d.start(t, text, options)
	defer kernel.Close()
	user := d.start(t, text, plan.Options{NoKernel: true})
	defer user.Close()
	shared := maps.Clone(kernel.Maps())
	shared[probes.RingName] = d.ring
	loaded := must(probes.LoadUnattached(host, kernel.plan.Requests()[0], shared))(t)
	defer loaded.Close()
	d.run(t, g, way, loaded.Programs, kernel, user)
	for _, side := range []*keptSide{kernel, user} {
		if err := side.End(); err != nil {
			t.Error(err)
		}
	}
	if kernel.printed.String() != user.printed.String() {
		t.Errorf("the kernel:\n%s\nuser space:\n%s", &kernel.printed, &user.printed)
	}
	if ours, theirs := must(kernel.MapLosses())(t), must(user.MapLosses())(t); !reflect.DeepEqual(ours, theirs) {
		t.Errorf("the kernel has lost %+v, user space %+v", ours, theirs)
	}
	keeps := loaded.Programs[submitProgram] != nil
	if n := must(loaded.Overflowed())(t); n > 0 && way.sharing <= slots || n == 0 && way.fullTables && keeps {
		t.Errorf("a hash has kept %d", n)
	}
}

// run submits and completes commands in random order: some are submitted twice, and some complete without a submission.
func (d *keptDiff) run(t *testing.T, g *keptGen, way keptWay, programs map[string]*ebpf.Program, kernel, user *keptSide) {
	begun := make(map[int]nvmeCommand)
	for ended := 0; ended < keptEvents && !t.Failed(); {
		request := d.buckets[g.IntN(len(d.buckets))][g.IntN(way.sharing)]
		if g.IntN(2) == 0 {
			begun[request] = d.submit(t, g, programs[submitProgram], request)
			continue
		}
		ended++
		must(programs[completeProgram].Run(&ebpf.RunOptions{Context: [12]uint64{d.requests.at(request)}}))(t)
		d.read(t, kernel)
		command, seen := begun[request]
		delete(begun, request)
		user.feed(t, d.ended(request, command, seen))
	}
}

// nvmeCommand is the submission queue entry, and the size of the data.
type nvmeCommand struct {
	entry struct {
		Opcode, Flags uint8
		CID           uint16
		NSID          uint32
		CDW2          [8]uint32
		CDW10         [6]uint32
	}
	bytes uint32
}

// submit hands a random command over. No program looks at it if nothing of it is wanted.
func (d *keptDiff) submit(t *testing.T, g *keptGen, program *ebpf.Program, request int) (c nvmeCommand) {
	const flush, write, read, compare = 0, 1, 2, 5
	c.entry.Opcode, c.entry.CID, c.entry.NSID = pick[uint8](g, flush, write, read, compare), uint16(g.number()), uint32(g.number())
	for i := range c.entry.CDW10 {
		c.entry.CDW10[i] = uint32(g.number())
	}
	c.bytes = uint32(g.number())
	d.requests.write(d.requests.command(), must(binary.Append(nil, binary.NativeEndian, c.entry))(t))
	d.requests.set32(request+d.requests.length, c.bytes)
	if program != nil {
		must(program.Run(&ebpf.RunOptions{Context: [12]uint64{d.requests.at(request), d.requests.at(d.requests.command())}}))(t)
	}
	return c
}

// read gives the records that the kernel has written to its side.
func (d *keptDiff) read(t *testing.T, kernel *keptSide) {
	for {
		record, err := d.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		kernel.event(t, must(record, err)(t).RawSample)
	}
}

// ended is the event of a command that ends, as the C code would fill it.
func (d *keptDiff) ended(request int, c nvmeCommand, seen bool) []byte {
	raw := make([]byte, d.probe.Size)
	set := func(name string, value uint64) {
		f := d.probe.Field(name)
		whole := binary.NativeEndian.AppendUint64(nil, value)
		copy(raw[f.Offset:f.Offset+f.Type.Size], whole)
		if f.Optional {
			raw[f.Presence.Offset] |= f.Presence.Mask
		}
	}
	set("qid", nvmeQueue+1)
	set("rq", d.requests.at(request))
	if !seen {
		return raw
	}
	set("latency", 1) // programs ask whether it is there
	set("opcode", uint64(c.entry.Opcode))
	set("raw_opcode", uint64(c.entry.Opcode))
	set("cid", uint64(c.entry.CID))
	set("nsid", uint64(c.entry.NSID))
	set("bytes", uint64(c.bytes))
	for i, cdw := range c.entry.CDW10 {
		set(fmt.Sprintf("cdw%d", 10+i), uint64(cdw))
	}
	if c.entry.Opcode != 0 { // a flush has no blocks
		set("slba", uint64(c.entry.CDW10[0])|uint64(c.entry.CDW10[1])<<32)
		set("nlb", uint64(c.entry.CDW10[2]&0xffff)+1)
	}
	return raw
}

// feed gives an event to user space.
func (s *keptSide) feed(t *testing.T, raw []byte) {
	for _, l := range s.plan.Layouts() {
		record := make([]byte, l.Size)
		binary.NativeEndian.PutUint64(record, uint64(l.ID))
		for _, c := range l.Copies() {
			copy(record[c.To:c.To+c.Size], raw[c.From:])
		}
		s.event(t, record)
	}
}

// keptGen makes programs.
type keptGen struct{ *rand.Rand }

func pick[T any](g *keptGen, all ...T) T { return all[g.IntN(len(all))] }

// number returns one that is small or next to where widths change.
func (g *keptGen) number() uint64 {
	return pick[uint64](g, 0, 1, 7, 8, 1<<15, 1<<16, 1<<31, 1<<32) + g.Uint64N(3)
}

func (g *keptGen) field() string {
	return pick(g, "slba", "nlb", "nsid", "cid", "bytes", "raw_opcode", "cdw10", "cdw11", "cdw12", "cdw13", "cdw14", "cdw15", "qid")
}

func (g *keptGen) value() string {
	return pick(g, g.field(), fmt.Sprintf("(%s ?? %d)", g.field(), g.IntN(9)), fmt.Sprintf("(%s + %s)", g.field(), g.field()),
		fmt.Sprintf("(%s ? %s : %s)", g.leaf(), g.field(), g.field()))
}

func (g *keptGen) leaf() string {
	return pick(g, "latency == nil", "latency != nil", "latency < 1h", "latency > 1h", g.field()+" == nil", "opcode == read", "opcode in [write, flush]",
		fmt.Sprintf("%s %s %d", g.field(), pick(g, "<", ">=", "==", "!="), g.number()), g.field()+" < "+g.field())
}

func (g *keptGen) condition() string {
	return pick(g, g.leaf(), g.leaf(), "!("+g.leaf()+")", g.leaf()+" && "+g.leaf(), g.leaf()+" || "+g.leaf())
}

func (g *keptGen) key() string {
	keys := []string{"", "[opcode]", "[latency == nil]", "[rq]", "[" + g.field() + "]", "[" + g.field() + ", opcode]", "[rq, " + g.value() + "]"}
	return keys[g.IntN(len(keys))]
}

func (g *keptGen) statement(i int) string {
	name := fmt.Sprintf("@m%d%s", i, g.key())
	return pick(g, name+" = count()", fmt.Sprintf("%s = %s((uint64)%s)", name, pick(g, "sum", "avg", "min", "max", "stats", "hist"), g.value()),
		name+" = (uint64)"+g.value(), fmt.Sprintf("if (%s) { %s = count() }", g.condition(), name),
		fmt.Sprintf(`printf("%%d %%d\n", %s, %s)`, g.value(), g.value()))
}

func (g *keptGen) program() string {
	var b strings.Builder
	statements := 0
	for range 1 + g.IntN(2) {
		b.WriteString("nvme:complete_rq ")
		if g.IntN(4) > 0 {
			fmt.Fprintf(&b, "/ %s / ", g.condition())
		}
		var body []string
		for range 1 + g.IntN(3) {
			body = append(body, g.statement(statements))
			statements++
		}
		fmt.Fprintf(&b, "{ %s }\n", strings.Join(body, "; "))
	}
	return b.String()
}
