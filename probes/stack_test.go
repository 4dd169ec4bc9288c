package probes

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"trace/probes/rewrite"
)

// Code that is part of an fexit program has a frame less before it than code that the program calls; at a kprobe there is none.
func TestFramesOfTracing(t *testing.T) {
	c := load(t)
	p := c.Match("ib:modify_qp")[0]
	object, err := c.objects[p.Group].whole()
	if err != nil {
		t.Fatal(err)
	}
	frames := asm.Mov.Imm(asm.R3, 0).WithReference(FramesOfTracing)
	keep := asm.StoreMem(asm.RFP, -8, asm.R3, asm.DWord)
	for w, numbers := range map[way]map[bool]int64{
		trampoline{atReturn: true}: {false: 2, true: 3},
		kprobe{atReturn: true}:     {false: 0, true: 0},
	} {
		program := w.String() + "_modify_qp__ib_modify_qp_with_udata"
		for called, n := range numbers {
			req, _ := (want{probe: p, fields: p.Fields, called: called}).request(0)
			req.Code.Filter = append(asm.Instructions{frames, keep}, req.Code.Filter...)
			r := c.request(req)
			prog := object.Programs[program].Copy()
			if _, err := specialize(prog, w, []*request{r}, constantsFor(object, hostConstants{}, r)); err != nil {
				t.Fatal(err)
			}
			if rewrite.Calls(prog.Instructions, filterName(p)) != called {
				t.Fatalf("%s: the filter is called: %v", program, !called)
			}
			found := false
			for i, ins := range prog.Instructions {
				found = found || ins.OpCode == frames.OpCode && ins.Constant == n && prog.Instructions[i+1].OpCode == keep.OpCode &&
					prog.Instructions[i+1].Src == ins.Dst
				if ins.Reference() == FramesOfTracing {
					t.Errorf("%s: %v is left", program, ins)
				}
			}
			if !found {
				t.Errorf("%s: not %d frames\n%v", program, n, prog.Instructions)
			}
		}
	}
}
