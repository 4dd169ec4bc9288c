package symbols

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/therootcompany/xz"
)

// This file reads ELF files from untrusted processes: of any size, sparse, with sections that claim anything. debug/elf and debug/dwarf are
// not hardened against that (https://pkg.go.dev/debug/elf#hdr-Security), so their input is bounded here.

// Limits of what is read of one file, in bytes.
const (
	// maxHeaders bounds the headers. Each name of a section is a string of its own, which may be as long as all of them.
	maxHeaders          = 256 << 10
	maxSymbols          = 32 << 20  // of a symbol table: 1.4 million symbols
	maxNames            = 128 << 20 // of the names of symbols
	maxName             = 8 << 10   // of one of them
	maxNote             = 64 << 10  // of a build id, or a link
	maxPacked           = 16 << 20  // of .gnu_debugdata
	maxMiniDebug        = 64 << 20  // of it, unpacked
	maxDictionary       = 64 << 20  // to unpack it: what xz -9 wants
	maxDebugInfo        = 64 << 20  // of .debug_info: to read line numbers takes memory of that order
	maxDebug            = 256 << 20 // of all .debug_ sections
	maxDebugFile        = 512 << 20 // of a debug file whose checksum has to be computed
	maxRead       int64 = 1 << 30   // of all together
)

// bounded fails after left bytes.
type bounded struct {
	io.ReaderAt
	left int64
}

var errTooMuch = errors.New("its headers are too large")

func (b *bounded) ReadAt(p []byte, at int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errTooMuch
	}
	return b.ReaderAt.ReadAt(p, at)
}

// parseELF reads the headers of a file.
func parseELF(r io.ReaderAt) (*elf.File, error) {
	in := &bounded{r, maxHeaders}
	f, err := elf.NewFile(in)
	in.left = maxRead
	return f, err
}

// tooLarge means that a part of a file was not read.
type tooLarge struct {
	what        string
	bytes, most uint64
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("%s has %d bytes, more than the %d that are read", e.what, e.bytes, e.most)
}

// dataOf returns the content of a section.
func dataOf(s *elf.Section, most uint64) ([]byte, error) {
	if size := max(s.Size, s.FileSize); size > most {
		return nil, &tooLarge{s.Name, size, most}
	}
	return s.Data()
}

// functionsOf returns the functions of a symbol table. debug/elf would make a string from each name, however long and however often it is
// used.
func functionsOf(f *elf.File, kind elf.SectionType) ([]symbol, error) {
	section := f.SectionByType(kind)
	if section == nil || section.Link == 0 || int(section.Link) >= len(f.Sections) {
		return nil, nil
	}
	table, err := dataOf(section, maxSymbols)
	if err != nil {
		return nil, err
	}
	raw, err := dataOf(f.Sections[section.Link], maxNames)
	if err != nil {
		return nil, err
	}
	names := string(raw)
	var all []symbol
	for size := symbolSize(f); len(table) >= size; table = table[size:] {
		s, at := symbolOf(f, table)
		kind := elf.ST_TYPE(s.Info)
		code := kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC
		// Functions written in assembly, like _start of some libraries.
		code = code || kind == elf.STT_NOTYPE && int(s.Section) < len(f.Sections) && f.Sections[s.Section].Flags&elf.SHF_EXECINSTR != 0
		if !code || s.Section == elf.SHN_UNDEF || s.Value == 0 {
			continue
		}
		if s.Name = nameAt(names, at); s.Name == "" || strings.HasPrefix(s.Name, "$") { // $x: arm64 marks
			continue
		}
		all = append(all, symbol{start: s.Value, size: s.Size, name: s.Name, rank: rankOf(s, kind)})
	}
	return all, nil
}

func symbolSize(f *elf.File) int {
	if f.Class == elf.ELFCLASS32 {
		return elf.Sym32Size
	}
	return elf.Sym64Size
}

// symbolOf reads a symbol of a symbol table, and the offset of its name.
func symbolOf(f *elf.File, b []byte) (s elf.Symbol, name uint32) {
	order := f.ByteOrder
	if f.Class == elf.ELFCLASS32 {
		return elf.Symbol{
			Value: uint64(order.Uint32(b[4:])), Size: uint64(order.Uint32(b[8:])), Info: b[12], Section: elf.SectionIndex(order.Uint16(b[14:])),
		}, order.Uint32(b)
	}
	return elf.Symbol{
		Info: b[4], Section: elf.SectionIndex(order.Uint16(b[6:])), Value: order.Uint64(b[8:]), Size: order.Uint64(b[16:]),
	}, order.Uint32(b)
}

// nameAt returns the string at an offset, "" if there is none or it is too long for a name.
func nameAt(names string, at uint32) string {
	if uint64(at) >= uint64(len(names)) {
		return ""
	}
	rest := names[at:]
	end := strings.IndexByte(rest[:min(len(rest), maxName)], 0)
	return rest[:max(end, 0)]
}

// miniDebug returns the functions of .gnu_debugdata: an ELF file with a symbol table, packed by xz
// (https://sourceware.org/gdb/current/onlinedocs/gdb.html/MiniDebugInfo.html).
func miniDebug(f *elf.File) ([]symbol, error) {
	section := f.Section(".gnu_debugdata")
	if section == nil {
		return nil, nil
	}
	packed, err := dataOf(section, maxPacked)
	if err != nil {
		return nil, err
	}
	unpacked, err := xz.NewReader(bytes.NewReader(packed), maxDictionary)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(unpacked, maxMiniDebug))
	if err != nil {
		return nil, err
	}
	mini, err := parseELF(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return functionsOf(mini, elf.SHT_SYMTAB)
}

// debugBytes returns the size of all sections that debug/dwarf reads. Sections that no linker makes are refused: those with relocations,
// and the old compressed ones from before SHF_COMPRESSED, whose sizes nothing checks.
func debugBytes(f *elf.File) (uint64, error) {
	var all uint64
	isDebug := func(s *elf.Section) bool { return strings.HasPrefix(s.Name, ".debug_") }
	for _, s := range f.Sections {
		relocates := (s.Type == elf.SHT_RELA || s.Type == elf.SHT_REL) && int(s.Info) < len(f.Sections) && isDebug(f.Sections[s.Info])
		switch {
		case relocates, strings.HasPrefix(s.Name, ".zdebug_"):
			return 0, fmt.Errorf("%s: line numbers of this kind are not read", s.Name)
		case isDebug(s):
			// Each at most, so that the sum does not overflow.
			all += min(max(s.Size, s.FileSize), maxDebug+1)
		}
	}
	if all > maxDebug {
		return all, &tooLarge{"what there is of line numbers", all, maxDebug}
	}
	return all, nil
}

// openedELF is a debug file.
type openedELF struct {
	*elf.File
	file *os.File
}

func (o *openedELF) Close() error { return o.file.Close() }

// openELF opens a file below the root of a file system.
func openELF(root, path string) (*openedELF, error) {
	file, err := openRegular(root, path, true)
	if err != nil {
		return nil, err
	}
	f, err := parseELF(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &openedELF{f, file}, nil
}
