package symbols

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"io"
	"slices"
	"strings"
	"unsafe"

	"github.com/therootcompany/xz"
)

// symbol is a function of a file. Its name stays in the file: names may be long, and overlap.
type symbol struct {
	start uint64
	name  uint32 // its offset in the table of names
	bits  uint32 // its size, whether it is a function and known to other files, and the number of its table of names
}

// What the bits of a symbol mean.
const (
	sizeBits   = 28
	isFunction = 1 << 28
	isGlobal   = 1 << 29
	tableShift = 30
)

const symbolBytes = int(unsafe.Sizeof(symbol{}))

// size returns how many bytes it has; 0: up to the next one.
func (s symbol) size() uint64 { return uint64(s.bits & (1<<sizeBits - 1)) }

// rank is higher for the better one of two symbols of an address: one that has a size, is a function, and is known to other files.
func (s symbol) rank() (rank int) {
	if s.size() > 0 {
		rank += 16
	}
	if s.bits&isFunction != 0 {
		rank += 8
	}
	if s.bits&isGlobal != 0 {
		rank += 4
	}
	return rank
}

// covers reports whether an address is in it.
func (s symbol) covers(address uint64) bool { return s.size() == 0 || address-s.start < s.size() }

// Limits of what is read of names, in bytes.
const (
	maxName       = 8 << 10
	maxNote       = 4 << 10  // of a build id, or a link
	maxPacked     = 16 << 20 // of .gnu_debugdata
	maxMiniDebug  = 12 << 20 // of it, unpacked
	maxDictionary = 16 << 20 // to unpack it: what xz -7 wants
	// symbolSteps is the work for a symbol, with sorting it.
	symbolSteps = 16
)

// sameAddress is how many symbols of one address are kept.
const sameAddress = 4

// table is the functions of a file by address, at most sameAddress for one address, and its tables of names.
type table struct {
	all   []symbol
	names []*io.SectionReader
}

// add adds the functions of a symbol table.
func (t *table) add(f *elfFile, kind elf.SectionType, c *cost) error {
	at := slices.IndexFunc(f.sections, func(s section) bool { return s.kind == kind })
	if at < 0 || f.sections[at].link == 0 || f.sections[at].link >= uint64(len(f.sections)) || len(t.names) >= 4 {
		return nil
	}
	section, names := &f.sections[at], &f.sections[f.sections[at].link]
	if (section.flags|names.flags)&elf.SHF_COMPRESSED != 0 {
		return nil // no linker makes such a file
	}
	if most := uint64(loadSteps / 2 / symbolSteps * elf.Sym64Size); section.size > most {
		return &tooLarge{section.name, section.size, "bytes", most}
	}
	n := 0
	if err := f.eachFunction(section, c, func(symbol) { n++ }); err != nil {
		return err
	}
	if err := c.take(n * symbolBytes); err != nil {
		return err
	}
	old, all := len(t.all), make([]symbol, len(t.all), len(t.all)+n)
	copy(all, t.all)
	number := uint32(len(t.names)) << tableShift
	err := f.eachFunction(section, c, func(s symbol) {
		if len(all) < cap(all) { // the file may have changed
			s.bits |= number
			all = append(all, s)
		}
	})
	if err != nil {
		c.give(n * symbolBytes)
		return err
	}
	c.give((n - (len(all) - old)) * symbolBytes)
	t.all, t.names = all, append(t.names, f.raw(names))
	return nil
}

// eachFunction calls do for each function of a symbol table.
func (f *elfFile) eachFunction(s *section, c *cost, do func(symbol)) error {
	size := elf.Sym32Size
	if f.wide {
		size = elf.Sym64Size
	}
	raw, chunk := f.raw(s), make([]byte, 1024*size)
	for at := int64(0); ; at += int64(len(chunk)) {
		n, err := raw.ReadAt(chunk, at)
		if err := c.step(n / size * symbolSteps); err != nil {
			return err
		}
		for b := chunk[:n]; len(b) >= size; b = b[size:] {
			if s, ok := f.functionOf(b); ok {
				do(s)
			}
		}
		if n < len(chunk) {
			return cmpErr(err, nil)
		}
	}
}

