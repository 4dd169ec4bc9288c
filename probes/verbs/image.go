//go:build linux

package verbs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// An image is a shared library as its program headers describe it, which no stripping removes: elf(5). Every number in it may be forged, so each part
// that is read has a bound. The largest provider of rdma-core 65, mlx5, has 2,000 functions and 100 KiB of .eh_frame.
type image struct {
	io.ReaderAt
	loads   []elf.Prog64
	program bool // it has PT_INTERP
	dynamic map[elf.DynTag]uint64
	frames  uint64 // the address of .eh_frame_hdr; 0: there is none
	notes   []elf.Prog64
}

const (
	mostHeaders   = 64
	mostDynamic   = 1 << 14 // bytes, as in the next ones
	mostStrings   = 1 << 20
	mostFrames    = 4 << 20
	mostNotes     = 1 << 16
	mostVersions  = 1 << 10
	mostFunctions = 1 << 16
)

var errNotELF = errors.New("it is no ELF file of this machine's kind")

// readImage reads the headers.
func readImage(r io.ReaderAt) (*image, error) {
	var h elf.Header64
	if err := readStruct(r, 0, &h); err != nil || string(h.Ident[:elf.EI_CLASS+1]) != elf.ELFMAG+string(rune(elf.ELFCLASS64)) {
		return nil, errNotELF
	}
	if elf.Type(h.Type) != elf.ET_DYN && elf.Type(h.Type) != elf.ET_EXEC || h.Phentsize != 56 || h.Phnum > mostHeaders {
		return nil, errNotELF
	}
	m := &image{ReaderAt: r, program: elf.Type(h.Type) == elf.ET_EXEC, dynamic: make(map[elf.DynTag]uint64)}
	headers := make([]elf.Prog64, h.Phnum)
	if err := readStruct(r, int64(h.Phoff), headers); err != nil {
		return nil, errNotELF
	}
	var dynamic elf.Prog64
	for _, p := range headers {
		switch elf.ProgType(p.Type) {
		case elf.PT_LOAD:
			m.loads = append(m.loads, p)
		case elf.PT_INTERP:
			m.program = true
		case elf.PT_DYNAMIC:
			dynamic = p
		case elf.PT_GNU_EH_FRAME:
			m.frames = p.Vaddr
		case elf.PT_NOTE:
			m.notes = append(m.notes, p)
		}
	}
	entries := make([]elf.Dyn64, min(dynamic.Filesz, mostDynamic)/16)
	if err := readStruct(r, int64(dynamic.Off), entries); err != nil {
		return nil, errNotELF
	}
	for _, d := range entries {
		if elf.DynTag(d.Tag) == elf.DT_NULL {
			break
		}
		m.dynamic[elf.DynTag(d.Tag)] = d.Val
	}
	return m, nil
}

func readStruct(r io.ReaderAt, at int64, to any) error {
	if at < 0 {
		return errNotELF
	}
	return binary.Read(io.NewSectionReader(r, at, int64(binary.Size(to))), binary.NativeEndian, to)
}

// at returns what is at an address: at most so many bytes, and less at the end of what the file has of a segment.
func (m *image) at(address, most uint64) ([]byte, error) {
	for _, p := range m.loads {
		if p.Vaddr <= address && address-p.Vaddr < p.Filesz {
			buf := make([]byte, min(most, p.Filesz-(address-p.Vaddr), mostFrames))
			n, err := m.ReadAt(buf, int64(p.Off+(address-p.Vaddr)))
			if n == 0 {
				return nil, errors.Join(err, errNotELF)
			}
			return buf[:n], nil
		}
	}
	return nil, fmt.Errorf("address %#x is in no segment", address)
}

// private begins the versions of symbols of libibverbs that only providers use: rdma-core renames them with each release that changes them
// (IBVERBS_PROVIDER_ABI, buildlib).
const private = "IBVERBS_PRIVATE_"

