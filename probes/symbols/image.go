package symbols

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// image is a file that processes map, and its symbols.
type image struct {
	loads   []elf.ProgHeader
	symbols table
	lines   *dwarf.Data
	info    uint64           // bytes that lines hold
	places  map[uint64]place // cache of look-ups in lines, which are slow
	closers []io.Closer
}

// place is a place in the program's source code.
type place struct {
	file string
	line int
}

// maxPlaces bounds the cache of one file.
const maxPlaces = 1 << 14

// readImage reads the symbols of an ELF file. Debug files are searched in roots, which are roots of file systems, and name is the file's
// path there. unread reports parts that are too large and were not read.
func readImage(r io.ReaderAt, name string, roots []string) (im *image, unread error, err error) {
	defer recovered(&err)
	f, err := parseELF(r)
	if err != nil {
		return nil, nil, err
	}
	im = &image{places: map[uint64]place{}}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			im.loads = append(im.loads, p.ProgHeader)
		}
	}
	all, err := functionsOf(f, elf.SHT_DYNSYM)
	own, err2 := functionsOf(f, elf.SHT_SYMTAB)
	all = append(all, own...)
	errs := []error{err, err2}
	debug := f
	if len(own) == 0 || f.Section(".debug_line") == nil && f.Section(".zdebug_line") == nil {
		if separate, err := openDebug(f, name, roots); separate != nil {
			more, err := functionsOf(separate.File, elf.SHT_SYMTAB)
			all, errs = append(all, more...), append(errs, err)
			im.closers = append(im.closers, separate)
			debug = separate.File
		} else if errs = append(errs, err); len(own) == 0 {
			more, err := miniDebug(f)
			all, errs = append(all, more...), append(errs, err)
		}
	}
	im.symbols = newTable(all)
	im.lines, im.info, err = linesOf(debug)
	return im, onlyTooLarge(append(errs, err)), nil
}

// recovered turns a panic of debug/elf or debug/dwarf, which are not hardened, into an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("malformed: %v", r)
	}
}

// onlyTooLarge returns the errors that are tooLarge: malformed parts count as missing.
func onlyTooLarge(all []error) error {
	return errors.Join(slices.DeleteFunc(all, func(err error) bool {
		var large *tooLarge
		return !errors.As(err, &large)
	})...)
}

// size estimates its memory in bytes.
func (im *image) size() int {
	const each = 80 // a symbol with its name
	return each*len(im.symbols) + int(im.info)
}

func (im *image) close() {
	for _, c := range im.closers {
		c.Close()
	}
}

// rankOf prefers names with a size that are functions, then names for users of a library: getppid before __getppid.
func rankOf(s elf.Symbol, kind elf.SymType) int {
	rank := 0
	if s.Size > 0 {
		rank += 16
	}
	if kind != elf.STT_NOTYPE {
		rank += 8
	}
	if elf.ST_BIND(s.Info) != elf.STB_LOCAL {
		rank += 4
	}
	return rank - min(len(s.Name)-len(strings.TrimLeft(s.Name, "_")), 3)
}

// linesOf returns the line numbers of a file, and how many bytes they take.
func linesOf(f *elf.File) (*dwarf.Data, uint64, error) {
	info := f.Section(".debug_info")
	if info == nil {
		return nil, 0, nil
	}
	if info.Size > maxDebugInfo {
		return nil, 0, &tooLarge{info.Name, info.Size, maxDebugInfo}
	}
	bytes, err := debugBytes(f)
	if err != nil {
		return nil, 0, err
	}
	data, err := f.DWARF()
	return data, bytes, err
}

