//go:build linux

package symbols

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"trace/probes/proc"
)

// part is a section of a made file.
type part struct {
	name  string
	kind  elf.SectionType
	flags elf.SectionFlag
	link  uint32
	data  []byte
}

// madeELF makes a file with code at 0x1000, and sections from number 1 on; the last one has the names.
func madeELF(parts ...part) []byte {
	le := binary.LittleEndian
	names := []byte{0}
	parts = append([]part{{}}, append(parts, part{name: ".shstrtab", kind: elf.SHT_STRTAB})...)
	var at []uint32
	for _, p := range parts {
		at = append(at, uint32(len(names)))
		names = append(append(names, p.name...), 0)
	}
	parts[len(parts)-1].data = names
	const head = 64 + 56
	size := head
	for _, p := range parts {
		size += len(p.data)
	}
	b := make([]byte, head, size+64*len(parts))
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 2)
	le.PutUint16(b[18:], 62)
	le.PutUint64(b[32:], 64)
	le.PutUint64(b[40:], uint64(size))
	for i, v := range []uint16{64, 56, 1, 64, uint16(len(parts)), uint16(len(parts) - 1)} {
		le.PutUint16(b[52+2*i:], v)
	}
	le.PutUint32(b[64:], uint32(elf.PT_LOAD))
	le.PutUint32(b[68:], uint32(elf.PF_X))
	le.PutUint64(b[64+16:], 0x1000)
	le.PutUint64(b[64+32:], 1<<30)
	var headers []byte
	for i, p := range parts {
		h := le.AppendUint32(le.AppendUint32(nil, at[i]), uint32(p.kind))
		for _, v := range []uint64{uint64(p.flags), 0, uint64(len(b)), uint64(len(p.data)), uint64(p.link), 0, 0} {
			if v == uint64(p.link) && len(h) == 40 {
				h = le.AppendUint64(h, v) // link, and info
				continue
			}
			h = le.AppendUint64(h, v)
		}
		headers = append(headers, h[:64]...)
		b = append(b, p.data...)
	}
	return append(b, headers...)
}