// functionOf reads a symbol; ok is false if it is no function.
func (f *elfFile) functionOf(b []byte) (s symbol, ok bool) {
	s.name = f.order.Uint32(b)
	var size uint64
	var info byte
	var of uint16
	if f.wide {
		info, of, s.start, size = b[4], f.order.Uint16(b[6:]), f.order.Uint64(b[8:]), f.order.Uint64(b[16:])
	} else {
		s.start, size, info, of = uint64(f.order.Uint32(b[4:])), uint64(f.order.Uint32(b[8:])), b[12], f.order.Uint16(b[14:])
	}
	s.bits = uint32(min(size, 1<<sizeBits-1))
	kind := elf.ST_TYPE(info)
	if kind != elf.STT_NOTYPE {
		s.bits |= isFunction
	}
	if elf.ST_BIND(info) != elf.STB_LOCAL {
		s.bits |= isGlobal
	}
	code := kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC
	// Functions written in assembly, like _start of some libraries.
	code = code || kind == elf.STT_NOTYPE && int(of) < len(f.sections) && f.sections[of].flags&elf.SHF_EXECINSTR != 0
	return s, code && of != uint16(elf.SHN_UNDEF) && s.start != 0 && s.name != 0
}

// sort sorts the symbols by address, the best ones first, and drops those that are too many for one.
func (t *table) sort(c *cost) {
	slices.SortFunc(t.all, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.rank(), a.rank()), cmp.Compare(a.bits>>tableShift, b.bits>>tableShift), cmp.Compare(a.name, b.name))
	})
	same, kept := 0, t.all[:0]
	for _, s := range t.all {
		if same++; len(kept) == 0 || kept[len(kept)-1].start != s.start {
			same = 0
		}
		if same < sameAddress {
			kept = append(kept, s)
		}
	}
	c.give((len(t.all) - len(kept)) * symbolBytes)
	t.all = slices.Clip(slices.Clone(kept))
}

// find returns the function of an address, and its name.
func (t *table) find(address uint64) (found symbol, name string, ok bool, err error) {
	i, _ := slices.BinarySearchFunc(t.all, address, func(s symbol, a uint64) int {
		if s.start <= a {
			return -1
		}
		return 1
	})
	// A function may be inside another one, as in assembly code. Marks of arm64, like $x, are no functions.
	const back = 32
	for first, nearest := i, true; i > 0 && first-i < back; {
		from := i - 1
		for from > 0 && t.all[from-1].start == t.all[i-1].start {
			from--
		}
		found, name, ok, err = t.best(t.all[from:i])
		if err != nil || ok && found.covers(address) && (nearest || found.size() != 0) {
			return found, name, err == nil, err
		}
		nearest, i = nearest && !ok, from
	}
	return symbol{}, "", false, nil
}

// best returns which of the symbols of an address names it: the first one with the highest rank, but rather getppid than __getppid.
func (t *table) best(same []symbol) (best symbol, name string, ok bool, err error) {
	highest := 0
	for _, s := range same {
		text, err := stringAt(t.names[s.bits>>tableShift], int64(s.name), maxName)
		if err != nil {
			return s, "", false, err
		}
		if text == "" || text[0] == '$' {
			continue
		}
		rank := s.rank() - min(len(text)-len(strings.TrimLeft(text, "_")), 3)
		if !ok || rank > highest {
			best, name, ok, highest = s, text, true, rank
		}
	}
	return best, name, ok, nil
}

// miniDebug returns .gnu_debugdata: an ELF file with a symbol table, packed by xz
// (https://sourceware.org/gdb/current/onlinedocs/gdb.html/MiniDebugInfo.html). Its bytes are counted.
func miniDebug(f *elfFile, c *cost) (*elfFile, error) {
	section := f.named(".gnu_debugdata")
	if section == nil {
		return nil, nil
	}
	if section.size > maxPacked {
		return nil, &tooLarge{section.name, section.size, "bytes", maxPacked}
	}
	if err := c.take(maxDictionary); err != nil { // the unpacker allocates what the file asks for, up to this
		return nil, err
	}
	defer c.give(maxDictionary)
	in, err := xz.NewReader(&counted{r: f.raw(section), cost: c}, maxDictionary)
	if err != nil {
		return nil, err
	}
	if err := c.take(maxMiniDebug); err != nil {
		return nil, err
	}
	data := make([]byte, maxMiniDebug)
	n, err := io.ReadFull(&counted{r: in, cost: c}, data)
	switch {
	case err == nil:
		err = &tooLarge{section.name, maxMiniDebug + 1, "bytes or more", maxMiniDebug}
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = nil
	}
	data = bytes.Clone(data[:n])
	c.give(maxMiniDebug - n)
	if err != nil {
		return nil, err
	}
	return parseELF(bytes.NewReader(data))
}
