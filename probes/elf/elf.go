// Package elf describes a file of BPF programs: its sections, programs, maps, variables and types. It loads nothing into the kernel.
package elf

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/klauspost/compress/zstd"
)

// Object is what a file has, in the form of its JSON.
type Object struct {
	File string `json:"file"`
	// Machine is what the code is for, and ByteOrder the order of its bytes.
	Machine   string    `json:"machine"`
	ByteOrder string    `json:"byte_order"`
	License   string    `json:"license,omitempty"`
	Sections  []Section `json:"sections"`
	Programs  []Program `json:"programs,omitempty"`
	Maps      []Map     `json:"maps,omitempty"`
	Variables []Member  `json:"variables,omitempty"`
	// Types are the file's BTF.
	Types []Type `json:"types,omitempty"`
	// Problems are why parts are missing.
	Problems []string `json:"problems,omitempty"`
}

// Section is a section of the file. Sizes are in bytes.
type Section struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Size uint64 `json:"size"`
}

// Program is a BPF program, or a function that programs call.
type Program struct {
	Name    string `json:"name"`
	Section string `json:"section"`
	Type    string `json:"type"`
	// Attach is how and where the section's name attaches it.
	Attach string `json:"attach,omitempty"`
	Target string `json:"target,omitempty"`
	// Instructions is how many it has, without the functions that it calls.
	Instructions int `json:"instructions"`
	// Helpers are the helpers of the kernel that it calls, and Maps the maps that it refers to.
	Helpers []string `json:"helpers,omitempty"`
	Maps    []string `json:"maps,omitempty"`
	Calls   []string `json:"calls,omitempty"`
}

// Map is a map that programs use. Sizes are in bytes.
type Map struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	KeySize    uint32 `json:"key_size"`
	ValueSize  uint32 `json:"value_size"`
	MaxEntries uint32 `json:"max_entries"`
	Flags      uint32 `json:"flags,omitempty"`
	Key        string `json:"key,omitempty"`
	Value      string `json:"value,omitempty"`
}

// notELF is what an error about another file adds.
var errNotELF = errors.New("not an ELF file; clang -target bpf -c makes one")

// Open reads a file, which may be compressed by zstd as the embedded objects are. It fails if the file is no ELF file; what it does not
// understand of one is in Problems.
func Open(name string) (o *Object, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var magic [4]byte
	if n, _ := f.ReadAt(magic[:], 0); n < len(magic) || string(magic[:]) != zstdMagic {
		return read(name, f)
	}
	data, err := decompress(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return read(name, bytes.NewReader(data))
}

const (
	// zstdMagic begins a compressed file (RFC 8878, section 3.1.1).
	zstdMagic = "\x28\xb5\x2f\xfd"
	// maxSize limits what a compressed file may become, and what the sections of a file have together: several may be the same bytes, and
	// a compressed one becomes larger.
	maxSize = 256 << 20
)

func decompress(r io.Reader) ([]byte, error) {
	decoder, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxSize))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	data, err := io.ReadAll(io.LimitReader(decoder, maxSize+1))
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("it has more than %d MiB when decompressed; decompress it first: zstd -d", maxSize>>20)
	}
	return data, err
}

// read describes a file. The libraries may panic on a file that is damaged.
func read(name string, r io.ReaderAt) (o *Object, err error) {
	o = &Object{File: name}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: damaged: %v", name, r)
		}
	}()
	file, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (%w)", name, errNotELF, err)
	}
	o.Machine, o.ByteOrder = file.Machine.String(), file.ByteOrder.String()
	size := uint64(0)
	for _, s := range file.Sections {
		o.Sections = append(o.Sections, Section{s.Name, s.Type.String(), s.Size})
		if s.Type != elf.SHT_NOBITS {
			size += min(s.Size, maxSize+1)
		}
	}
	if size > maxSize {
		o.Problems = append(o.Problems, fmt.Sprintf("its sections have more than %d MiB, so they are not read", maxSize>>20))
		return o, nil
	}
	if file.Machine != elf.EM_BPF {
		o.Problems = append(o.Problems, "it has no BPF programs: its machine is "+o.Machine)
	} else if spec, err := ebpf.LoadCollectionSpecFromReader(r); err != nil {
		o.Problems = append(o.Problems, fmt.Sprintf("programs and maps: %v", err))
	} else {
		o.addCollection(spec)
	}
	if file.Section(".BTF") == nil {
		return o, nil
	}
	types, err := typesOf(file, r)
	if err == nil {
		err = o.addTypes(types)
	}
	if err != nil {
		o.Problems = append(o.Problems, fmt.Sprintf("types: %v", err))
	}
	return o, nil
}

// typesOf reads the BTF of a file. Symbols give variables their places, and a file may have none.
func typesOf(file *elf.File, r io.ReaderAt) (*btf.Spec, error) {
	if file.SectionByType(elf.SHT_SYMTAB) != nil {
		return btf.LoadSpecFromReader(r)
	}
	data, err := file.Section(".BTF").Data()
	if err != nil {
		return nil, err
	}
	return btf.LoadSplitSpecFromReader(bytes.NewReader(data), nil)
}

// addCollection adds programs, maps and variables, sorted by name.
func (o *Object) addCollection(spec *ebpf.CollectionSpec) {
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		p := spec.Programs[name]
		o.License = p.License
		o.Programs = append(o.Programs, program(p))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		o.Maps = append(o.Maps, Map{
			Name: name, Type: m.Type.String(), KeySize: m.KeySize, ValueSize: m.ValueSize, MaxEntries: m.MaxEntries, Flags: m.Flags,
			Key: typeName(m.Key), Value: typeName(m.Value),
		})
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Variables)) {
		v := spec.Variables[name]
		variable := Member{Name: name, Type: v.SectionName, Offset: v.Offset}
		if t := v.Type; t != nil {
			variable.Type = typeName(t.Type) + " in " + v.SectionName
		}
		o.Variables = append(o.Variables, variable)
	}
}

// program describes a program without the functions that the library has appended to it.
func program(p *ebpf.ProgramSpec) Program {
	out := Program{Name: p.Name, Section: p.SectionName, Type: p.Type.String(), Target: p.AttachTo}
	if p.AttachType != ebpf.AttachNone {
		out.Attach = p.AttachType.String()
	}
	helpers, used, calls := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, ins := range p.Instructions {
		if i > 0 && btf.FuncMetadata(&ins) != nil { // another function begins
			break
		}
		out.Instructions++
		switch {
		case ins.IsBuiltinCall():
			helpers[asm.BuiltinFunc(ins.Constant).String()] = true
		case ins.IsFunctionCall():
			calls[ins.Reference()] = true
		case ins.IsLoadFromMap():
			used[ins.Reference()] = true
		}
	}
	out.Helpers, out.Maps, out.Calls = slices.Sorted(maps.Keys(helpers)), slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(calls))
	return out
}