// provider returns why the file is no library of a provider: nil if it is a shared library that needs a version of libibverbs' private symbols. A
// program has an interpreter (PT_INTERP); ibv_devinfo also needs such a version.
func (m *image) provider() error {
	if m.program {
		return errors.New("it is a program, and no library")
	}
	table, err := m.at(m.dynamic[elf.DT_STRTAB], min(m.dynamic[elf.DT_STRSZ], mostStrings))
	if err != nil {
		return errNotELF
	}
	// Elf64_Verneed and Elf64_Vernaux: Linux Standard Base, Symbol Versioning.
	type need struct {
		Version, Count    uint16
		File, Names, Next uint32
	}
	type version struct {
		Hash         uint32
		Flags, Other uint16
		Name, Next   uint32
	}
	at, left := m.dynamic[elf.DT_VERNEED], mostVersions
	for left > 0 && at != 0 {
		var n need
		if err := m.read(at, &n); err != nil {
			return err
		}
		name := at + uint64(n.Names)
		for i := uint16(0); i < n.Count && left > 0; i++ {
			var v version
			if err := m.read(name, &v); err != nil {
				return err
			}
			left--
			if uint64(v.Name) < uint64(len(table)) && strings.HasPrefix(string(table[v.Name:min(len(table), int(v.Name)+len(private))]), private) {
				return nil
			}
			if v.Next == 0 {
				break
			}
			name += uint64(v.Next)
		}
		left--
		if n.Next == 0 {
			break
		}
		at += uint64(n.Next)
	}
	return fmt.Errorf("it needs no version %s* of libibverbs, so it is no provider", private)
}

func (m *image) read(address uint64, to any) error {
	data, err := m.at(address, uint64(binary.Size(to)))
	if err != nil {
		return err
	}
	return binary.Read(bytes.NewReader(data), binary.NativeEndian, to)
}

// offset returns where an address of code is in the file; false if it is in no segment of code.
func (m *image) offset(address uint64) (offset uint64, ok bool) {
	for _, p := range m.loads {
		if elf.ProgFlag(p.Flags)&elf.PF_X != 0 && p.Vaddr <= address && address-p.Vaddr < p.Filesz {
			return p.Off + (address - p.Vaddr), true
		}
	}
	return 0, false
}

