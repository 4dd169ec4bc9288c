package symbols

import (
	"bufio"
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"unsafe"
)

// This file finds which part of the line numbers of a file an address is in: DWARF 2 to 5, of its units only the first entry of each. debug/dwarf keeps
// something of each unit and does not say how much work it is going to do, so that a file of 48 MB makes it take gigabytes.

// lines are the line numbers of a file.
type lines struct {
	order binary.ByteOrder
	// spans are the addresses of units, by their beginnings, and longest the size of the longest one.
	spans   []span
	longest uint64
	line    *io.SectionReader
	names   map[uint64]*io.SectionReader // by the form of a name
}

// span is a range of addresses, and where the line numbers of its unit begin.
type span struct{ from, to, line uint64 }

const (
	spanBytes = int(unsafe.Sizeof(span{}))
	unitSteps = 32      // the work for a unit
	maxEntry  = 8 << 10 // bytes of the first entry of a unit
	maxAttrs  = 128     // of it
	maxDecls  = 4096    // declarations of entries before the first one's
)

// attribute is a declared attribute of an entry.
type attribute struct {
	name, form uint64
	implicit   int64
}

// unit is the first entry of a unit.
type unit struct {
	version              uint16
	addrSize             int
	wide                 bool
	low, high            uint64
	line, ranges         uint64
	addrBase, listBase   uint64
	lowForm              uint64
	highForm, rangesForm uint64
	hasLine              bool
}

// units reads the units of a file.
type units struct {
	*lines
	cost                          *cost
	abbrev, addr, ranges, rnglist *io.SectionReader
	// declared is the last declaration of an entry that was read, in the table at an offset.
	declared []attribute
	table    uint64
	code     uint64
	known    bool
	buffer   [48]byte
	entry    [48]byte
}

// linesOf returns the line numbers of a file, nil if there are none.
func linesOf(f *elfFile, c *cost) (l *lines, err error) {
	info, line, abbrev := f.named(".debug_info"), f.named(".debug_line"), f.named(".debug_abbrev")
	if info == nil || line == nil || abbrev == nil {
		return nil, nil
	}
	had := c.bytes
	defer func() {
		if err != nil {
			c.give(c.bytes - had)
			l = nil
		}
	}()
	empty := io.NewSectionReader(f.r, 0, 0)
	open := func(name string) *io.SectionReader {
		s := f.named(name)
		if s == nil || err != nil {
			return empty
		}
		var r *io.SectionReader
		if r, err = f.content(s, c); err != nil {
			return empty
		}
		return r
	}
	l = &lines{order: f.order, line: open(".debug_line")}
	l.names = map[uint64]*io.SectionReader{formLineStrp: open(".debug_line_str")}
	if s := f.named(".debug_str"); s != nil && s.flags&elf.SHF_COMPRESSED == 0 { // names of files are seldom there
		l.names[formStrp] = f.raw(s)
	}
	kept := c.bytes
	u := &units{lines: l, cost: c, abbrev: open(".debug_abbrev"), addr: open(".debug_addr"), ranges: open(".debug_ranges"), rnglist: open(".debug_rnglists")}
	if err != nil {
		return l, err
	}
	in, size, err := f.stream(info, c)
	if err != nil {
		return l, err
	}
	defer in.Close()
	if err := u.read(in, size); err != nil {
		return l, err
	}
	c.give(c.bytes - kept - cap(l.spans)*spanBytes) // what was unpacked
	slices.SortFunc(l.spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.line, b.line)) })
	return l, nil
}

// read reads all units.
func (u *units) read(in io.Reader, size uint64) error {
	info := bufio.NewReaderSize(in, blockSize)
	for size > 0 {
		if err := u.cost.step(unitSteps); err != nil {
			return err
		}
		head, err := info.Peek(int(min(size, 12)))
		if err != nil {
			return cmpErr(err, errShort)
		}
		c := cursor{b: head, order: u.order}
		n := c.length()
		length := uint64(len(head)-len(c.b)) + n
		if c.bad || n > size || length > size {
			return errShort
		}
		entry, err := info.Peek(int(min(length, maxEntry)))
		if err != nil {
			return cmpErr(err, errShort)
		}
		if err := u.unit(entry); err != nil {
			return err
		}
		for rest := length; rest > 0; {
			n, err := info.Discard(int(min(rest, 1<<30)))
			if rest -= uint64(n); err != nil {
				return err
			}
		}
		size -= length
	}
	return nil
}

