package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cilium/ebpf/btf"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"trace/bpf"
)

// --btf takes a file or a folder of them; the compiled objects are ELF files with types.
func TestReadTypes(t *testing.T) {
	folder := t.TempDir()
	for _, name := range bpf.Objects() {
		packed, err := os.ReadFile(filepath.Join("..", "..", "bpf", runtime.GOARCH, name+".bpf.o.zst"))
		if err != nil {
			t.Fatal(err)
		}
		decoder, err := zstd.NewReader(nil)
		if err != nil {
			t.Fatal(err)
		}
		object, err := decoder.DecodeAll(packed, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name+".bpf.o"), object, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{folder: len(bpf.Objects()), filepath.Join(folder, "ib.bpf.o"): 1} {
		specs, err := readTypes(path)
		if err != nil || len(specs) != want {
			t.Errorf("%s: %d specs, want %d: %v", path, len(specs), want, err)
		}
	}
	empty, garbage := t.TempDir(), filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("this is no BTF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{empty: "types: no files in " + empty, garbage: "(expected BTF, or an ELF file with a .BTF section; pahole --btf_encode_detached makes one)", garbage + "s": "no such file"} {
		if _, err := readTypes(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", path, err, want)
		}
	}
}

// Names are found whole, among the kernel's types and among its functions.
func TestDescribesName(t *testing.T) {
	for name, want := range map[string]bool{"task_struct": true, "task_struc": false, "ask_struct": false, "tcp_sendmsg": true} {
		got, err := describesName(name)
		if errors.Is(err, fs.ErrNotExist) {
			t.Skip("this kernel shows no BTF")
		}
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// A string is found wherever parts of the table begin.
func TestHasString(t *testing.T) {
	const table = "\x00abc\x00bc\x00aaab\x00"
	for atOnce := 6; atOnce < len(table)+3; atOnce++ {
		for name, want := range map[string]bool{"abc": true, "bc": true, "aaab": true, "aab": false, "ab": false, "c": false, "aaa": false} {
			got, err := hasString(iotest.OneByteReader(strings.NewReader(table)), name, atOnce)
			if err != nil || got != want {
				t.Errorf("%s, %d bytes at once: %v, %v", name, atOnce, got, err)
			}
		}
	}
	if _, err := hasString(iotest.ErrReader(fs.ErrClosed), "abc", 64); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("an error of reading: %v", err)
	}
}

// The types of raw tracepoints have one argument more than they pass; functions have what they have.
func TestArguments(t *testing.T) {
	void := &btf.Pointer{Target: (*btf.Void)(nil)}
	pointer := func(params ...btf.FuncParam) btf.Type {
		return &btf.Pointer{Target: &btf.FuncProto{Return: (*btf.Void)(nil), Params: params}}
	}
	b, err := btf.NewBuilder([]btf.Type{
		&btf.Typedef{Name: "btf_trace_two", Type: pointer(btf.FuncParam{Type: void}, btf.FuncParam{Type: void}, btf.FuncParam{Type: void})},
		&btf.Typedef{Name: "btf_trace_none", Type: pointer(btf.FuncParam{Type: void})},
		&btf.Typedef{Name: "btf_trace_odd", Type: void},
		&btf.Func{Name: "one", Type: &btf.FuncProto{Return: (*btf.Void)(nil), Params: []btf.FuncParam{{Name: "a", Type: void}}}, Linkage: btf.StaticFunc},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(Options{Types: func() (*btf.Spec, error) { return btf.LoadSpecFromReader(bytes.NewReader(data)) }})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]byte{"two": 2, "none": 0, "odd": 0, "one": 1, "missing": 0} {
		if n := k.Arguments(Module{}, name); n != want {
			t.Errorf("%s has %d arguments, want %d", name, n, want)
		}
	}
	if _, err := k.Prototype(Module{}, "missing"); err == nil || err.Error() != "the kernel's BTF has no missing" {
		t.Errorf("a function that is not there: %v", err)
	}
}

// Errors of a kernel without types, and facts about one, say what to do.
func TestWithoutTypes(t *testing.T) {
	k, err := New(Options{
		Modules:     []Module{{Name: "no_such_module", Load: "modprobe it"}},
		Symbols:     func() map[string]bool { return nil },
		Types:       func() (*btf.Spec, error) { return nil, ErrNoBTF },
		ModuleTypes: func(string) (*btf.Spec, error) { return nil, ErrNoBTF },
		Preemption:  func() Preemption { return Preemption{Model: "full", Source: "a test"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	const noBTF = "this kernel shows no BTF in /sys/kernel/btf/vmlinux"
	if want := noBTF + " (provide a file with its types: --btf FILE)"; k.Described() == nil || k.Described().Error() != want {
		t.Errorf("%v, want %s", k.Described(), want)
	}
	if _, err := k.Prototype(Module{}, "f"); err == nil || err.Error() != "fexit needs the kernel's own BTF: "+noBTF {
		t.Errorf("a prototype: %v", err)
	}
	facts := make(map[string]Fact)
	for _, f := range append(k.Facts(NewCgroups()), k.ModuleFact(Module{Name: "no_such_module", Load: "modprobe it"}, []string{"x"})) {
		facts[f.Name] = f
	}
	for name, want := range map[string]string{
		"BTF":                   noBTF + "; provide a file with the kernel's types: --btf FILE",
		"module no_such_module": "not loaded; modprobe it",
	} {
		if f := facts[name]; f.OK || f.Value+"; "+f.Advice != want {
			t.Errorf("%s is %+v, want %s", name, f, want)
		}
	}
	if v := facts["preemption"].Value; !strings.Contains(v, "so functions are traced by kprobe") {
		t.Errorf("preemption is %q", v)
	}
}

// Errors name what is missing, and how to get it.
func TestErrors(t *testing.T) {
	box := &Cgroups{hierarchy: func() *hierarchy { return &hierarchy{mount: "/sys/fs/cgroup", root: "/box"} }}
	none := &Cgroups{hierarchy: func() *hierarchy { return nil }}
	_, unreadable := ReadFormat("no_such_group/no_such_event")
	if tracefs() == "" {
		unreadable = errors.New("format of tracepoint no_such_group/no_such_event: not checked")
	}
	for want, err := range map[string]error{
		"permission denied: needs CAP_BPF and CAP_PERFMON (run as root, or grant with setcap or --cap-add)": &PermissionError{Missing: []string{CapBPF, CapPerfmon}},
		"this kernel has no tracepoint nvme_sq":              NoTracepoint("nvme_sq"),
		"format of tracepoint no_such_group/no_such_event: ": unreadable,
		"module no_such_module is not loaded (modprobe it)":  Module{Name: "no_such_module", Load: "modprobe it"}.Explain(errors.New("x")),
		"cgroup /a is not visible in this container":         box.Below("/a", nil),
		"no cgroups are mounted here: mount -t cgroup2":      none.Below("/a", nil),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestTypesAreBounded: files of types that are too large in all, or no files, are refused before they are read.
func TestTypesAreBounded(t *testing.T) {
	folder, pipe := t.TempDir(), filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(folder, "large")
	if err := os.WriteFile(large, []byte("\x7fELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxTypes+1); err != nil { // with a hole
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "not a regular file", large: "files of types may have 256 MiB in all", folder: "files of types may have 256 MiB in all"} {
		if _, err := readTypes(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", path, err, want)
		}
	}
	if _, _, err := loadTypes(large, maxTypes); err == nil {
		t.Error("what earlier files have left is not counted")
	}
}

// An ELF file needs no symbols to have types, but it needs a section with them, which is not larger than all types may be.
func TestTypesWithoutSymbols(t *testing.T) {
	packed, err := os.ReadFile("../../bpf/amd64/children.bpf.o.zst")
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	object, err := decoder.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	bare := changeSections(t, object, func(s *elf.Section64) { s.Type = uint32(elf.SHT_NULL) }, func(s elf.SectionHeader) bool { return s.Type == elf.SHT_SYMTAB })
	if file, err := elf.NewFile(bytes.NewReader(bare)); err != nil || file.SectionByType(elf.SHT_SYMTAB) != nil {
		t.Fatalf("%v: there are still symbols", err)
	}
	var found, same *btf.Struct
	for data, into := range map[*[]byte]**btf.Struct{&object: &same, &bare: &found} {
		spec, err := parseTypes(bytes.NewReader(*data))
		if err == nil {
			err = spec.TypeByName("task_struct", into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found.Members) == 0 || len(found.Members) != len(same.Members) {
		t.Errorf("without symbols %v, with them %v", found, same)
	}
	isTypes := func(s elf.SectionHeader) bool { return s.Name == ".BTF" }
	for want, change := range map[string]func(*elf.Section64){
		"it has no section .BTF":                 func(s *elf.Section64) { s.Name = 0 },
		"its section .BTF has more than 256 MiB": func(s *elf.Section64) { s.Size = maxTypes + 1 },
		"unexpected EOF":                         func(s *elf.Section64) { s.Off = uint64(len(object)) - 8 },
	} {
		if _, err := parseTypes(bytes.NewReader(changeSections(t, object, change, isTypes))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// changeSections returns an ELF file whose headers of some sections were changed.
func changeSections(t *testing.T, object []byte, change func(*elf.Section64), which func(elf.SectionHeader) bool) []byte {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(object)
	table := changed[binary.LittleEndian.Uint64(changed[0x28:]):] // Elf64_Ehdr.e_shoff
	for i, s := range file.Sections {
		if !which(s.SectionHeader) {
			continue
		}
		header := table[i*binary.Size(elf.Section64{}):]
		var h elf.Section64
		if _, err := binary.Decode(header, binary.LittleEndian, &h); err != nil {
			t.Fatal(err)
		}
		change(&h)
		if _, err := binary.Encode(header, binary.LittleEndian, h); err != nil {
			t.Fatal(err)
		}
	}
	return changed
}

// FuzzTypes reads files of types that anyone may have made.
func FuzzTypes(f *testing.F) {
	packed, err := os.ReadFile("../../bpf/amd64/children.bpf.o.zst")
	if err != nil {
		f.Fatal(err)
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		f.Fatal(err)
	}
	object, err := decoder.DecodeAll(packed, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(object)
	f.Add(object[:len(object)/2])
	f.Add([]byte{0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 24, 0, 0, 0, 4, 0, 0, 0,
		1, 0, 0, 0, 1, 0, 0, 4, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := parseTypes(bytes.NewReader(data))
		if err != nil {
			return
		}
		var found *btf.Struct
		_ = spec.TypeByName("ab", &found)
		for typ, err := range spec.All() {
			if err != nil {
				return
			}
			_ = fmt.Sprintf("%v %s", typ, typ.TypeName())
			_, _ = btf.Sizeof(typ)
		}
	})
}
