package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

const nvmeObject = "../../bpf/amd64/nvme.bpf.o.zst"

func open(t *testing.T, name string) *Object {
	t.Helper()
	o, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The description of an object has what other programs know of it.
func TestObject(t *testing.T) {
	o := open(t, nvmeObject)
	if o.Machine != "EM_BPF" || o.ByteOrder != "LittleEndian" || o.License != "Dual BSD/GPL" || len(o.Problems) > 0 {
		t.Errorf("got %s %s %s %v", o.Machine, o.ByteOrder, o.License, o.Problems)
	}
	i := slices.IndexFunc(o.Sections, func(s Section) bool { return s.Name == "raw_tp/nvme_setup_cmd" })
	if i < 0 || o.Sections[i].Type != "SHT_PROGBITS" {
		t.Fatal("there is no section raw_tp/nvme_setup_cmd")
	}
	instructions := 0
	for _, p := range o.Programs {
		if p.Section == o.Sections[i].Name {
			instructions += p.Instructions
		}
	}

	if size := int(o.Sections[i].Size); instructions*8 > size || instructions*16 < size {
		t.Errorf("programs of %d instructions are in a section of %d bytes", instructions, size)
	}
	i = slices.IndexFunc(o.Programs, func(p Program) bool { return p.Name == "fentry_nvme_failover__nvme_failover_req" })
	if p := o.Programs[i]; p.Type != "Tracing" || p.Attach != "TraceFEntry" || p.Target != "nvme_failover_req" || !slices.Contains(p.Maps, "nvme_inflight") || len(p.Helpers) == 0 {
		t.Errorf("got %+v", p)
	}
	i = slices.IndexFunc(o.Maps, func(m Map) bool { return m.Name == "nvme_inflight" })
	if m := o.Maps[i]; m != (Map{Name: "nvme_inflight", Type: "Hash", KeySize: 8, ValueSize: m.ValueSize, MaxEntries: 2048, Key: "__u64", Value: "struct nvme_inflight_slots_slot"}) {
		t.Errorf("got %+v", m)
	}
	i = slices.IndexFunc(o.Variables, func(v Member) bool { return v.Name == "nvme_request_known" })
	if v := o.Variables[i]; v.Type != "bool in .bss" || v.Offset != 0 {
		t.Errorf("got %+v", v)
	}
	i = slices.IndexFunc(o.Types, func(t Type) bool { return t.Name == "nvme_setup_cmd" && t.Kind == "struct" })
	if s := o.Types[i]; s.Size == 0 || s.Members[0].Type == "" || !slices.ContainsFunc(s.Tags, func(tag string) bool { return strings.HasPrefix(tag, "doc:") }) {
		t.Errorf("got %+v", s)
	}
	i = slices.IndexFunc(o.Types, func(t Type) bool { return t.Name == "of_task" })
	if m := o.Types[i].Members[1]; m.Name != "pgid" || m.Offset != 0 || m.Bit != 1 || m.Bits != 1 {
		t.Errorf("got %+v", m)
	}
}

// Every object of ours is understood whole, and text and JSON have each of its parts.
func TestAllObjects(t *testing.T) {
	names, err := filepath.Glob("../../bpf/*/*.bpf.o.zst")
	if err != nil || len(names) < 10 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		o := open(t, name)
		var text strings.Builder
		if err := o.Print(&text); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var again Object
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		if len(o.Problems) > 0 || len(again.Programs) != len(o.Programs) || len(o.Programs) == 0 || len(again.Types) != len(o.Types) || len(o.Types) == 0 {
			t.Errorf("%s: %v, %d programs, %d types", name, o.Problems, len(o.Programs), len(o.Types))
		}
		for _, p := range o.Programs {
			if !strings.Contains(text.String(), "\n"+p.Name+" ") {
				t.Errorf("%s: the text lacks %s", name, p.Name)
			}
		}
	}
}

