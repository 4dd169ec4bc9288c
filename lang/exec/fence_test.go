package exec

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"trace/lang/codegen/bpftest"
)

// TestFence waits for a BPF program that takes some milliseconds: it sets a word when it begins, and clears it when it ends.
func TestFence(t *testing.T) {
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	running, err := ebpf.NewMap(&ebpf.MapSpec{Name: "running", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	store := func(x int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapValue(asm.R1, running.FD(), 0), asm.Mov.Imm(asm.R2, x), asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
		}
	}
	insns := append(store(1), asm.Mov.Imm(asm.R6, 100_000), asm.FnKtimeGetNs.Call().WithSymbol("loop"), asm.Sub.Imm(asm.R6, 1), asm.JNE.Imm(asm.R6, 0, "loop"))
	insns = append(append(insns, store(0)...), asm.Mov.Imm(asm.R0, 0), asm.Return())
	slow, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "slow", Type: ebpf.RawTracepoint, License: "GPL", Instructions: insns})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	f, err := newFence()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.close() }()
	is := func() (n uint64) {
		if err := running.Lookup(uint32(0), &n); err != nil {
			t.Error(err)
		}
		return n
	}
	met := 0
	for giveUp := time.Now().Add(20 * time.Second); met < 5 && time.Now().Before(giveUp); {
		var ran error
		over := make(chan struct{})
		go func() {
			_, ran = slow.Run(&ebpf.RunOptions{Context: [1]uint64{}})
			close(over)
		}()
		for seen := false; !seen; {
			select {
			case <-over:
				seen = true
			default:
				if seen = is() == 1; seen {
					met++
				}
			}
		}
		if err := f.wait(); err != nil {
			t.Fatal(err)
		}
		if is() != 0 {
			t.Error("the program still runs after the wait")
		}
		if <-over; ran != nil {
			t.Fatal(ran)
		}
	}
	if met == 0 {
		t.Error("no program was met as it ran")
	}
}
