package symbols

// This file reads tables of line numbers: section 6.2 of DWARF 5, and its older forms.

// place is a place in the program's source code.
type place struct {
	file string
	line int
}

// maxTable bounds the table of one unit, in bytes.
const maxTable = 16 << 20

// place returns the place of an address, or an empty one.
func (l *lines) place(address uint64, c *cost) (place, error) {
	for _, at := range l.units(address) {
		p, err := l.inTable(at, address, c)
		if err != nil || p.line != 0 {
			return p, err
		}
	}
	return place{}, nil
}

// lineHeader is the header of a table, as far as its instructions need it.
type lineHeader struct {
	version       uint16
	wide          bool
	addrSize      int
	minimum, most uint64 // of the length of an instruction, and of operations in one
	base          int8
	span          uint8
	opcode        uint8
	lengths       []byte
	names         []byte // the tables of folders and files
}

// inTable looks up an address in the table at an offset.
func (l *lines) inTable(at, address uint64, c *cost) (place, error) {
	var b [12]byte
	n, err := l.line.ReadAt(b[:], int64(min(at, 1<<62)))
	if err = cmpErr(err, nil); err != nil {
		return place{}, err
	}
	head := cursor{b: b[:n], order: l.order}
	length := head.length()
	if head.bad || length > maxTable {
		return place{}, nil
	}
	if err := c.take(int(length)); err != nil {
		return place{}, err
	}
	defer c.give(int(length))
	all := make([]byte, length)
	n, err = l.line.ReadAt(all, int64(at)+int64(len(b)-len(head.b)))
	if err = cmpErr(err, nil); err != nil {
		return place{}, err
	}
	in := &cursor{b: all[:n], order: l.order, wide: head.wide}
	h, ok := readLineHeader(in)
	if !ok {
		return place{}, nil
	}
	file, line, err := h.run(in, address, c)
	if err != nil || line == 0 {
		return place{}, err
	}
	name, err := l.fileOf(h, file, c)
	if name == "" {
		line = 0
	}
	return place{name, line}, err
}

func readLineHeader(in *cursor) (h lineHeader, ok bool) {
	h = lineHeader{version: uint16(in.uint(2)), wide: in.wide, most: 1}
	if h.version < 2 || h.version > 5 {
		return h, false
	}
	if h.version == 5 {
		h.addrSize = int(in.uint(1))
		in.uint(1)
	}
	size := in.offset()
	if size > uint64(len(in.b)) {
		return h, false
	}
	rest := cursor{b: in.bytes(size), order: in.order}
	h.minimum = rest.uint(1)
	if h.version >= 4 {
		h.most = rest.uint(1)
	}
	rest.uint(1)
	h.base, h.span, h.opcode = int8(rest.uint(1)), uint8(rest.uint(1)), uint8(rest.uint(1))
	if h.opcode == 0 || h.span == 0 || h.most == 0 {
		return h, false
	}
	h.lengths = rest.bytes(uint64(h.opcode) - 1)
	h.names = rest.b
	return h, !rest.bad && !in.bad
}

// row is the state of the machine that the instructions are for.
type row struct {
	address, operation, file uint64
	line                     int64
}

// run runs the instructions up to an address, and returns the number of its file and its line; line is 0 if there is none.
func (h lineHeader) run(in *cursor, address uint64, c *cost) (file uint64, line int, err error) {
	now, before := row{file: 1, line: 1}, row{}
	known := false // before is a row of the same sequence
	advance := func(n uint64) {
		if h.most == 1 {
			now.address += n * h.minimum
			return
		}
		n += now.operation
		now.address, now.operation = now.address+h.minimum*(n/h.most), n%h.most
	}
	found := false
	// emit ends a row; the address may be in the one before.
	emit := func() {
		if found = known && before.address <= address && address < now.address; !found {
			before, known = now, true
		}
	}
	for len(in.b) > 0 && !found {
		if err := c.step(2); err != nil {
			return 0, 0, err
		}
		op := uint8(in.uint(1))
		if op >= h.opcode {
			op -= h.opcode
			advance(uint64(op / h.span))
			now.line += int64(h.base) + int64(op%h.span)
			emit()
			continue
		}
		switch op {
		case 0: // extended
			size := in.uleb()
			if size == 0 || size > uint64(len(in.b)) {
				return 0, 0, nil
			}
			x := cursor{b: in.bytes(size), order: in.order}
			switch x.uint(1) {
			case 1: // end_sequence
				emit()
				now, known = row{file: 1, line: 1}, false
			case 2: // set_address
				now.address, now.operation = x.uint(len(x.b)), 0
			}
		case 1: // copy
			emit()
		case 2: // advance_pc
			advance(in.uleb())
		case 3: // advance_line
			now.line += in.sleb()
		case 4: // set_file
			now.file = in.uleb()
		case 8: // const_add_pc
			advance(uint64((255 - h.opcode) / h.span))
		case 9: // fixed_advance_pc
			now.address, now.operation = now.address+in.uint(2), 0
		default: // without an effect on the row
			for range h.lengths[op-1] {
				in.uleb()
			}
		}
	}
	if !found || before.line <= 0 {
		return 0, 0, nil
	}
	return before.file, int(before.line), nil
}

// fileOf returns the name of a file by its number.
func (l *lines) fileOf(h lineHeader, number uint64, c *cost) (string, error) {
	in := &cursor{b: h.names, order: l.order, wide: h.wide, addrSize: h.addrSize, version: h.version}
	if h.version == 5 {
		if _, err := l.entries(in, ^uint64(0), c); err != nil { // folders
			return "", err
		}
		return l.entries(in, number, c)
	}
	for len(in.text()) > 0 { // folders
		if err := c.step(2); err != nil {
			return "", err
		}
	}
	for n := uint64(1); !in.bad; n++ {
		if err := c.step(4); err != nil {
			return "", err
		}
		name := in.text()
		if len(name) == 0 {
			break
		}
		if n == number {
			return string(name[:min(len(name), maxName)]), nil
		}
		in.uleb()
		in.uleb()
		in.uleb()
	}
	return "", nil
}

// entries reads a table of folders or files of DWARF 5, and returns the name of the nth.
func (l *lines) entries(in *cursor, nth uint64, c *cost) (name string, err error) {
	const isPath = 1 // DW_LNCT_path
	var formats [256][2]uint64
	many := in.uint(1)
	for i := range many {
		formats[i] = [2]uint64{in.uleb(), in.uleb()}
	}
	for n := range in.uleb() {
		if err := c.step(4 + 2*int(many)); err != nil || in.bad {
			return "", err
		}
		for _, f := range formats[:many] {
			if f[0] != isPath || n != nth {
				in.value(f[1], 0)
				continue
			}
			if f[1] == formString {
				text := in.text()
				return string(text[:min(len(text), maxName)]), nil
			}
			if names := l.names[f[1]]; names != nil {
				return stringAt(names, int64(min(in.offset(), 1<<62)), maxName)
			}
			return "", nil
		}
	}
	return "", nil
}
