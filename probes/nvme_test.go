package probes

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
)

// Each NVMe command passes the program that remembers its beginning: that asks the kernel for what somebody wants, and keeps no more.
func TestNvmeInflight(t *testing.T) {
	const now, read, task, user, comm = asm.FnKtimeGetNs, asm.FnProbeReadKernel, asm.FnGetCurrentPidTgid, asm.FnGetCurrentUidGid, asm.FnGetCurrentComm
	c := load(t)
	p := c.Match("nvme:complete_rq")[0]
	for _, test := range []struct {
		field   string
		asks    []asm.BuiltinFunc
		mapName string
	}{
		{"latency", []asm.BuiltinFunc{now}, "nvme_inflight_times"},
		{"device_latency", []asm.BuiltinFunc{now}, "nvme_inflight_times"},
		{"opcode", []asm.BuiltinFunc{now, read}, "nvme_inflight"},
		{"cdw10", []asm.BuiltinFunc{now, read}, "nvme_inflight"},
		{"bytes", []asm.BuiltinFunc{now, read}, "nvme_inflight"},
	} {
		prog := specialized(t, c, p, "raw_tp_nvme_inflight", test.field)
		if got := asked(prog); !slices.Equal(got, test.asks) {
			t.Errorf("for %s the kernel is asked %v, expected %v", test.field, got, test.asks)
		}
		for _, name := range []string{"nvme_inflight", "nvme_inflight_times"} {
			for _, program := range []string{"raw_tp_nvme_inflight", "raw_tp_nvme_cqe", "raw_tp_nvme_complete_rq"} {
				prog := specialized(t, c, p, program, test.field)
				if got, want := refersTo(prog.Instructions, name), name == test.mapName; got != want {
					t.Errorf("for %s, %s uses %s: %v, expected %v", test.field, program, name, got, want)
				}
			}
		}
	}
	// A follower of attempts reads the request, too.
	for field, own := range map[string]asm.BuiltinFunc{"pid": task, "uid": user, "comm": comm} {
		got := asked(specialized(t, c, p, "raw_tp_nvme_inflight", field))
		for _, fn := range []asm.BuiltinFunc{task, user, comm} {
			if slices.Contains(got, fn) != (fn == own) {
				t.Errorf("for %s the kernel is asked %v", field, got)
			}
		}
	}
}

// An event that wants nothing of the submission neither reads it nor looks for it.
func TestNvmeWithoutSubmission(t *testing.T) {
	c := load(t)
	for _, test := range []struct{ probe, program string }{
		{"nvme:setup_cmd", "raw_tp_nvme_setup_cmd"},
		{"nvme:complete_rq", "raw_tp_nvme_complete_rq"},
		{"nvme:sq", "raw_tp_nvme_sq"},
	} {
		prog := specialized(t, c, c.Match(test.probe)[0], test.program, "rq")
		if got := asked(prog); len(got) > 0 {
			t.Errorf("%s asks the kernel %v", test.probe, got)
		}
		if refersTo(prog.Instructions, "nvme_inflight") || refersTo(prog.Instructions, "nvme_inflight_times") {
			t.Errorf("%s looks for a submission", test.probe)
		}
	}
}

// specialized returns a program as it is for a request that delivers one field.
func specialized(t *testing.T, c *Catalog, p *event.Probe, program, field string) *ebpf.ProgramSpec {
	t.Helper()
	req, _ := want{probe: p, fields: []*event.Field{p.Field(field)}}.request(0)
	r := c.request(req)
	object, err := c.objects[p.Group].load()
	if err != nil {
		t.Fatal(err)
	}
	prog := object.Programs[program].Copy()
	if err := specialize(prog, rawTracepoint{}, []*request{r}, constantsFor(object, 0, r)); err != nil {
		t.Fatal(err)
	}
	return prog
}

// asked returns the functions of the kernel that a program calls, each once, but those of maps and of the ring buffer.
func asked(prog *ebpf.ProgramSpec) (all []asm.BuiltinFunc) {
	for _, ins := range prog.Instructions {
		if !ins.IsBuiltinCall() {
			continue
		}
		switch fn := asm.BuiltinFunc(ins.Constant); fn {
		case asm.FnMapLookupElem, asm.FnMapUpdateElem, asm.FnMapDeleteElem, asm.FnRingbufReserve, asm.FnRingbufSubmit:
		default:
			all = append(all, fn)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
