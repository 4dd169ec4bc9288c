// Package bpf embeds the compiled probes: one object for each group of probes and each architecture, compressed. `make generate` compiles
// the C files beside it; README.md shows how to add a probe.
package bpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/klauspost/compress/zstd"
)

// suffix ends the names of the files.
const suffix = ".bpf.o.zst"

// Objects returns the names of the embedded objects, sorted.
func Objects() []string {
	entries, err := objects.ReadDir(runtime.GOARCH)
	if err != nil {
		panic("bpf: embedded folder is missing: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	return names
}

// An Object is a decompressed object. Its methods must not be called at the same time.
type Object struct {
	name     string
	data     []byte
	file     *elf.File
	symbols  []elf.Symbol // without the first one, as debug/elf has them
	programs []elf.Symbol
	infos    []byte // .BTF.ext as it was compiled
}

// Open decompresses an embedded object.
func Open(name string) (*Object, error) {
	packed, err := objects.ReadFile(runtime.GOARCH + "/" + name + suffix)
	if err != nil {
		return nil, fmt.Errorf("embedded object %s: %w", name, err)
	}
	o, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("embedded object %s: %w", name, err)
	}
	o.name = name
	return o, nil
}

func unpack(packed []byte) (*Object, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	data, err := decoder.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	return parse(data)
}

func parse(data []byte) (*Object, error) {
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for _, section := range []string{typesSection, infosSection} {
		if file.Section(section) == nil {
			return nil, fmt.Errorf("no section %s", section)
		}
	}
	o := &Object{data: data, file: file}
	o.infos = slices.Clone(o.in(file.Section(infosSection)))
	if o.symbols, err = file.Symbols(); err != nil {
		return nil, err
	}
	for _, s := range o.symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
			o.programs = append(o.programs, s)
		}
	}
	return o, nil
}

// The sections with types, and with what the kernel and the library know of instructions (Documentation/bpf/btf.rst).
const (
	typesSection = ".BTF"
	infosSection = ".BTF.ext"
)

// in returns what is in a section.
func (o *Object) in(section *elf.Section) []byte {
	return o.data[section.Offset:][:section.FileSize]
}

// Types returns the types in the object: structs of events, and programs as functions. It is much cheaper than Load.
func (o *Object) Types() (*btf.Spec, error) {
	types, err := btf.LoadSplitSpecFromReader(o.file.Section(typesSection), nil)
	if err != nil {
		return nil, fmt.Errorf("types of embedded object %s: %w", o.name, err)
	}
	return types, nil
}

// Relocated returns the ids of the types that programs are relocated against: views of the kernel's types. A relocation is struct
// bpf_core_relo of include/uapi/linux/bpf.h.
func (o *Object) Relocated() []btf.TypeID {
	const relocations = 24 // where the header has the place of this part of .BTF.ext, see infosOf
	var ids []btf.TypeID
	u32 := binary.LittleEndian.Uint32
	in := o.infos[u32(o.infos[4:])+u32(o.infos[relocations:]):][:u32(o.infos[relocations+4:])]
	if len(in) == 0 {
		return nil
	}
	record := u32(in)
	for in = in[4:]; len(in) > 0; {
		all := in[8:][:u32(in[4:])*record]
		for one := range slices.Chunk(all, int(record)) {
			ids = append(ids, btf.TypeID(u32(one[4:]))) // behind insn_off
		}
		in = in[8+len(all):]
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Programs returns the names of all programs of the object.
func (o *Object) Programs() (names []string) {
	for _, p := range o.programs {
		names = append(names, p.Name)
	}
	return names
}

// Callers returns the programs that call a function which is not in the object.
func (o *Object) Callers(function string) (names []string) {
	called := slices.IndexFunc(o.symbols, func(s elf.Symbol) bool { return s.Name == function && s.Section == elf.SHN_UNDEF })
	if called < 0 {
		return nil
	}
	const entry = 16 // Elf64_Rel: the offset, and the number of the symbol in the upper half of r_info
	for _, section := range o.file.Sections {
		if section.Type != elf.SHT_REL {
			continue
		}
		for record := range slices.Chunk(o.in(section), entry) {
			if binary.LittleEndian.Uint32(record[12:]) != uint32(called)+1 {
				continue
			}
			at := binary.LittleEndian.Uint64(record)
			for _, p := range o.programs {
				if uint32(p.Section) == section.Info && at-p.Value < p.Size && !slices.Contains(names, p.Name) {
					names = append(names, p.Name)
				}
			}
		}
	}
	return names
}

// Load parses the maps of the object and some of its programs, and those that share a section with these: an object may have hundreds,
// which take a hundred times as long. The caller owns the result and may change it.
func (o *Object) Load(programs ...string) (*ebpf.CollectionSpec, error) {
	wanted := make(map[elf.SectionIndex]bool)
	for _, p := range o.programs {
		if slices.Contains(programs, p.Name) {
			wanted[p.Section] = true
		}
	}
	o.hide(wanted)
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(o.data))
	if err != nil {
		return nil, fmt.Errorf("embedded object %s: %w", o.name, err)
	}
	return spec, nil
}

// hide makes the sections of other programs unused, and removes what .BTF.ext has about them.
func (o *Object) hide(wanted map[elf.SectionIndex]bool) {
	const sections, header, kind = 0x28, 64, 4 // Elf64_Ehdr.e_shoff, the size of Elf64_Shdr, and sh_type in it
	table := o.data[binary.LittleEndian.Uint64(o.data[sections:]):]
	for _, p := range o.programs {
		use := elf.SHT_NULL
		if wanted[p.Section] {
			use = elf.SHT_PROGBITS
		}
		binary.LittleEndian.PutUint32(table[int(p.Section)*header+kind:], uint32(use))
	}
	names := make(map[string]bool)
	for i := range wanted {
		names[o.file.Sections[i].Name] = true
	}
	copy(o.in(o.file.Section(infosSection)), infosOf(o.infos, o.in(o.file.Section(typesSection)), names))
}

// infosOf returns a section .BTF.ext with only what is about some sections. Its parts come one behind the other after a header (struct
// btf_ext_header in tools/lib/bpf/libbpf_internal.h): magic, hdr_len, then offset and length of each part. A part begins with the size of
// a record. Then each section has the place of its name, the number of its records, and the records.
func infosOf(infos, types []byte, sections map[string]bool) []byte {
	u32 := binary.LittleEndian.Uint32
	names := types[u32(types[4:])+u32(types[16:]):] // struct btf_header: hdr_len, str_off
	name := func(place uint32) string {
		text, _, _ := bytes.Cut(names[place:], []byte{0})
		return string(text)
	}
	begin := u32(infos[4:])
	kept := slices.Clone(infos[:begin])
	for part := uint32(8); part+8 <= begin; part += 8 {
		in := infos[begin+u32(infos[part:]):][:u32(infos[part+4:])]
		binary.LittleEndian.PutUint32(kept[part:], uint32(len(kept))-begin)
		before := len(kept)
		if len(in) > 0 {
			record := u32(in)
			kept = append(kept, in[:4]...)
			for in = in[4:]; len(in) > 0; {
				size := 8 + u32(in[4:])*record
				if sections[name(u32(in))] {
					kept = append(kept, in[:size]...)
				}
				in = in[size:]
			}
		}
		binary.LittleEndian.PutUint32(kept[part+4:], uint32(len(kept)-before))
	}
	return kept
}
