package probes

import (
	"testing"

	"github.com/cilium/ebpf/asm"
)

// A stack in an fexit program begins with the frames of the program and of its trampoline; at a kprobe there are none of them.
func TestFramesOfTracing(t *testing.T) {
	c := load(t)
	p := c.Match("ib:modify_qp")[0]
	object, err := c.objects[p.Group].whole()
	if err != nil {
		t.Fatal(err)
	}
	frames := asm.Mov.Imm(asm.R3, 0).WithReference(FramesOfTracing)
	keep := asm.StoreMem(asm.RFP, -8, asm.R3, asm.DWord)
	for w, n := range map[way]int64{trampoline{atReturn: true}: 2, kprobe{atReturn: true}: 0} {
		program := w.String() + "_modify_qp__ib_modify_qp_with_udata"
		req, _ := (want{probe: p, fields: p.Fields}).request(0)
		req.Code.Filter = append(asm.Instructions{frames, keep}, req.Code.Filter...)
		r := c.request(req)
		prog := object.Programs[program].Copy()
		if _, err := specialize(prog, w, []*request{r}, constantsFor(object, hostConstants{}, r)); err != nil {
			t.Fatal(err)
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
