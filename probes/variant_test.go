package probes

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"trace/probes/event"
	"trace/probes/kernel"
)

// voluntary is a model of preemption that preempts no task inside programs.
const voluntary = "voluntary"

// hostWith is a host whose kernel preempts tasks in some way, and describes these functions and no more.
func hostWith(t *testing.T, model string, functions ...*btf.Func) *Host {
	t.Helper()
	var types []btf.Type
	for _, f := range functions {
		types = append(types, f)
	}
	return hostOf(t, model, types...)
}

// hostKnowing is a host whose kernel describes a struct type of this name.
func hostKnowing(t *testing.T, model, name string) *Host {
	t.Helper()
	return hostOf(t, model, &btf.Typedef{Name: name, Type: &btf.Struct{Size: 8}})
}

// Types are missing where a module is not described. What its own description lacks is not in this kernel, like ib_dmah before 6.17, and no
// file can give it.
func TestMissingTypes(t *testing.T) {
	b, err := btf.NewBuilder([]btf.Type{&btf.Struct{Name: "nothing_of_ib_core", Size: 8}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := b.Spec()
	if err != nil {
		t.Fatal(err)
	}
	vmlinux := func() (*btf.Spec, error) { return spec, nil }
	for _, test := range []struct {
		name  string
		types func(string) (*btf.Spec, error)
		want  bool
	}{
		{"not described", func(string) (*btf.Spec, error) { return nil, kernel.ErrNoBTF }, true},
		{"described without it", func(string) (*btf.Spec, error) { return spec, nil }, false},
	} {
		h, err := newHost(load(t), kernel.Options{Types: vmlinux, ModuleTypes: test.types})
		if err != nil {
			t.Fatal(err)
		}
		o := h.catalog.objects["rdma"]
		if missing := missingTypes(h.kernel, o, o.module); slices.Contains(missing, "ib_dmah") != test.want {
			t.Errorf("%s: missing %v", test.name, missing)
		}
	}
}

func hostOf(t *testing.T, model string, types ...btf.Type) *Host {
	t.Helper()
	b, err := btf.NewBuilder(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range types {
		if _, err := b.Add(known); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := b.Spec()
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHost(load(t), kernel.Options{
		Types: func() (*btf.Spec, error) { return spec, nil },
		DescribesName: func(name string) (bool, error) {
			_, err := spec.AnyTypeByName(name)
			return err == nil, nil
		},
		Preemption: func() kernel.Preemption { return kernel.Preemption{Model: model} },
		Kprobes:    func() error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func describe(name string, result btf.Type, params int) *btf.Func {
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	proto := &btf.FuncProto{Return: result}
	for range params {
		proto.Params = append(proto.Params, btf.FuncParam{Name: "arg", Type: number})
	}
	return &btf.Func{Name: name, Type: proto, Linkage: btf.StaticFunc}
}

// What a function returns is decided by its prototype, and without one by the program that looks at the value.
func TestProgramsByPrototype(t *testing.T) {
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	pointer := &btf.Typedef{Name: "qp_t", Type: &btf.Pointer{Target: &btf.Void{}}}
	for _, test := range []struct {
		probe   string
		known   *btf.Func
		variant string // its name, and the program at the end of the call
		refusal string
	}{
		{"mlx5:create_qp", describe("mlx5_ib_create_qp", number, 3), "fexit fexit_mlx5_create_qp__mlx5_ib_create_qp__int", ""},
		{"mlx5:create_qp", describe("mlx5_ib_create_qp", pointer, 3), "fexit fexit_mlx5_create_qp__mlx5_ib_create_qp__pointer", ""},
		{"mlx5:create_qp", describe("mlx5_ib_create_qp", pointer, 3), "kprobe kretprobe_mlx5_create_qp__mlx5_ib_create_qp__pointer", ""},
		{"mlx5:create_qp", nil, "kprobe kretprobe_mlx5_create_qp__mlx5_ib_create_qp", ""},
		{"mlx5:create_qp", describe("mlx5_ib_create_qp", &btf.Void{}, 3), "fexit fexit_mlx5_create_qp__mlx5_ib_create_qp__int",
			"mlx5_ib_create_qp returns void in this kernel, expected int"},
		{"mlx5:create_qp", describe("mlx5_ib_create_qp", number, 4), "fexit fexit_mlx5_create_qp__mlx5_ib_create_qp__int",
			"mlx5_ib_create_qp has 4 parameters in this kernel, expected 3"},
		{"mlx5:dealloc_pd", describe("mlx5_ib_dealloc_pd", &btf.Void{}, 2), "fexit fexit_mlx5_dealloc_pd__mlx5_ib_dealloc_pd__void", ""},
		{"mlx5:destroy_cq", describe("mlx5_ib_destroy_cq", &btf.Void{}, 2), "kprobe kretprobe_mlx5_destroy_cq__mlx5_ib_destroy_cq__void", ""},
		{"mlx5:destroy_cq", describe("mlx5_ib_destroy_cq", number, 2), "fexit fexit_mlx5_destroy_cq__mlx5_ib_destroy_cq__int", ""},
		{"mlx5:reg_user_mr", describe("mlx5_ib_reg_user_mr", pointer, 7), "fexit fexit_mlx5_reg_user_mr__mlx5_ib_reg_user_mr",
			"mlx5_ib_reg_user_mr has 7 parameters in this kernel, expected 6"},
	} {
		h := hostWith(t, voluntary)
		if test.known != nil {
			h = hostWith(t, voluntary, test.known)
		}
		p := h.catalog.Match(test.probe)[0]
		name, last, _ := strings.Cut(test.variant, " ")
		variants := h.variantsOf(p)
		i := slices.IndexFunc(variants, func(v variant) bool { return v.name() == name })
		if got := variants[i].programs[len(variants[i].programs)-1].name; got != last {
			t.Errorf("%s of %v by %s takes %s, want %s", test.probe, test.known, name, got, last)
		}
		if test.known == nil {
			continue
		}
		got := ""
		if err := checkPrototypes(h.hostHook(h.catalog.objects[p.Group], h.catalog.origin(p).hook), variants[i].programs); err != nil {
			got = err.Error()
		}
		if got != test.refusal {
			t.Errorf("%s of %v by %s: refused for %q, want %q", test.probe, test.known, name, got, test.refusal)
		}
	}
}

// A function that fexit cannot be attached to is a kprobe in the variant of the others. Where kprobes come first, what interrupts call is
// still an fentry, unless the kernel runs the handlers of interrupts in tasks, or does not describe the function.
func TestMixedVariant(t *testing.T) {
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	exec, callback, handler := describe("mlx5_cmd_exec", number, 5), describe("mlx5_cmd_exec_cb", number, 7), describe("mlx5_cmd_exec_cb_handler", &btf.Void{}, 2)
	failover := describe("nvme_failover_req", &btf.Void{}, 1)
	for _, test := range []struct {
		model, probe string
		want         []string // by variant, best first
	}{
		{voluntary, "mlx5:cmd", []string{
			"fexit: mlx5_cmd_exec fentry fexit, mlx5_cmd_exec_cb kprobe kretprobe, mlx5_cmd_exec_cb_handler fentry",
			"kprobe: mlx5_cmd_exec kprobe kretprobe, mlx5_cmd_exec_cb kprobe kretprobe, mlx5_cmd_exec_cb_handler kprobe",
		}},
		{"lazy", "mlx5:cmd", []string{
			"kprobe: mlx5_cmd_exec kprobe kretprobe, mlx5_cmd_exec_cb kprobe kretprobe, mlx5_cmd_exec_cb_handler fentry",
			"kprobe: mlx5_cmd_exec kprobe kretprobe, mlx5_cmd_exec_cb kprobe kretprobe, mlx5_cmd_exec_cb_handler kprobe",
			"fexit: mlx5_cmd_exec fentry fexit, mlx5_cmd_exec_cb kprobe kretprobe, mlx5_cmd_exec_cb_handler fentry",
		}},
		{"real-time", "mlx5:cmd", []string{
			"kprobe: mlx5_cmd_exec kprobe kretprobe, mlx5_cmd_exec_cb kprobe kretprobe, mlx5_cmd_exec_cb_handler kprobe",
			"fexit: mlx5_cmd_exec fentry fexit, mlx5_cmd_exec_cb kprobe kretprobe, mlx5_cmd_exec_cb_handler fentry",
		}},
		{voluntary, "nvme:failover", []string{"fexit: nvme_failover_req fentry", "kprobe: nvme_failover_req kprobe"}},
		{"lazy", "nvme:failover", []string{"fexit: nvme_failover_req fentry", "kprobe: nvme_failover_req kprobe"}},
		{"real-time", "nvme:failover", []string{"kprobe: nvme_failover_req kprobe", "fexit: nvme_failover_req fentry"}},
	} {
		h := hostWith(t, test.model, exec, callback, handler, failover)
		var got []string
		for _, v := range h.variantsOf(h.catalog.Match(test.probe)[0]) {
			got = append(got, v.name()+": "+waysByTarget(v, exec.Name, callback.Name, handler.Name, failover.Name))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s with preemption %q:\n%s", test.probe, test.model, strings.Join(got, "\n"))
		}
	}
	h := hostWith(t, "lazy", exec)
	p := h.catalog.Match("mlx5:cmd")[0]
	if err := checkPrototypes(h.hostHook(h.catalog.objects[p.Group], h.catalog.origin(p).hook), h.variantsOf(p)[0].programs); err == nil {
		t.Error("an fentry on a function that nothing describes")
	}
}

// waysByTarget returns how a variant is attached to some functions.
func waysByTarget(v variant, targets ...string) string {
	var all []string
	for _, target := range targets {
		var ways []string
		for _, p := range v.programs {
			if p.target == target {
				ways = append(ways, p.way.String())
			}
		}
		if len(ways) > 0 {
			all = append(all, target+" "+strings.Join(ways, " "))
		}
	}
	return strings.Join(all, ", ")
}

// A helper delivers no events, so none is lost when the kernel skips it.
func TestHelpersDeliverNothing(t *testing.T) {
	h := hostWith(t, voluntary)
	for _, p := range h.catalog.Probes() {
		if h.catalog.origin(p).hook.isHelper() {
			t.Errorf("%s is a helper", p)
		}
		for _, hk := range helpers {
			for _, v := range h.hostHook(h.catalog.objects[p.Group], hk).variants() {
				if n := len(h.catalog.origin(p).delivering(v)); n != 0 || !hk.isHelper() {
					t.Errorf("%d programs of %s by %s deliver events of %s", n, hk.name, v.name(), p)
				}
			}
		}
	}
}

// variantsOf are the ways to attach to a probe, best first.
func (h *Host) variantsOf(p *event.Probe) []variant {
	src := h.catalog.origin(p)
	return h.hostHook(src.object, src.hook).variants()
}