// address returns the address of an offset of the file, by its headers.
func (im *image) address(offset uint64) (uint64, bool) {
	const page = 4096
	for _, p := range im.loads {
		from := p.Off &^ (page - 1)
		if p.Flags&elf.PF_X != 0 && offset >= from && offset < p.Off+p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// frame names an address of the file's headers. returned means that it is a return address.
func (im *image) frame(f *Frame, address uint64, returned bool) {
	s, ok := im.symbols.find(address)
	// Behind a call that never returns there may be the next function. But a signal handler returns to the first address of a function.
	if returned && (!ok || address == s.start && !strings.Contains(s.name, "restore_rt")) {
		s, ok = im.symbols.find(address - 1)
	}
	if !ok {
		return
	}
	f.Function, f.Offset = readable(s.name), address-s.start
	if returned {
		address--
	}
	if im.lines == nil {
		return
	}
	p, known := im.places[address]
	if !known {
		p = im.place(address)
		if len(im.places) >= maxPlaces {
			clear(im.places)
		}
		im.places[address] = p
	}
	f.File, f.Line = p.file, p.line
}

// place returns the place in the source code, or an empty one.
func (im *image) place(address uint64) (found place) {
	var err error
	defer recovered(&err)
	unit, err := im.lines.Reader().SeekPC(address)
	if err != nil {
		return place{}
	}
	lines, err := im.lines.LineReader(unit)
	if err != nil || lines == nil {
		return place{}
	}
	var entry dwarf.LineEntry
	if lines.SeekPC(address, &entry) != nil || entry.File == nil || entry.Line == 0 {
		return place{}
	}
	return place{entry.File.Name, entry.Line}
}

// openDebug opens the separate debug file of a file: by its build id, or by the name in .gnu_debuglink.
func openDebug(f *elf.File, name string, roots []string) (*openedELF, error) {
	id := buildID(f)
	if 2 < len(id) && len(id) <= maxBuildID {
		text := hex.EncodeToString(id)
		for _, root := range roots {
			d, err := openELF(root, filepath.Join("/usr/lib/debug/.build-id", text[:2], text[2:]+".debug"))
			if err != nil {
				continue
			}
			if bytes.Equal(buildID(d.File), id) {
				return d, nil
			}
			d.Close()
		}
	}
	link, sum, err := debugLink(f)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(name)
	for _, root := range roots {
		for _, path := range []string{filepath.Join(dir, link), filepath.Join(dir, ".debug", link), filepath.Join("/usr/lib/debug", dir, link)} {
			d, openErr := openELF(root, path)
			if openErr != nil {
				continue
			}
			var got uint32
			if got, err = checksum(d.file); err == nil && got == sum {
				return d, nil
			}
			d.Close()
		}
	}
	return nil, err
}

// maxBuildID is longer than any build ID: they are checksums.
const maxBuildID = 64

// buildID returns the note that identifies a file, or nil.
func buildID(f *elf.File) []byte {
	section := f.Section(".note.gnu.build-id")
	if section == nil || section.Type != elf.SHT_NOTE {
		return nil
	}
	note, err := dataOf(section, maxNote)
	if err != nil || len(note) < 16 {
		return nil
	}
	name, size := f.ByteOrder.Uint32(note), f.ByteOrder.Uint32(note[4:])
	if name != 4 || uint64(size) > uint64(len(note)-16) || string(note[12:15]) != "GNU" {
		return nil
	}
	return note[16 : 16+size]
}

// debugLink returns the name in .gnu_debuglink, and the checksum that the file must have.
func debugLink(f *elf.File) (name string, sum uint32, err error) {
	section := f.Section(".gnu_debuglink")
	if section == nil {
		return "", 0, errors.New("no .gnu_debuglink")
	}
	data, err := dataOf(section, maxNote)
	if err != nil {
		return "", 0, err
	}
	end := bytes.IndexByte(data, 0)
	at := (end + 4) &^ 3
	if end <= 0 || at+4 > len(data) {
		return "", 0, fmt.Errorf(".gnu_debuglink of %d bytes is malformed", len(data))
	}
	return filepath.Base(string(data[:end])), f.ByteOrder.Uint32(data[at:]), nil
}

// checksum returns the checksum of a whole file.
func checksum(file *os.File) (uint32, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if size := info.Size(); size > maxDebugFile {
		return 0, &tooLarge{"the debug file " + filepath.Base(file.Name()), uint64(size), maxDebugFile}
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, maxDebugFile)); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(sum.Sum(nil)), nil
}
