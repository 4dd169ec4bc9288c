package probes

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// hostWith is a host whose kernel describes these functions and no more.
func hostWith(t *testing.T, functions ...*btf.Func) *Host {
	t.Helper()
	var types []btf.Type
	for _, f := range functions {
		types = append(types, f)
	}
	return hostOf(t, types...)
}

// hostKnowing is a host whose kernel describes a struct type of this name.
func hostKnowing(t *testing.T, name string) *Host {
	t.Helper()
	return hostOf(t, &btf.Typedef{Name: name, Type: &btf.Struct{Size: 8}})
}

func hostOf(t *testing.T, types ...btf.Type) *Host {
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
	h, err := Detect(load(t), HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.vmlinux = func() (*btf.Spec, error) { return spec, nil }
	h.preemption = func() preemption { return preemption{model: "voluntary"} }
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
		h := hostWith(t)
		if test.known != nil {
			h = hostWith(t, test.known)
		}
		p := h.catalog.Match(test.probe)[0]
		name, last, _ := strings.Cut(test.variant, " ")
		variants := h.variants(p.Group, h.catalog.source(p).hook)
		i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
		if got := variants[i].programs[len(variants[i].programs)-1].name; got != last {
			t.Errorf("%s of %v by %s takes %s, want %s", test.probe, test.known, name, got, last)
		}
		if test.known == nil {
			continue
		}
		got := ""
		if err := h.checkPrototypes(p.Group, variants[i].programs); err != nil {
			got = err.Error()
		}
		if got != test.refusal {
			t.Errorf("%s of %v by %s: refused for %q, want %q", test.probe, test.known, name, got, test.refusal)
		}
	}
}

// A function that fexit cannot be attached to is a kprobe in the variant of the others.
func TestMixedVariant(t *testing.T) {
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	h := hostWith(t, describe("mlx5_cmd_exec", number, 5), describe("mlx5_cmd_exec_cb", number, 7))
	p := h.catalog.Match("mlx5:cmd")[0]
	kinds := make(map[string]string)
	for _, program := range h.variants(p.Group, h.catalog.source(p).hook)[0].programs {
		kinds[program.target] += program.kind + " "
	}
	for target, want := range map[string]string{
		"mlx5_cmd_exec": "fentry fexit ", "mlx5_cmd_exec_cb": "kprobe kretprobe ", "mlx5_cmd_exec_cb_handler": "kprobe ",
	} {
		if kinds[target] != want {
			t.Errorf("%s is attached to by %s, want %s", target, kinds[target], want)
		}
	}
}

// A helper delivers no events, so what the kernel skips of it is none that is lost.
func TestHelpersDeliverNothing(t *testing.T) {
	h := hostWith(t)
	for _, p := range h.catalog.Probes() {
		if h.catalog.source(p).hook.isHelper() {
			t.Errorf("%s is a helper", p)
		}
		for _, hk := range helpers {
			for _, v := range h.variants(p.Group, hk) {
				if n := h.catalog.delivering(p, v); n != 0 || !hk.isHelper() {
					t.Errorf("%d programs of %s by %s deliver events of %s", n, hk.name, v.name, p)
				}
			}
		}
	}
}
