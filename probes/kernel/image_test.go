//go:build linux

package kernel

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// kernelImage reads the types of the running kernel, and lets the library read them.
func kernelImage(t *testing.T) (*image, *btf.Spec) {
	t.Helper()
	own, err := readImage(vmlinuxBTF, nil)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("this kernel shows no BTF")
	}
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	return own, spec
}

// TestImage compares every struct, union and enum of the running kernel and of its modules with the library's.
func TestImage(t *testing.T) {
	own, spec := kernelImage(t)
	compareImage(t, own, spec)
	files, _ := filepath.Glob("/sys/kernel/btf/*")
	for _, file := range files {
		if filepath.Base(file) == "vmlinux" {
			continue
		}
		module, err := readImage(file, own)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		split, err := btf.LoadSplitSpecFromReader(bytes.NewReader(data), spec)
		if err != nil {
			t.Fatal(err)
		}
		compareImage(t, module, split)
	}
}

// The running kernel's functions and tracepoints have the ids that the library gives them. Functions that share a name have none.
func TestTargetsOfImage(t *testing.T) {
	own, spec := kernelImage(t)
	functions, tracepoints := make(map[string]uint32), 0
	for described, err := range spec.All() {
		if err != nil {
			t.Fatal(err)
		}
		typeID, err := spec.TypeID(described)
		if err != nil {
			t.Fatal(err)
		}
		id, name := uint32(typeID), described.TypeName()
		switch described.(type) {
		case *btf.Func:
			if functions[name] != 0 {
				id = noTarget
			}
			functions[name] = id
		case *btf.Typedef:
			tracepoint, ok := strings.CutPrefix(name, "btf_trace_")
			if !ok {
				continue
			}
			tracepoints++
			if got := own.tracepoint(tracepoint); got != id {
				t.Errorf("%s: %d, want %d", tracepoint, got, id)
			}
		}
	}
	for name, id := range functions {
		if id == noTarget {
			id = 0
		}
		if got := own.function(name); got != id {
			t.Errorf("%s: %d, want %d", name, got, id)
		}
	}
	if len(functions) < 1000 || tracepoints < 100 {
		t.Errorf("%d functions and %d tracepoints", len(functions), tracepoints)
	}
	if own.function("no_such_function") != 0 || own.tracepoint("no_such_tracepoint") != 0 {
		t.Error("what there is not has an id")
	}
}

// noTarget is in place of an id if there are several.
const noTarget = 1<<32 - 1

// Newer kernels leave such functions out of their types.
func TestFunctionsThatShareAName(t *testing.T) {
	var b btf.Builder
	ids := make(map[string]btf.TypeID)
	for _, name := range []string{"twice", "once", "twice"} {
		id, err := b.Add(&btf.Func{Name: name, Type: &btf.FuncProto{Return: (*btf.Void)(nil)}, Linkage: btf.StaticFunc})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = id
	}
	data, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	im, err := newImage(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := im.function("twice"); got != 0 {
		t.Errorf("one of two functions has the id %d", got)
	}
	if got := im.function("once"); got != uint32(ids["once"]) {
		t.Errorf("%d, want %d", got, ids["once"])
	}
}

// The running kernel's typedefs of functions have as many parameters as the library finds.
func TestParametersOfImage(t *testing.T) {
	own, spec := kernelImage(t)
	for _, name := range []string{"btf_trace_sched_switch", "btf_trace_sys_enter", "btf_trace_sched_waking", "u64", "no_such_type"} {
		n, ok := own.parameters(name)
		want, known := library{spec}.parameters(name)
		if n != want && known || ok != known || known != strings.HasPrefix(name, "btf_trace_") {
			t.Errorf("%s: %d parameters (%v), the library has %d (%v)", name, n, ok, want, known)
		}
	}
}

func compareImage(t *testing.T, im *image, spec *btf.Spec) {
	t.Helper()
	p := pruner{done: make(map[btf.Type]btf.Type)}
	compared := 0
	for i := range im.offsets {
		id := im.first + uint32(i)
		switch k := im.head(int(im.offsets[i])).kind(); k {
		case kindStruct, kindUnion, kindEnum, kindEnum64:
		default:
			continue
		}
		got, err := im.inflate(id)
		if err != nil {
			t.Fatalf("type %d: %v", id, err)
		}
		of, err := spec.TypeByID(btf.TypeID(id))
		if err != nil {
			t.Fatal(err)
		}
		compared++
		if want := p.prune(of); !reflect.DeepEqual(got, want) {
			t.Fatalf("type %d, %s: %+v, the library has %+v", id, of.TypeName(), got, want)
		}
	}
	if compared == 0 {
		t.Error("no type was compared")
	}
}

// FuzzImage: no bytes make it panic.
func FuzzImage(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 24, 0, 0, 0, 4, 0, 0, 0,
		1, 0, 0, 0, 1, 0, 0, 4, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		im, err := newImage(data, nil)
		if err != nil {
			return
		}
		for i := range im.offsets {
			_, _ = im.inflate(im.first + uint32(i))
		}
		_, _ = im.find("ab", &btf.Struct{})
		im.function("ab")
		im.tracepoint("ab")
	})
}