// functions returns where functions begin that are called, as offsets in the file, in order: each has an entry (FDE) in .eh_frame. On Debian 11, 12, 13 and
// sid each function in a table of a provider has one. Linux Standard Base, Exception Frames.
func (m *image) functions() ([]uint64, error) {
	if m.frames == 0 {
		return nil, errors.New("it has no .eh_frame")
	}
	head, err := m.at(m.frames, 12)
	if err != nil || len(head) < 12 || head[0] != 1 {
		return nil, errors.New("its .eh_frame_hdr is broken")
	}
	at, _, ok := encoded(head[4:], head[1], m.frames+4)
	if !ok {
		return nil, errors.New("its .eh_frame_hdr is broken")
	}
	data, err := m.at(at, mostFrames)
	if err != nil {
		return nil, err
	}
	var all []uint64
	kinds := make(map[int]entryKind) // of CIEs, by where they are
	for i := 0; i+8 <= len(data); {
		length := binary.NativeEndian.Uint32(data[i:])
		if length == 0 {
			break
		}
		if length < 4 || uint64(length) > uint64(len(data)-i-4) {
			return nil, errors.New("its .eh_frame is broken")
		}
		entry, next := data[i+8:i+4+int(length)], i+4+int(length)
		if cie := binary.NativeEndian.Uint32(data[i+4:]); cie == 0 {
			kind, ok := kindOf(entry)
			if !ok || len(kinds) == mostFunctions {
				return nil, errors.New("its .eh_frame is of an unknown kind")
			}
			kinds[i] = kind
		} else {
			kind, known := kinds[i+4-int(cie)]
			begin, n, ok := encoded(entry, kind.encoding, at+uint64(i)+8)
			if !known || !ok || len(all) == mostFunctions {
				return nil, errors.New("its .eh_frame is broken")
			}
			size, more, ok := encoded(entry[n:], kind.encoding&0xf, 0)
			if offset, code := m.offset(begin); ok && size > 0 && code && kind.called(entry[n+more:]) {
				all = append(all, offset)
			}
		}
		i = next
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// An entryKind is what a CIE means for its FDEs: how they encode addresses, and whether they have data of an augmentation.
type entryKind struct {
	encoding  byte
	augmented bool
}

// called reports whether an FDE, behind its addresses, is one of code that is called: then nothing has to be known at its first instruction but what the
// CIE has, that the return address is where a call puts it. Compilers move the unlikely part of a function away, and jump there (.cold); the first entry of
// .plt is jumped to, too. A probe at a return replaces the word on top of the stack, which is then something else, so that every program that goes there breaks.
func (k entryKind) called(fde []byte) bool {
	if k.augmented {
		if len(fde) == 0 || fde[0] >= 0x80 || int(fde[0])+1 > len(fde) { // a pointer has 8 bytes
			return false
		}
		fde = fde[1+fde[0]:]
	}
	for _, instruction := range fde {
		const nop, setLoc, advanceLoc1, advanceLoc4, advanceLoc = 0, 1, 2, 4, 0x40
		switch {
		case instruction == nop:
		case instruction == setLoc, advanceLoc1 <= instruction && instruction <= advanceLoc4, instruction&0xc0 == advanceLoc:
			return true
		default:
			return false
		}
	}
	return true
}

// kindOf returns what a CIE, behind its first 8 bytes, means for its FDEs.
func kindOf(cie []byte) (kind entryKind, ok bool) {
	encoding, ok := encodingOf(cie)
	return entryKind{encoding, ok && cie[1] == 'z'}, ok
}

// encodingOf returns how a CIE, behind its first 8 bytes, encodes addresses.
func encodingOf(cie []byte) (encoding byte, ok bool) {
	if len(cie) < 2 || cie[0] != 1 && cie[0] != 3 {
		return 0, false
	}
	augmentation, rest, ok := bytes.Cut(cie[1:], []byte{0})
	for range 2 { // the alignments of code and data
		rest = skipLEB128(rest)
	}
	if cie[0] == 1 && len(rest) > 0 {
		rest = rest[1:]
	} else {
		rest = skipLEB128(rest)
	}
	if len(augmentation) == 0 {
		return 0, ok
	}
	if augmentation[0] != 'z' {
		return 0, false
	}
	rest = skipLEB128(rest)
	for _, a := range augmentation[1:] {
		switch {
		case len(rest) == 0:
			return 0, false
		case a == 'R':
			return rest[0], true
		case a == 'L':
			rest = rest[1:]
		case a == 'P':
			_, n, ok := encoded(rest[1:], rest[0], 0)
			if !ok {
				return 0, false
			}
			rest = rest[1+n:]
		default:
			return 0, false
		}
	}
	return 0, true
}

func skipLEB128(data []byte) []byte {
	for i, b := range data {
		if b < 0x80 {
			return data[i+1:]
		}
	}
	return nil
}

// encoded decodes an address (DW_EH_PE_*) that is itself at an address, and returns its size.
func encoded(data []byte, encoding byte, at uint64) (value uint64, size int, ok bool) {
	if encoding&^0x1f != 0 && encoding&^0x1f != 0x80 { // relative to the code or to data
		return 0, 0, false
	}
	size = map[byte]int{0x0: 8, 0x2: 2, 0x3: 4, 0x4: 8, 0xa: 2, 0xb: 4, 0xc: 8}[encoding&0xf]
	if size == 0 || len(data) < size {
		return 0, 0, false
	}
	order := binary.NativeEndian
	switch encoding & 0xf {
	case 0x2:
		value = uint64(order.Uint16(data))
	case 0xa:
		value = uint64(int16(order.Uint16(data)))
	case 0x3:
		value = uint64(order.Uint32(data))
	case 0xb:
		value = uint64(int32(order.Uint32(data)))
	default:
		value = order.Uint64(data)
	}
	if encoding&0x10 != 0 { // DW_EH_PE_pcrel
		value += at
	}
	return value, size, true
}

// buildID returns NT_GNU_BUILD_ID, hexadecimal; "" if there is none.
func (m *image) buildID() string {
	for _, p := range m.notes {
		notes := make([]byte, min(p.Filesz, mostNotes))
		n, _ := m.ReadAt(notes, int64(p.Off))
		if id := buildIDIn(notes[:n], binary.NativeEndian); id != nil {
			return hex.EncodeToString(id)
		}
	}
	return ""
}

// buildIDIn finds NT_GNU_BUILD_ID among notes: elf(5).
func buildIDIn(notes []byte, order binary.ByteOrder) []byte {
	const head, gnuBuildID = 12, 3
	aligned := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
	for len(notes) >= head {
		name, size, kind := order.Uint32(notes), order.Uint32(notes[4:]), order.Uint32(notes[8:])
		at := head + aligned(name)
		next := at + aligned(size)
		if next > uint64(len(notes)) {
			return nil
		}
		if kind == gnuBuildID && string(notes[head:head+name]) == "GNU\x00" {
			return notes[at : at+uint64(size)]
		}
		notes = notes[next:]
	}
	return nil
}
