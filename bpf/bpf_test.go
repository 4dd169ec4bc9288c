package bpf

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A file that is not there, is not compressed, or has no types is reported.
func TestMessages(t *testing.T) {
	if _, err := Open("none"); err == nil || !strings.HasPrefix(err.Error(), "embedded object none: open ") {
		t.Error(err)
	}
	if _, err := unpack([]byte("not compressed")); err == nil {
		t.Error("it is an object")
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(self); err == nil || err.Error() != "no section .BTF" {
		t.Error(err)
	}
}

// whole returns an object, and all of its programs.
func whole(t *testing.T, name string) (*Object, *ebpf.CollectionSpec) {
	t.Helper()
	o, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := o.Load(o.Programs()...)
	if err != nil {
		t.Fatal(err)
	}
	return o, all
}

// A program that is loaded alone is what it is among all programs of its object.
func TestLoadSome(t *testing.T) {
	for _, name := range Objects() {
		o, all := whole(t, name)
		if len(all.Programs) != len(o.Programs()) {
			t.Errorf("%s: %d of %d programs", name, len(all.Programs), len(o.Programs()))
		}
		for program, want := range all.Programs {
			some, err := o.Load(program)
			if err != nil {
				t.Fatal(err)
			}
			for other, p := range some.Programs {
				if p.SectionName != want.SectionName {
					t.Errorf("%s: %s came with %s", name, other, program)
				}
			}
			got := some.Programs[program]
			if lines(want.Instructions) != lines(got.Instructions) {
				t.Errorf("%s: %s is\n%s\nwant\n%s", name, program, lines(got.Instructions), lines(want.Instructions))
			}
			if want.Name != got.Name || want.Type != got.Type || want.AttachTo != got.AttachTo || want.AttachType != got.AttachType {
				t.Errorf("%s: %v is not %v", name, got, want)
			}
			for m := range got.Instructions.ReferenceOffsets() {
				if all.Maps[m] != nil && some.Maps[m] == nil {
					t.Errorf("%s: %s has no map %s", name, program, m)
				}
			}
		}
	}
}

// lines has a line for each instruction, with its relocation, function and line.
func lines(insns asm.Instructions) string {
	var b strings.Builder
	for i := range insns {
		fmt.Fprint(&b, insns[i], " ", insns[i].Reference())
		if r := btf.CORERelocationMetadata(&insns[i]); r != nil {
			fmt.Fprint(&b, " ", r)
		}
		if f := btf.FuncMetadata(&insns[i]); f != nil {
			fmt.Fprint(&b, " ", f.Name)
		}
		fmt.Fprintln(&b, insns[i].Source() != nil)
	}
	return b.String()
}

// The programs that call a function are those with an instruction that refers to it.
func TestCallers(t *testing.T) {
	for _, name := range Objects() {
		o, all := whole(t, name)
		callers := make(map[string][]string)
		for _, program := range o.Programs() {
			for _, function := range all.Programs[program].Instructions.FunctionReferences() {
				callers[function] = append(callers[function], program)
			}
		}
		for function, want := range callers {
			got := o.Callers(function)
			slices.Sort(got)
			slices.Sort(want)
			if all.Programs[function] == nil && !slices.Equal(got, want) {
				t.Errorf("%s: %s is called by %v, want %v", name, function, got, want)
			}
		}
		if o.Callers("none") != nil {
			t.Errorf("%s: a function that is not there is called", name)
		}
	}
}

// The types that programs are relocated against are those that the library relocates their instructions by.
func TestRelocated(t *testing.T) {
	some := 0
	for _, name := range Objects() {
		o, all := whole(t, name)
		types, err := o.Types()
		if err != nil {
			t.Fatal(err)
		}
		want := make(map[string]bool)
		for _, p := range all.Programs {
			for i := range p.Instructions {
				if r := btf.CORERelocationMetadata(&p.Instructions[i]); r != nil {
					want[againstOf(r)] = true
				}
			}
		}
		got := make(map[string]bool)
		for _, id := range o.Relocated() {
			typ, err := types.TypeByID(id)
			if err != nil {
				t.Fatal(err)
			}
			got[fmt.Sprintf("%s", typ)] = true
		}
		if some += len(got); !maps.Equal(got, want) {
			t.Errorf("%s: relocated against %v, want %v", name, got, want)
		}
	}
	if some == 0 {
		t.Error("nothing is relocated")
	}
}

// againstOf returns the type of a relocation, whose text is like CORERelocation(byte_off, Struct:"request"[0:1], local_id=4).
func againstOf(r *btf.CORERelocation) string {
	_, text, _ := strings.Cut(r.String(), ", ")
	return text[:strings.LastIndex(text, "[")]
}
