package symbols

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// This file reads ELF files from untrusted processes: of any size, sparse, with sections that claim anything. debug/elf is not hardened against that
// (https://pkg.go.dev/debug/elf#hdr-Security): it keeps a string for each section, which may be as long as the table of their names.

// Limits of headers. Linkers make some dozens.
const (
	maxSections    = 1024
	maxSegments    = 512
	maxSectionName = 32
)

// elfFile is an ELF file with its headers.
type elfFile struct {
	r        io.ReaderAt
	order    binary.ByteOrder
	wide     bool // of 64 bits
	loads    []load
	sections []section
}

// load is a part of the file that is mapped as code.
type load struct{ offset, size, address uint64 }

// section is a part of the file with a name.
type section struct {
	name               string
	kind               elf.SectionType
	flags              elf.SectionFlag
	offset, size, link uint64
}

// tooLarge means that a part of a file was not read.
type tooLarge struct {
	what  string
	count uint64
	unit  string
	most  uint64
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("%s has %d %s, more than the %d that are read", e.what, e.count, e.unit, e.most)
}

// errNoELF is what most files that are no programs are.
var errNoELF = errors.New("not an ELF file")

// parseELF reads the headers of a file.
func parseELF(r io.ReaderAt) (*elfFile, error) {
	var head [64]byte
	if n, err := r.ReadAt(head[:], 0); n < 52 {
		return nil, cmpErr(err, errNoELF)
	}
	f := &elfFile{r: r, wide: head[elf.EI_CLASS] == byte(elf.ELFCLASS64), order: binary.LittleEndian}
	if head[elf.EI_DATA] == byte(elf.ELFDATA2MSB) {
		f.order = binary.BigEndian
	}
	if string(head[:4]) != elf.ELFMAG || !f.wide && head[elf.EI_CLASS] != byte(elf.ELFCLASS32) {
		return nil, errNoELF
	}
	var segments, sections, names uint64 // where they are, and the number of the section of names
	var sizes [4]uint64                  // of a segment, how many, of a section, how many
	at := 42
	if f.wide {
		at, segments, sections = 54, f.order.Uint64(head[32:]), f.order.Uint64(head[40:])
	} else {
		segments, sections = uint64(f.order.Uint32(head[28:])), uint64(f.order.Uint32(head[32:]))
	}
	for i := range sizes {
		sizes[i] = uint64(f.order.Uint16(head[at+2*i:]))
	}
	names = uint64(f.order.Uint16(head[at+8:]))
	if err := f.readSegments(segments, sizes[0], sizes[1]); err != nil {
		return nil, err
	}
	return f, f.readSections(sections, sizes[2], sizes[3], names)
}

// cmpErr returns the error of a read, unless it is only the end of the file.
func cmpErr(err, otherwise error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return otherwise
	}
	return err
}

// headers reads headers of one kind: count of them, of at least so many bytes each.
func (f *elfFile) headers(at, size, count, least, most uint64, what string) (entries [][]byte, err error) {
	switch {
	case count == 0 || at == 0:
		return nil, nil
	case count > most:
		return nil, &tooLarge{"it", count, what, most}
	case size < least || size > 256:
		return nil, fmt.Errorf("%s of %d bytes", what, size)
	}
	raw := make([]byte, size*count)
	if _, err := f.r.ReadAt(raw, int64(at)); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for ; len(raw) > 0; raw = raw[size:] {
		entries = append(entries, raw[:size])
	}
	return entries, nil
}

// word reads the nth field of a header that begins with narrow fields of four bytes; the others have the size of an address.
func (f *elfFile) word(b []byte, narrow, n int) uint64 {
	if n < narrow {
		return uint64(f.order.Uint32(b[4*n:]))
	}
	if f.wide {
		return f.order.Uint64(b[4*narrow+8*(n-narrow):])
	}
	return uint64(f.order.Uint32(b[4*n:]))
}

func (f *elfFile) readSegments(at, size, count uint64) error {
	least := uint64(32)
	if f.wide {
		least = 56
	}
	all, err := f.headers(at, size, count, least, maxSegments, "segments")
	for _, b := range all {
		l, flags := load{f.word(b, 1, 1), f.word(b, 1, 4), f.word(b, 1, 2)}, f.order.Uint32(b[24:])
		if f.wide {
			flags = f.order.Uint32(b[4:])
			l = load{f.order.Uint64(b[8:]), f.order.Uint64(b[32:]), f.order.Uint64(b[16:])}
		}
		if elf.ProgType(f.order.Uint32(b)) == elf.PT_LOAD && elf.ProgFlag(flags)&elf.PF_X != 0 {
			f.loads = append(f.loads, l)
		}
	}
	return err
}