// A file that is no object is refused, and what is not understood of one is a problem.
func TestProblems(t *testing.T) {
	if _, err := Open("no.o"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
	if _, err := Open("elf.go"); err == nil || !strings.Contains(err.Error(), "not an ELF file; clang -target bpf -c makes one") {
		t.Errorf("got %v", err)
	}
	damaged, large := filepath.Join(t.TempDir(), "damaged"), filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(damaged, []byte(zstdMagic+"nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, encoder.EncodeAll(make([]byte, maxSize+1), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{damaged: damaged + ": ", large: "it has more than 256 MiB when decompressed; decompress it first: zstd -d"} {
		if _, err := Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := open(t, self)
	if len(o.Problems) != 1 || !strings.HasPrefix(o.Problems[0], "it has no BPF programs: its machine is EM_") || len(o.Sections) == 0 {
		t.Errorf("got %v", o.Problems)
	}
}

// A panic of a library is an error.
func TestPanic(t *testing.T) {
	if _, err := read("x", panicking{}); err == nil || err.Error() != "x: damaged: out of range" {
		t.Errorf("got %v", err)
	}
}

type panicking struct{}

func (panicking) ReadAt([]byte, int64) (int, error) { panic("out of range") }

// A damaged file is no panic, and what it names writes no control characters.
func TestDamaged(t *testing.T) {
	f, err := os.Open(nvmeObject)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole, err := decompress(f)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	problems, errs := 0, 0
	for range 300 {
		damaged := slices.Clone(whole)
		for range 1 + r.IntN(200) {
			damaged[r.IntN(len(damaged))] = byte(r.Uint32())
		}
		o, err := read("x", bytes.NewReader(damaged[:len(damaged)-r.IntN(2)*r.IntN(len(damaged))]))
		if err != nil {
			errs++
			continue
		}
		problems += len(o.Problems)
		var text strings.Builder
		if err := o.Print(&text); err != nil || strings.ContainsAny(text.String(), "\x1b\x00\x07\u009b") {
			t.Fatalf("%v %q", err, &text)
		}
	}
	if problems == 0 || errs == 0 {
		t.Errorf("%d problems and %d errors", problems, errs)
	}
}

// TestBounds opens files that are small and say that they are large.
func TestBounds(t *testing.T) {
	window := filepath.Join(t.TempDir(), "window.zst") // a frame that asks for a window of 2 GiB (RFC 8878, section 3.1.1.1.2)
	if err := os.WriteFile(window, []byte(zstdMagic+"\x00\xa8\x01\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(window); err == nil || !strings.Contains(err.Error(), "window size exceeded") {
		t.Errorf("a window of 2 GiB: %v", err)
	}
	object := sectionsOf(t, 1<<20, 300)
	if o, err := read("many", bytes.NewReader(object)); err != nil || len(o.Problems) != 1 || !strings.Contains(o.Problems[0], "more than 256 MiB") {
		t.Errorf("300 sections of the same MiB: %v, %+v", err, o.Problems)
	}
	if o, err := read("few", bytes.NewReader(sectionsOf(t, 1<<20, 3))); err != nil || strings.Contains(strings.Join(o.Problems, " "), "MiB") {
		t.Errorf("three sections: %v, %+v", err, o.Problems)
	}
}

// sectionsOf returns an ELF file for BPF with sections that are the same bytes.
func sectionsOf(t *testing.T, size uint64, n int) []byte {
	t.Helper()
	header := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_BPF), Version: 1, Shoff: 64, Ehsize: 64, Shentsize: 64, Shnum: uint16(n + 1)}
	copy(header.Ident[:], "\x7fELF\x02\x01\x01")
	sections := make([]elf.Section64, n+1)
	for i := range n {
		sections[i+1] = elf.Section64{Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: size}
	}
	var b bytes.Buffer
	for _, part := range []any{header, sections, make([]byte, size)} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// The types of a file without symbols are shown, too.
func TestWithoutSymbols(t *testing.T) {
	packed, err := os.Open(nvmeObject)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	data, err := decompress(packed)
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	table := data[binary.LittleEndian.Uint64(data[0x28:]):] // Elf64_Ehdr.e_shoff; sh_type is the second word of a header
	i := slices.IndexFunc(file.Sections, func(s *elf.Section) bool { return s.Type == elf.SHT_SYMTAB })
	binary.LittleEndian.PutUint32(table[64*i+4:], uint32(elf.SHT_NULL))
	o, err := read("bare", bytes.NewReader(data))
	if whole := open(t, nvmeObject); err != nil || len(o.Types) == 0 || len(o.Types) != len(whole.Types) {
		t.Errorf("%v: %d types of %d: %v", err, len(o.Types), len(whole.Types), o.Problems)
	}
}

// FuzzObject describes files that anyone may have made: what is found can be printed.
func FuzzObject(f *testing.F) {
	packed, err := os.Open("../../bpf/amd64/children.bpf.o.zst") // the smallest one
	if err != nil {
		f.Fatal(err)
	}
	defer packed.Close()
	data, err := decompress(packed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := read("file", bytes.NewReader(data))
		if err != nil {
			return
		}
		if err := errors.Join(o.Print(io.Discard), json.NewEncoder(io.Discard).Encode(o)); err != nil {
			t.Error(err)
		}
	})
}