// unit reads the header and the first entry of a unit. Only what costs too much is an error: what is malformed has no lines.
func (u *units) unit(b []byte) error {
	c := cursor{b: b, order: u.order}
	c.length()
	c.version = uint16(c.uint(2))
	var abbrev uint64
	switch {
	case c.version >= 2 && c.version <= 4:
		abbrev, c.addrSize = c.offset(), int(c.uint(1))
	case c.version == 5:
		kind := c.uint(1)
		c.addrSize = int(c.uint(1))
		abbrev = c.offset()
		switch kind {
		case 1, 3: // of code, or a part of one
		case 4: // whose entries are in another file
			c.bytes(8)
		default:
			return nil
		}
	default:
		return nil
	}
	code := c.uleb()
	if c.bad || code == 0 {
		return nil
	}
	if err := u.declare(abbrev, code); err != nil {
		return err
	}
	found := unit{version: c.version, addrSize: c.addrSize, wide: c.wide}
	for _, a := range u.declared {
		v := c.value(a.form, a.implicit)
		if c.bad {
			return nil
		}
		switch dwarf.Attr(a.name) {
		case dwarf.AttrLowpc:
			found.low, found.lowForm = v, a.form
		case dwarf.AttrHighpc:
			found.high, found.highForm = v, a.form
		case dwarf.AttrRanges:
			found.ranges, found.rangesForm = v, a.form
		case dwarf.AttrStmtList:
			found.line, found.hasLine = v, true
		case dwarf.AttrAddrBase:
			found.addrBase = v
		case dwarf.AttrRnglistsBase:
			found.listBase = v
		}
	}
	if !found.hasLine {
		return nil
	}
	return u.spread(found)
}

// declare finds the declaration of an entry in the table at an offset.
func (u *units) declare(at, code uint64) error {
	if u.known && u.table == at && u.code == code {
		return nil
	}
	u.table, u.code, u.known, u.declared = at, code, true, u.declared[:0]
	in := bufio.NewReaderSize(io.NewSectionReader(u.abbrev, int64(min(at, 1<<62)), 1<<62), 1<<9)
	number := func() uint64 {
		n, err := binary.ReadUvarint(in)
		if err != nil {
			n = 0
		}
		return n
	}
	for range maxDecls {
		this := number()
		if this == 0 {
			return nil
		}
		number() // the tag
		in.ReadByte()
		for n := 0; ; n++ {
			if err := u.cost.step(8); err != nil {
				return err
			}
			a := attribute{name: number(), form: number()}
			if a.form == formImplicitConst {
				a.implicit = signed(in)
			}
			if a.name == 0 && a.form == 0 {
				break
			}
			if this == code && n < maxAttrs {
				u.declared = append(u.declared, a)
			}
		}
		if this == code {
			return nil
		}
	}
	return nil
}

// signed reads a signed LEB128 number.
func signed(in io.ByteReader) int64 {
	var b []byte
	for len(b) < 10 {
		x, err := in.ReadByte()
		if b = append(b, x); err != nil || x < 0x80 {
			break
		}
	}
	c := cursor{b: b}
	return c.sleb()
}

// add adds a range of addresses.
func (u *units) add(from, to, line uint64) error {
	if err := u.cost.step(unitSteps); err != nil {
		return err
	}
	if from >= to || from == 0 { // removed by the linker
		return nil
	}
	if len(u.spans) == cap(u.spans) {
		grown := max(64, len(u.spans)*3/2)
		if err := u.cost.take(grown * spanBytes); err != nil {
			return err
		}
		spans := make([]span, len(u.spans), grown)
		copy(spans, u.spans)
		u.cost.give(cap(u.spans) * spanBytes)
		u.spans = spans
	}
	u.spans, u.longest = append(u.spans, span{from, to, line}), max(u.longest, to-from)
	return nil
}