func (f *elfFile) readSections(at, size, count, names uint64) error {
	least := uint64(40)
	if f.wide {
		least = 64
	}
	all, err := f.headers(at, size, count, least, maxSections, "sections")
	if err != nil {
		return err
	}
	for _, b := range all {
		s := section{kind: elf.SectionType(f.order.Uint32(b[4:]))}
		if f.wide {
			s.flags, s.offset, s.size, s.link = elf.SectionFlag(f.order.Uint64(b[8:])), f.order.Uint64(b[24:]), f.order.Uint64(b[32:]), uint64(f.order.Uint32(b[40:]))
		} else {
			s.flags, s.offset, s.size, s.link = elf.SectionFlag(f.order.Uint32(b[8:])), uint64(f.order.Uint32(b[16:])), uint64(f.order.Uint32(b[20:])), uint64(f.order.Uint32(b[24:]))
		}
		f.sections = append(f.sections, s)
	}
	if names >= uint64(len(all)) {
		return nil
	}
	table := f.raw(&f.sections[names])
	for i, b := range all {
		if f.sections[i].name, err = stringAt(table, int64(f.order.Uint32(b)), maxSectionName); err != nil {
			return err
		}
	}
	return nil
}

// stringAt returns a text that ends with a zero byte within so many bytes; "" if there is none.
func stringAt(r io.ReaderAt, at int64, most int) (string, error) {
	for size := min(most, 128); ; size = most {
		b := make([]byte, size)
		n, err := r.ReadAt(b, at)
		if end := bytes.IndexByte(b[:n], 0); end >= 0 {
			return string(b[:end]), nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if n < size || size == most {
			return "", nil
		}
	}
}

// named returns the section of a name, nil if there is none.
func (f *elfFile) named(name string) *section {
	for i := range f.sections {
		if s := &f.sections[i]; s.name == name && s.kind != elf.SHT_NOBITS {
			return s
		}
	}
	return nil
}

// raw returns the bytes of a section as they are in the file.
func (f *elfFile) raw(s *section) *io.SectionReader {
	if s.kind == elf.SHT_NOBITS || int64(s.offset) < 0 || int64(s.size) < 0 {
		return io.NewSectionReader(f.r, 0, 0)
	}
	return io.NewSectionReader(f.r, int64(s.offset), int64(s.size))
}

// dataOf returns the content of a small section, unpacked.
func dataOf(f *elfFile, s *section, most uint64) ([]byte, error) {
	if s.flags&elf.SHF_COMPRESSED != 0 {
		return nil, fmt.Errorf("%s is compressed", s.name)
	}
	if s.size > most {
		return nil, &tooLarge{s.name, s.size, "bytes", most}
	}
	b := make([]byte, s.size)
	n, err := f.raw(s).ReadAt(b, 0)
	return b[:n], cmpErr(err, nil)
}

// content returns the content of a section, and its size. What is packed is kept in memory, which is counted.
func (f *elfFile) content(s *section, c *cost) (*io.SectionReader, error) {
	if s.flags&elf.SHF_COMPRESSED == 0 {
		return f.raw(s), nil
	}
	in, size, err := f.unpacked(s, c)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if size > mostBytes {
		return nil, &tooLarge{s.name, size, "bytes", mostBytes}
	}
	if err := c.take(int(size)); err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(in, b); err != nil {
		c.give(int(size))
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(size)), nil
}

// stream returns the content of a section from its beginning, and its size.
func (f *elfFile) stream(s *section, c *cost) (io.ReadCloser, uint64, error) {
	if s.flags&elf.SHF_COMPRESSED == 0 {
		return io.NopCloser(f.raw(s)), s.size, nil
	}
	return f.unpacked(s, c)
}

// unpacked unpacks a section (SHF_COMPRESSED).
func (f *elfFile) unpacked(s *section, c *cost) (io.ReadCloser, uint64, error) {
	head := make([]byte, 24)
	if !f.wide {
		head = head[:12]
	}
	raw := f.raw(s)
	if _, err := raw.ReadAt(head, 0); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", s.name, err)
	}
	size := uint64(f.order.Uint32(head[4:]))
	if f.wide {
		size = f.order.Uint64(head[8:])
	}
	raw.Seek(int64(len(head)), io.SeekStart)
	var in io.ReadCloser
	var err error
	switch kind := elf.CompressionType(f.order.Uint32(head)); kind {
	case elf.COMPRESS_ZLIB:
		in, err = zlib.NewReader(raw)
	case elf.COMPRESS_ZSTD:
		var d *zstd.Decoder
		if d, err = zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20)); err == nil {
			in = d.IOReadCloser()
		}
	default:
		err = fmt.Errorf("compression %v is unknown", kind)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", s.name, err)
	}
	return &counted{in, io.LimitReader(in, int64(min(size, 1<<62))), c}, size, nil
}

// counted counts the work of unpacking: two bytes are a step.
type counted struct {
	io.Closer
	r    io.Reader
	cost *cost
}

func (c *counted) Read(p []byte) (int, error) {
	p = p[:min(len(p), blockSize)]
	n, err := c.r.Read(p)
	if costs := c.cost.step(n/2 + 1); costs != nil {
		err = costs
	}
	return n, err
}
