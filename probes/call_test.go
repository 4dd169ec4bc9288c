package probes

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/rewrite"
)

// alwaysKept are the functions whose calls are kept in any case, because that decides what is an event: the functions of 5.10 that create a
// QP call each other, and a change of an MR may make another one.
var alwaysKept = []string{
	"create_qp__ib_create_qp", "create_qp__ib_uverbs_create_qp", "create_qp__ib_uverbs_ex_create_qp",
	"create_qp__ib_uverbs_handler_UVERBS_METHOD_QP_CREATE", "reg_mr__ib_uverbs_rereg_mr", "reg_mr__rdma_restrack_add",
}

// If no field of a call's beginning is wanted, the call costs one program, at its return, which looks nothing up.
func TestEntryOfCalls(t *testing.T) {
	c := load(t)
	var of []string
	for _, p := range c.Probes() {
		object, err := c.objects[p.Group].whole()
		if err != nil {
			t.Fatal(err)
		}
		if object.Variables[structName(p)+"_entry"] == nil {
			continue
		}
		of = append(of, p.String())
		for _, program := range slices.Sorted(maps.Keys(object.Programs)) {
			kind, where, _ := strings.Cut(program, "_")
			if !strings.HasPrefix(where, c.origin(p).hook.name+"__") {
				continue
			}
			entry := kind == "fentry" || kind == "kprobe" || kind == "uprobe"
			for _, f := range p.Fields {
				insns := specialized(t, c, p, program, f.Name).Instructions
				wanted := slices.Contains(alwaysKept, where) || !f.Common && !c.origin(p).atReturn[f.Name]
				if got := rewrite.Idle(insns); got != (entry && !wanted) {
					t.Errorf("%s, for %s, has nothing to do: %v", program, f.Name, got)
				}
				if got := slices.ContainsFunc(insns, keepsCalls); got != wanted {
					t.Errorf("%s, for %s, looks for what is kept of a call: %v", program, f.Name, got)
				}
			}
		}
	}
	if len(of) != 26 {
		t.Errorf("%d probes tell of calls: %v", len(of), of)
	}
}

func keepsCalls(ins asm.Instruction) bool {
	return ins.IsLoadFromMap() && (strings.HasSuffix(ins.Reference(), "_calls") || strings.HasSuffix(ins.Reference(), "_requests"))
}

// The return of a call reads only the wanted fields from the kernel.
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

// Kernels before 6.4 return an int from what changes a map: the upper half of a negative one is 0. So it is cut to an int before it is
// compared with any other number than 0.
func TestResultsOfMapsAreInts(t *testing.T) {
	c := load(t)
	compared := 0
	for group, o := range c.objects {
		object, err := o.whole()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(object.Programs)) {
			wrong, right := comparedResults(object.Programs[name].Instructions)
			if wrong > 0 {
				t.Errorf("%s: %s compares %d results of maps as 64 bits", group, name, wrong)
			}
			compared += right
		}
	}
	if compared == 0 {
		t.Error("no program compares a result of a map with a number: this test looks at the wrong place")
	}
}