// bits are little-endian numbers after each other.
func bits(all ...any) []byte {
	var b bytes.Buffer
	for _, v := range all {
		if text, is := v.(string); is {
			b.WriteString(text)
			continue
		}
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	return b.Bytes()
}

// unitOf is a unit of DWARF 4 whose first entry is of the kind of entries in abbrevOf.
func unitOf(abbrev, ranges uint32) []byte {
	return bits(uint32(7+1+4+4), uint16(4), abbrev, uint8(8), uint8(1), uint32(0), ranges)
}

// abbrevOf declares entries with line numbers and ranges.
var abbrevOf = []byte{1, 0x11, 0, 0x10, 0x17, 0x55, 0x17, 0, 0, 0}

// packed is a compressed section.
func packed(kind elf.CompressionType, size uint64, data []byte) []byte {
	var b bytes.Buffer
	b.Write(bits(uint32(kind), uint32(0), size, uint64(1)))
	if kind == elf.COMPRESS_ZLIB {
		w, _ := zlib.NewWriterLevel(&b, zlib.BestCompression)
		w.Write(data)
		w.Close()
	} else {
		w, _ := zstd.NewWriter(&b)
		w.Write(data)
		w.Close()
	}
	return b.Bytes()
}

func symbolsOf(n int, of func(i int) (name uint32, start, size uint64)) []byte {
	b := make([]byte, 24*n)
	for i := range n {
		name, start, size := of(i)
		binary.LittleEndian.PutUint32(b[24*i:], name)
		b[24*i+4] = byte(elf.STT_FUNC) | byte(elf.STB_GLOBAL)<<4
		b[24*i+6] = 1
		binary.LittleEndian.PutUint64(b[24*i+8:], start)
		binary.LittleEndian.PutUint64(b[24*i+16:], size)
	}
	return b
}

// symtab is a table of symbols and its names.
func symtab(symbols []byte, names string) []part {
	return []part{{".symtab", elf.SHT_SYMTAB, 0, 2, symbols}, {".strtab", elf.SHT_STRTAB, 0, 0, []byte(names)}}
}

func debug(name string, data []byte) part {
	return part{".debug_" + name, elf.SHT_PROGBITS, 0, 0, data}
}

func compressed(name string, data []byte) part {
	return part{".debug_" + name, elf.SHT_PROGBITS, elf.SHF_COMPRESSED, 0, data}
}

// peak is the largest sum of bytes that were taken.
type peak struct{ now, most int }

func (p *peak) grow(n int) { p.now += n; p.most = max(p.most, p.now) }

// Whatever a file is like, its tables, and what it takes to make and to use them, have bounds: bytes and steps are counted, and what is allocated is
// measured. A function that is there as well keeps its name.
func TestCosts(t *testing.T) {
	zeros := make([]byte, 64<<20)
	many := func(n int, b []byte) []byte { return bytes.Repeat(b, n) }
	oneSymbol := symtab(symbolsOf(2, func(i int) (uint32, uint64, uint64) { return uint32(i), uint64(0x1000 * i), 0x100 }), "\x00honest\x00")
	for i, p := range oneSymbol {
		oneSymbol[i].data = bytes.Clone(p.data)
	}
	lines := func(info, abbrev, ranges, line []byte) []part {
		return append([]part{debug("info", info), debug("abbrev", abbrev), debug("ranges", ranges), debug("line", line)}, symtabAt(5, oneSymbol)...)
	}
	wide := bits(uint64(0x1000), uint64(0x2000)) // a range
	header := func(version uint16, tables string) []byte {
		rest := bits(uint8(1), uint8(1), uint8(1), int8(-5), uint8(14), uint8(10), "\x00\x01\x01\x01\x01\x00\x00\x00\x01", tables)
		if version == 5 {
			return bits(version, uint8(8), uint8(0), uint32(len(rest)), string(rest))
		}
		return bits(version, uint32(len(rest)), string(rest))
	}
	table := func(version uint16, tables string, run []byte) []byte {
		h := header(version, tables)
		return bits(uint32(len(h)+len(run)), string(h), string(run))
	}
	set := bits(uint8(0), uint8(9), uint8(2), uint64(0x1000))
	for _, test := range []struct {
		name  string
		parts []part
		left  bool
	}{
		{"4 million units", lines(many(4<<20, bits(uint32(8), uint16(4), uint32(0), uint8(8), uint8(1))), []byte{1, 0x11, 0, 0, 0, 0}, nil, nil), true},
		{"units of no bytes", lines(zeros, abbrevOf, nil, nil), true},
		{"units of different tables of entries", lines(units32k(func(i int) []byte { return unitOf(uint32(i*5), 0) }), append(many(1<<20, []byte{2, 0x11, 0, 0, 0}), abbrevOf...), nil, nil), true},
		{"an entry with a million attributes", lines(unitOf(0, 0), append([]byte{1, 0x11, 0}, many(1<<20, []byte{0x10, 0x17})...), nil, nil), false},
		{"a list of ranges that all units share", lines(units32k(func(int) []byte { return unitOf(0, 0) }), abbrevOf, append(many(1<<20, wide), zeros[:16]...), nil), true},
		{"a list of bases", lines(units32k(func(int) []byte { return unitOf(0, 0) }), abbrevOf, many(1<<20, bits(^uint64(0), uint64(1))), nil), true},
		{"a unit that is longer than all", lines(bits(uint32(0xffffffff), uint64(1<<63), uint16(4)), abbrevOf, nil, nil), false},
		{"a line table of 15 MiB", lines(unitOf(0, 0), abbrevOf, append(wide, zeros[:16]...), table(4, "\x00x.c\x00\x00\x00\x00\x00", append(bytes.Clone(set), many(15<<20, []byte{0xff})...))), false},
		{"a line table of 4 GiB", lines(unitOf(0, 0), abbrevOf, append(wide, zeros[:16]...), bits(uint32(0xfffffff0), string(zeros[:1<<20]))), false},
		{"folders of nothing", lines(unitOf(0, 0), abbrevOf, append(wide, zeros[:16]...), table(5, "\x00\xff\xff\xff\xff\xff\xff\xff\x7f\x00", append(bytes.Clone(set), 1, 2, 0xff, 0xff, 1, 1))), false},
		{"files of nothing", lines(unitOf(0, 0), abbrevOf, append(wide, zeros[:16]...), table(5, "\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f", append(bytes.Clone(set), 1, 2, 0xff, 0xff, 1, 1))), false},
		{"zeros by zlib", append([]part{compressed("info", packed(elf.COMPRESS_ZLIB, 1<<30, zeros)), debug("abbrev", abbrevOf), debug("line", nil)}, symtabAt(4, oneSymbol)...), true},
		{"zeros by zstd", append([]part{compressed("info", packed(elf.COMPRESS_ZSTD, 1<<30, zeros)), debug("abbrev", abbrevOf), debug("line", nil)}, symtabAt(4, oneSymbol)...), true},
		{"a packed table of 64 MiB", append([]part{debug("info", unitOf(0, 0)), debug("abbrev", abbrevOf), compressed("line", packed(elf.COMPRESS_ZLIB, 64<<20, zeros))}, symtabAt(4, oneSymbol)...), true},
		{"many packed tables", append([]part{debug("info", unitOf(0, 0)), debug("abbrev", abbrevOf), compressed("line", packed(elf.COMPRESS_ZLIB, 20<<20, zeros[:20<<20])), compressed("addr", packed(elf.COMPRESS_ZLIB, 20<<20, zeros[:20<<20]))}, symtabAt(5, oneSymbol)...), true},
		{"packed, of another size than it claims", append([]part{debug("info", unitOf(0, 0)), debug("abbrev", abbrevOf), compressed("line", packed(elf.COMPRESS_ZLIB, 20<<20, zeros[:1]))}, symtabAt(4, oneSymbol)...), false},
		{"packed in an unknown way", append([]part{debug("info", unitOf(0, 0)), debug("abbrev", abbrevOf), compressed("line", bits(uint32(77), zeros[:20]))}, symtabAt(4, oneSymbol)...), false},
		{"three million symbols", symtab(symbolsOf(3<<20, func(i int) (uint32, uint64, uint64) { return 1, uint64(0x1000 + i), 1 }), "\x00honest\x00"), true},
		{"a million symbols of one name", symtab(symbolsOf(1<<20, func(i int) (uint32, uint64, uint64) { return 1, uint64(0x1000 + i), 1 }), "\x00"+strings.Repeat("x", 8000)+"\x00"), false},
		{"a million symbols of overlapping names", symtab(symbolsOf(1<<20, func(i int) (uint32, uint64, uint64) { return uint32(1 + i%8000), uint64(0x1000 + i), 1 }), "\x00"+strings.Repeat("x", 8000)+"\x00"), false},
		{"a million symbols of one address", symtab(symbolsOf(1<<20, func(i int) (uint32, uint64, uint64) { return uint32(1 + i%8000), 0x1000, 0x100 }), "\x00"+strings.Repeat("x", 8000)+"\x00"), false},
		{"names of 64 MiB", symtab(oneSymbol[0].data, "\x00honest\x00"+string(zeros)), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := madeELF(test.parts...)
			var p peak
			c := &cost{grow: p.grow, stopped: new(atomic.Bool)}
			in := &source{r: bytes.NewReader(file), ask: &proc.Questions{}, cost: c}
			var im *image
			var unread error
			steps := 0
			bytes := allocated(func() {
				var err error
				if im, _, unread, err = readImage(in, "/x", nil, nil, 0); err != nil {
					t.Fatal(err)
				}
				steps = c.steps
			})
			if (unread != nil) != test.left {
				t.Errorf("left: %v", unread)
			}
			if steps > loadSteps+blockSize*symbolSteps || p.most > mostBytes || p.now != c.bytes {
				t.Errorf("%d steps, %d bytes at once, %d counted as %d", steps, p.most, p.now, c.bytes)
			}
			if bytes > 3*mostBytes { // what grows is copied
				t.Errorf("%d bytes were allocated", bytes)
			}
			// What the tables hold is what was counted, and some buffers.
			if live := liveAfter(im) - liveAfter(nil); live > int64(c.bytes)+(4<<20) {
				t.Errorf("%d bytes are in use, %d were counted", live, c.bytes)
			}
			var f Frame
			bytes = allocated(func() { _ = im.frame(&f, 0x1000, false) })
			if c.steps > findSteps+blockSize || bytes > mostBytes {
				t.Errorf("a name takes %d steps and %d bytes", c.steps, bytes)
			}
			if strings.Contains(string(test.parts[len(test.parts)-1].data[:min(20, len(test.parts[len(test.parts)-1].data))]), "honest") && !strings.Contains(test.name, "three million") && f.Function != "honest" {
				t.Errorf("the function is %q", f.Function)
			}
			runtime.KeepAlive(file)
		})
	}
}

