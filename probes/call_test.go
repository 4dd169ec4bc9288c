package probes

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// tellsCalls are the functions whose calls are kept in any case, as that tells what is an event: those of 5.10 that create a QP call each
// other, and a change of an MR may make another one.
var tellsCalls = []string{
	"create_qp__ib_create_qp", "create_qp__ib_uverbs_create_qp", "create_qp__ib_uverbs_ex_create_qp",
	"create_qp__ib_uverbs_handler_UVERBS_METHOD_QP_CREATE", "reg_mr__ib_uverbs_rereg_mr", "reg_mr__rdma_restrack_add",
}

// A call of whose beginning nobody wants to know costs one program, at its return, which looks nothing up.
func TestEntryOfCalls(t *testing.T) {
	c := load(t)
	var of []string
	for _, p := range c.Probes() {
		object, err := c.objects[p.Group]()
		if err != nil {
			t.Fatal(err)
		}
		if object.Variables[structName(p)+"_entry"] == nil {
			continue
		}
		of = append(of, p.String())
		for _, program := range slices.Sorted(maps.Keys(object.Programs)) {
			kind, where, _ := strings.Cut(program, "_")
			if !strings.HasPrefix(where, c.source(p).hook.name+"__") {
				continue
			}
			entry := kind == "fentry" || kind == "kprobe"
			for _, f := range p.Fields {
				insns := specialized(t, c, p, program, f.Name).Instructions
				wanted := slices.Contains(tellsCalls, where) || !f.Common && f.Name != "ret"
				if got := idle(insns); got != (entry && !wanted) {
					t.Errorf("%s, for %s, has nothing to do: %v", program, f.Name, got)
				}
				if got := slices.ContainsFunc(insns, keepsCalls); got != wanted {
					t.Errorf("%s, for %s, looks for what is kept of a call: %v", program, f.Name, got)
				}
			}
		}
	}
	if len(of) != 17 {
		t.Errorf("%d probes tell of calls: %v", len(of), of)
	}
}

func keepsCalls(ins asm.Instruction) bool {
	return ins.IsLoadFromMap() && (strings.HasSuffix(ins.Reference(), "_calls") || strings.HasSuffix(ins.Reference(), "_requests"))
}

// The return of a call reads no more of the kernel than what is wanted.
func TestReturnOfCallReadsWhatIsWanted(t *testing.T) {
	c := load(t)
	p := c.Match("ib:modify_qp")[0]
	for field, asks := range map[string][]asm.BuiltinFunc{
		"ret":     nil,
		"latency": {asm.FnKtimeGetNs, asm.FnGetCurrentPidTgid},
		"qp.num":  {asm.FnGetCurrentPidTgid, asm.FnProbeReadKernel},
	} {
		for _, kind := range []string{"fexit", "kretprobe"} {
			if got := asked(specialized(t, c, p, kind+"_modify_qp__ib_modify_qp", field)); !slices.Equal(got, asks) {
				t.Errorf("for %s the %s asks the kernel %v, want %v", field, kind, got, asks)
			}
		}
	}
}