// comparedResults counts the results of changed maps that are compared with a number other than 0 as they come, and those whose upper
// half is cut off before. It follows the order in which the instructions stand.
func comparedResults(insns asm.Instructions) (whole, cut int) {
	results, numbers := make(map[asm.Register]bool), make(map[asm.Register]bool)
	forget := func(r asm.Register) { delete(results, r); delete(numbers, r) }
	for _, ins := range insns {
		if ins.Symbol() != "" { // other instructions may jump here
			clear(results)
			clear(numbers)
		}
		op := ins.OpCode
		class := op.Class()
		switch {
		case class.IsJump() && op.JumpOp() == asm.Call:
			for r := asm.R0; r <= asm.R5; r++ {
				forget(r)
			}
			fn := asm.BuiltinFunc(ins.Constant)
			results[asm.R0] = ins.IsBuiltinCall() && (fn == asm.FnMapUpdateElem || fn == asm.FnMapDeleteElem)
		case class.IsJump() && (op.Source() == asm.RegSource || ins.Constant != 0):
			if results[ins.Dst] {
				whole++
			}
			if numbers[ins.Dst] {
				cut++
			}
		case class.IsALU() && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource:
			results[ins.Dst], numbers[ins.Dst] = results[ins.Src], numbers[ins.Src]
		case class.IsALU() && op.ALUOp() == asm.LSh && ins.Constant == 32:
			results[ins.Dst], numbers[ins.Dst] = false, results[ins.Dst]
		case class.IsALU() && (op.ALUOp() == asm.RSh || op.ALUOp() == asm.ArSh):
		case class.IsALU() || class.IsLoad():
			forget(ins.Dst)
		}
	}
	return whole, cut
}

// A new call ends the thread's previous one. If that end was not seen it is counted, also where both calls are about one object. The
// programs run here by themselves, so that no module is needed.
func TestUnendedCalls(t *testing.T) {
	c := load(t)
	for name, program := range map[string]string{
		"ib:create_qp":  "fentry_create_qp__ib_create_qp_user",
		"ib:modify_qp":  "fentry_modify_qp__ib_modify_qp_with_udata",
		"ib:destroy_qp": "fentry_destroy_qp__ib_destroy_qp_user",
		"ib:create_cq":  "fentry_create_cq__kernel",
		"ib:destroy_cq": "fentry_destroy_cq__ib_destroy_cq_user",
		"ib:reg_mr":     "fentry_reg_mr__ib_reg_user_mr",
		"ib:dereg_mr":   "fentry_dereg_mr__ib_dereg_mr_user",
		"ib:alloc_pd":   "fentry_alloc_pd____ib_alloc_pd",
		"ib:dealloc_pd": "fentry_dealloc_pd__ib_dealloc_pd_user",
	} {
		t.Run(name, func(t *testing.T) {
			begin := entryAlone(t, c, c.Match(name)[0], program)
			const object, other = 0x1000, 0x2000
			for _, call := range []struct {
				object  uint64
				unended uint64
			}{{object, 0}, {object, 1}, {other, 2}, {object, 3}} {
				if n := begin(call.object); n[countUnended] != call.unended || n[countInflightFull] != 0 {
					t.Errorf("counted %v after a call for %#x, want %d without an end", n, call.object, call.unended)
				}
			}
		})
	}
}

// entryAlone loads the program at the entry of a probe's function as one for a raw tracepoint, which runs without an event. What it
// returns runs it for a call whose first argument is object, and returns what was counted until then.
func entryAlone(t *testing.T, c *Catalog, p *event.Probe, program string) func(object uint64) [counters]uint64 {
	t.Helper()
	whole, err := c.objects[p.Group].whole()
	if err != nil {
		t.Fatal(err)
	}
	spec := whole.Copy()
	entry := specialized(t, c, p, program, "latency")
	entry.Type, entry.AttachType, entry.AttachTo, entry.SectionName = ebpf.RawTracepoint, ebpf.AttachNone, "", "raw_tp"
	spec.Programs = map[string]*ebpf.ProgramSpec{program: entry}
	spec.Variables = nil
	keepMaps(spec)
	_ = rlimit.RemoveMemlock() // kernels before 5.11 count maps against it
	loaded, err := ebpf.NewCollection(spec)
	if errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loaded.Close)
	runtime.LockOSThread() // a call is kept by its thread
	t.Cleanup(runtime.UnlockOSThread)
	return func(object uint64) [counters]uint64 {
		if _, err := loaded.Programs[program].Run(&ebpf.RunOptions{Context: [12]uint64{object}}); err != nil {
			t.Fatal(err)
		}
		n, err := (&request{counts: loaded.Maps[countsName(p)]}).counted()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}