// liveAfter returns the bytes of the heap while something is kept.
func liveAfter(keep *image) int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	runtime.KeepAlive(keep)
	return int64(m.HeapAlloc)
}

// symtabAt moves a table of symbols behind other sections.
func symtabAt(first uint32, parts []part) []part {
	return []part{{".symtab", elf.SHT_SYMTAB, 0, first + 1, parts[0].data}, parts[1]}
}

func units32k(of func(i int) []byte) []byte {
	var b bytes.Buffer
	for i := range 32 << 10 {
		b.Write(of(i))
	}
	return b.Bytes()
}

// Headers have bounds of their own: how many there are, and what each has as its name.
func TestHeaderCosts(t *testing.T) {
	sections := make([]part, 1000)
	for i := range sections {
		sections[i] = part{name: "x", kind: elf.SHT_PROGBITS}
	}
	long := madeELF(sections...)
	names := binary.LittleEndian.Uint64(long[40:])
	for i := range len(sections) { // all are named by the whole of a text of a MiB
		binary.LittleEndian.PutUint32(long[names+64*uint64(i):], 0)
	}
	last := names + 64*uint64(len(sections)+1)
	binary.LittleEndian.PutUint64(long[last+24:], uint64(len(long)))
	binary.LittleEndian.PutUint64(long[last+32:], 1<<20)
	long = append(long, strings.Repeat("a", 1<<20)...)
	crowd := madeELF(make([]part, maxSections)...)
	segments := madeELF()
	binary.LittleEndian.PutUint16(segments[56:], 65535)
	for name, test := range map[string]struct {
		file []byte
		want string
	}{
		"long names": {long, ""}, "sections": {crowd, "it has 1026 sections, more than the 1024 that are read"},
		"segments": {segments, "it has 65535 segments, more than the 512 that are read"},
	} {
		var err error
		bytes := allocated(func() {
			_, err = parseELF(&source{r: bytes.NewReader(test.file), ask: &proc.Questions{}, cost: testCost()})
		})
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("%s: %v", name, err)
		}
		if bytes > 2<<20 {
			t.Errorf("%s: %d bytes were allocated", name, bytes)
		}
	}
}
