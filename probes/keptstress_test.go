package probes

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"trace/probes/event"
)

// Beginnings of more requests than a bucket has slots, in random order and on all CPUs at once. Each end must find the beginning of its own
// request, which its latency shows, or none if there was none: a request ends twice, is submitted again, and the end of some never comes.
// Where the table has no room, a hash keeps them.
func TestKeptOfRequests(t *testing.T) {
	for _, test := range []struct {
		name       string
		full       bool
		requests   int // of each bucket
		requesters int
		overflow   bool
	}{
		{"table", false, 4, 1, false}, // two that look for room at once may both find none
		{"both", false, 24, 4 * runtime.NumCPU(), true},
		{"hash", true, 24, 4 * runtime.NumCPU(), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newKeeper(t, test.full)
			addresses := k.sharingBuckets(2, test.requests)
			var wg sync.WaitGroup
			for i := range test.requesters {
				var own []uint64
				for at := i; at < len(addresses); at += test.requesters {
					own = append(own, addresses[at])
				}
				wg.Go(func() { k.use(own, rand.New(rand.NewPCG(1, uint64(i)))) })
			}
			wg.Wait()
			if k.overflowed() != test.overflow {
				t.Errorf("the hash was used: %v, want %v", !test.overflow, test.overflow)
			}
			if n := k.left(); n > 0 {
				t.Errorf("%d beginnings are left", n)
			}
		})
	}
}

// A keeper runs the programs for the beginning and the end of NVMe commands. They look at nothing of a request but its address.
type keeper struct {
	t         *testing.T
	loaded    *ebpf.Collection
	variables map[string]*ebpf.VariableSpec
}

func newKeeper(t *testing.T, fullTables bool) *keeper {
	t.Helper()
	c := load(t)
	p := c.Match("nvme:complete_rq")[0]
	whole, err := c.objects["nvme"].whole()
	if err != nil {
		t.Fatal(err)
	}
	req, _ := want{probe: p, fields: []*event.Field{p.Field("latency"), p.Field("rq")}}.request(0)
	code := *req.Code
	code.Filter = asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}
	code.Action = keepLatency(p)
	req.Code = &code
	r := c.request(req)
	spec := whole.Copy()
	spec.Variables = nil
	spec.Programs = make(map[string]*ebpf.ProgramSpec)
	for _, name := range []string{"raw_tp_nvme_inflight", completeProgram} {
		prog := whole.Programs[name].Copy()
		if _, err := specialize(prog, rawTracepoint{}, []*request{r}, constantsFor(whole, hostConstants{fullTables: fullTables}, r)); err != nil {
			t.Fatal(err)
		}
		spec.Programs[name] = prog
	}
	spec.Maps["latencies"] = &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1024}
	keepMaps(spec)
	loaded, err := ebpf.NewCollection(spec)
	requirePermitted(t, explain(err))
	t.Cleanup(loaded.Close)
	return &keeper{t, loaded, whole.Variables}
}

// keepLatency puts the latency of an event into a map, by request; an absent one is not 0 there, but what was there before.
func keepLatency(p *event.Probe) asm.Instructions {
	field := func(name string) int16 { return int16(p.Field(name).Offset) }
	has := p.Field("latency").Presence
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.R2, int16(has.Offset), asm.Byte),
		asm.And.Imm(asm.R1, int32(has.Mask)),
		asm.JEq.Imm(asm.R1, 0, "out"),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.Add.Imm(asm.R3, int32(field("latency"))),
		asm.Add.Imm(asm.R2, int32(field("rq"))),
		asm.LoadMapPtr(asm.R1, 0).WithReference("latencies"),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}

// sharingBuckets returns addresses that share few buckets, so many of each.
func (k *keeper) sharingBuckets(buckets, each int) (addresses []uint64) {
	in := make(map[uint64]int)
	for address := uint64(0xffff888000000000); len(addresses) < buckets*each; address += 64 {
		// name##_bucket_of in trace.h
		bucket := (address * 0x9e3779b97f4a7c15 >> 32) * uint64(k.loaded.Maps["nvme_inflight_times_slots"].MaxEntries()) >> 32
		if n, known := in[bucket]; n < each && (known || len(in) < buckets) {
			in[bucket]++
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// use submits and ends requests at random, and checks each end. At last it ends all.
func (k *keeper) use(addresses []uint64, random *rand.Rand) {
	type span struct{ from, to time.Duration }
	begun := make(map[uint64]span)
	end := func(address uint64) {
		before := monotonic()
		k.run(completeProgram, address)
		after := monotonic()
		var latency uint64
		err := k.loaded.Maps["latencies"].LookupAndDelete(address, &latency)
		b, known := begun[address]
		delete(begun, address)
		if (err == nil) != known {
			k.t.Errorf("the end has a latency: %v, and a beginning: %v", err == nil, known)
		}
		if took := time.Duration(latency); err == nil && known && (took < before-b.to || took > after-b.from) {
			k.t.Errorf("a latency of %v, want %v to %v", took, before-b.to, after-b.from)
		}
	}
	for range 5000 {
		address := addresses[random.IntN(len(addresses))]
		if random.IntN(2) == 0 {
			end(address)
			continue
		}
		before := monotonic()
		k.run("raw_tp_nvme_inflight", address)
		begun[address] = span{before, monotonic()}
	}
	for _, address := range addresses {
		end(address)
	}
}

func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

func (k *keeper) run(program string, address uint64) {
	if _, err := k.loaded.Programs[program].Run(&ebpf.RunOptions{Context: [12]uint64{address}}); err != nil {
		k.t.Error(err)
	}
}

func (k *keeper) overflowed() bool {
	data := k.loaded.Maps[dataSection]
	counted := overflow{data, k.variables["nvme_inflight_times"+overflowSuffix].Offset}
	n, err := (&request{overflows: map[overflow]bool{counted: true}}).overflowed()
	if err != nil {
		k.t.Error(err)
	}
	return n > 0
}

// left returns how many slots of the table and keys of the hash are taken.
func (k *keeper) left() (n int) {
	if table := k.loaded.Maps["nvme_inflight_times_slots"]; table != nil {
		var bucket [4]inflightSlot
		for i := range table.MaxEntries() {
			if err := table.Lookup(i, &bucket); err != nil {
				k.t.Fatal(err)
			}
			n += len(slices.DeleteFunc(bucket[:], func(s inflightSlot) bool { return s.State == 0 }))
		}
	}
	var key uint64
	var slot inflightSlot
	for all := k.loaded.Maps["nvme_inflight_times"].Iterate(); all.Next(&key, &slot); {
		n++
	}
	return n
}
