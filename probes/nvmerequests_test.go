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

// nvmeRequests are requests of one queue in the memory of a map, where programs that run by themselves find what they read. Each is known by its
// offset there.
type nvmeRequests struct {
	size    int
	memory  *ebpf.Memory
	address uint64
	// queue, hardware and length are members of a request.
	queue, hardware, length int
}

const (
	nvmeQueue    = 2   // its number among the queues for I/O
	requestBytes = 512 // of memory for a request, and behind all of them for the queue, the hardware queue and a command
)

func newNvmeRequests(t testing.TB, size int) *nvmeRequests {
	t.Helper()
	const mmapable = 1 << 10 // BPF_F_MMAPABLE
	values := must(ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size + 3*requestBytes), MaxEntries: 1, Flags: mmapable,
	}))(t)
	t.Cleanup(func() { values.Close() })
	types := must(btf.LoadKernelSpec())(t)
	r := &nvmeRequests{
		size: size, memory: must(values.Memory())(t),
		queue: offsetOf(t, types, "request", "q"), hardware: offsetOf(t, types, "request", "mq_hctx"), length: offsetOf(t, types, "request", "__data_len"),
	}
	r.address = addressOf(t, values, r.memory)
	r.set64(size+offsetOf(t, types, "request_queue", "queuedata"), r.address)
	r.set32(size+requestBytes+offsetOf(t, types, "blk_mq_hw_ctx", "queue_num"), nvmeQueue)
	return r
}

// prepare makes a request.
func (r *nvmeRequests) prepare(offset int) {
	r.set64(offset+r.queue, r.at(r.size))
	r.set64(offset+r.hardware, r.at(r.size+requestBytes))
}

// command is the offset of a command.
func (r *nvmeRequests) command() int { return r.size + 2*requestBytes }

// at returns the address of what is at an offset.
func (r *nvmeRequests) at(offset int) uint64 { return r.address + uint64(offset) }

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
