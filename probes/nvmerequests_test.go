package probes_test

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The programs that see the submission and the end of each NVMe command.
const submitProgram, completeProgram = "raw_tp_nvme_inflight", "raw_tp_nvme_complete_rq"

// nvmeRequests are requests of one queue in the memory of a map, where programs that run by themselves find what they read.
type nvmeRequests struct {
	count   int
	memory  *ebpf.Memory
	address uint64
	lengths int // where a request has the size of its data
}

const (
	nvmeQueue    = 2   // its number among the queues for I/O
	requestBytes = 512 // of memory for each, and then for its queue, its hardware queue and its command
)

func newNvmeRequests(t testing.TB, count int) *nvmeRequests {
	t.Helper()
	const mmapable = 1 << 10 // BPF_F_MMAPABLE
	size := uint32(count+3) * requestBytes
	values := must(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: 1, Flags: mmapable}))(t)
	t.Cleanup(func() { values.Close() })
	types := must(btf.LoadKernelSpec())(t)
	r := &nvmeRequests{count: count, memory: must(values.Memory())(t), lengths: offsetOf(t, types, "request", "__data_len")}
	r.address = addressOf(t, values, r.memory)
	pointed := count * requestBytes
	for i := range count {
		r.set64(i*requestBytes+offsetOf(t, types, "request", "q"), r.address+uint64(pointed))
		r.set64(i*requestBytes+offsetOf(t, types, "request", "mq_hctx"), r.address+uint64(pointed+requestBytes))
	}
	r.set64(pointed+offsetOf(t, types, "request_queue", "queuedata"), r.address)
	r.set32(pointed+requestBytes+offsetOf(t, types, "blk_mq_hw_ctx", "queue_num"), nvmeQueue)
	return r
}

// at returns the address of a request.
func (r *nvmeRequests) at(i int) uint64 { return r.address + uint64(i*requestBytes) }

func (r *nvmeRequests) set32(at int, value uint32) {
	r.write(at, binary.NativeEndian.AppendUint32(nil, value))
}

func (r *nvmeRequests) set64(at int, value uint64) {
	r.write(at, binary.NativeEndian.AppendUint64(nil, value))
}

func (r *nvmeRequests) write(at int, raw []byte) {
	if _, err := r.memory.WriteAt(raw, int64(at)); err != nil {
		panic(err)
	}
}

// addressOf returns where the kernel has the only value of a map.
func addressOf(t testing.TB, values *ebpf.Map, memory *ebpf.Memory) uint64 {
	t.Helper()
	load := asm.LoadMapValue(asm.R1, 0, 0)
	if err := load.AssociateMap(values); err != nil {
		t.Fatal(err)
	}
	locate := must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		load,
		asm.StoreMem(asm.R1, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}}))(t)
	defer locate.Close()
	must(locate.Run(&ebpf.RunOptions{}))(t)
	var raw [8]byte
	must(memory.ReadAt(raw[:], 0))(t)
	return binary.NativeEndian.Uint64(raw[:])
}

// offsetOf asks the running kernel.
func offsetOf(t testing.TB, types *btf.Spec, structure, member string) int {
	t.Helper()
	var s *btf.Struct
	if err := types.TypeByName(structure, &s); err != nil {
		t.Skipf("needs a kernel with block devices: %v", err)
	}
	for _, m := range s.Members {
		if m.Name == member {
			return int(m.Offset.Bytes())
		}
	}
	t.Fatalf("struct %s has no %s", structure, member)
	return 0
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