// at returns a cursor for a few numbers at an offset of a section, until the next call.
func (u *units) at(r *io.SectionReader, offset uint64, x unit) (cursor, error) {
	n, err := r.ReadAt(u.buffer[:], int64(min(offset, 1<<62)))
	if cmpErr(err, nil) != nil {
		return cursor{}, err
	}
	return cursor{b: u.buffer[:n], order: u.order, addrSize: x.addrSize, wide: x.wide, version: x.version}, nil
}

// address reads an address by its number.
func (u *units) address(number uint64, x unit) (uint64, error) {
	c, err := u.at(u.addr, x.addrBase+number*uint64(x.addrSize), x)
	return c.uint(max(x.addrSize, 1)), err
}

// spread adds the addresses of a unit.
func (u *units) spread(x unit) (err error) {
	if x.addrSize != 4 && x.addrSize != 8 {
		return nil
	}
	switch x.lowForm {
	case 0, formAddr:
	default:
		if x.low, err = u.address(x.low, x); err != nil {
			return err
		}
	}
	switch {
	case x.rangesForm == 0 && x.highForm == 0:
		return nil
	case x.rangesForm == 0 && x.highForm == formAddr:
		return u.add(x.low, x.high, x.line)
	case x.rangesForm == 0:
		return u.add(x.low, x.low+x.high, x.line)
	case x.version < 5:
		return u.oldList(x)
	}
	if x.rangesForm == formRnglistx {
		size := uint64(4)
		if x.wide {
			size = 8
		}
		c, err := u.at(u.rnglist, x.listBase+x.ranges*size, x)
		if err != nil {
			return err
		}
		x.ranges = x.listBase + c.offset()
	}
	return u.list(x)
}

// oldList adds a list of ranges of DWARF 2 to 4.
func (u *units) oldList(x unit) error {
	base, largest := x.low, ^uint64(0)>>(64-8*x.addrSize)
	for at := x.ranges; ; at += 2 * uint64(x.addrSize) {
		c, err := u.at(u.ranges, at, x)
		if err != nil {
			return err
		}
		from, to := c.uint(x.addrSize), c.uint(x.addrSize)
		switch {
		case c.bad || from == 0 && to == 0:
			return nil
		case from == largest:
			base = to
			err = u.cost.step(unitSteps)
		default:
			err = u.add(base+from, base+to, x.line)
		}
		if err != nil {
			return err
		}
	}
}

// list adds a list of ranges of DWARF 5.
func (u *units) list(x unit) error {
	base := x.low
	for at := x.ranges; ; {
		c, err := u.at(u.rnglist, at, x)
		if err == nil {
			err = u.cost.step(unitSteps)
		}
		if err != nil {
			return err
		}
		all := len(c.b)
		u.entry = u.buffer // addresses are read meanwhile
		c.b = u.entry[:all]
		var from, to uint64
		var err2 error
		switch kind := c.uint(1); kind {
		case 1: // base_addressx
			base, err = u.address(c.uleb(), x)
		case 2: // startx_endx
			from, err = u.address(c.uleb(), x)
			to, err2 = u.address(c.uleb(), x)
		case 3: // startx_length
			from, err = u.address(c.uleb(), x)
			to = from + c.uleb()
		case 4: // offset_pair
			from, to = base+c.uleb(), base+c.uleb()
		case 5: // base_address
			base = c.uint(x.addrSize)
		case 6: // start_end
			from, to = c.uint(x.addrSize), c.uint(x.addrSize)
		case 7: // start_length
			from = c.uint(x.addrSize)
			to = from + c.uleb()
		default:
			return nil
		}
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		if c.bad {
			return nil
		}
		at += uint64(all - len(c.b))
		if to != 0 {
			if err := u.add(from, to, x.line); err != nil {
				return err
			}
		}
	}
}

// units returns where the line numbers of the units of an address begin.
func (l *lines) units(address uint64) (found []uint64) {
	const most = 4
	i, _ := slices.BinarySearchFunc(l.spans, address, func(s span, a uint64) int {
		if s.from <= a {
			return -1
		}
		return 1
	})
	for tries := 0; i > 0 && tries < 64 && len(found) < most; tries++ {
		i--
		s := l.spans[i]
		if address-s.from > l.longest {
			break
		}
		if address < s.to && !slices.Contains(found, s.line) {
			found = append(found, s.line)
		}
	}
	return found
}
