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
	"strings"

	"github.com/ulikunitz/xz"
)

// image is a file that processes map, and its symbols.
type image struct {
	loads   []elf.ProgHeader
	symbols table
	lines   *dwarf.Data
	info    uint64           // bytes of .debug_info that lines hold
	places  map[uint64]place // what was looked for in lines, which takes long
	closers []io.Closer
}

// place is one in the source.
type place struct {
	file string
	line int
}

// maxPlaces bounds what is kept of one file.
const maxPlaces = 1 << 14

// Limits of what is read of one file.
const (
	maxMiniDebug = 64 << 20 // bytes of .gnu_debugdata, unpacked
	maxDebugInfo = 64 << 20 // bytes of .debug_info: to read line numbers takes memory of that order
)

// readImage reads the symbols of an ELF file. dirs are the roots of file systems to look for debug files in, and name is where the file
// is there.
func readImage(r io.ReaderAt, name string, roots []string) (*image, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	im := &image{places: map[uint64]place{}}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			im.loads = append(im.loads, p.ProgHeader)
		}
	}
	all := functionsOf(f, (*elf.File).DynamicSymbols)
	own := functionsOf(f, (*elf.File).Symbols)
	all = append(all, own...)
	debug := f
	if len(own) == 0 || f.Section(".debug_line") == nil && f.Section(".zdebug_line") == nil {
		if separate, closer := openDebug(f, name, roots); separate != nil {
			all = append(all, functionsOf(separate, (*elf.File).Symbols)...)
			im.closers = append(im.closers, closer)
			debug = separate
		} else if len(own) == 0 {
			all = append(all, miniDebug(f)...)
		}
	}
	im.symbols = newTable(all)
	if im.lines = linesOf(debug); im.lines != nil {
		im.info = debug.Section(".debug_info").Size
	}
	return im, nil
}

// size is about how many bytes it takes.
func (im *image) size() int {
	const each = 80 // a symbol with its name
	return each*len(im.symbols) + 2*int(im.info)
}

func (im *image) close() {
	for _, c := range im.closers {
		c.Close()
	}
}

// functionsOf returns the functions of a symbol table.
func functionsOf(f *elf.File, read func(*elf.File) ([]elf.Symbol, error)) []symbol {
	list, err := read(f)
	if err != nil { // there is none
		return nil
	}
	var all []symbol
	for _, s := range list {
		kind := elf.ST_TYPE(s.Info)
		code := kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC
		// Beginnings that are written in assembly, like _start of some libraries.
		code = code || kind == elf.STT_NOTYPE && int(s.Section) < len(f.Sections) && f.Sections[s.Section].Flags&elf.SHF_EXECINSTR != 0
		if !code || s.Section == elf.SHN_UNDEF || s.Value == 0 || s.Name == "" || strings.HasPrefix(s.Name, "$") { // $x: arm64 marks
			continue
		}
		all = append(all, symbol{start: s.Value, size: s.Size, name: s.Name, rank: rankOf(s, kind)})
	}
	return all
}

// rankOf prefers what has a size and is a function, then names for users of a library: getppid before __getppid.
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

// miniDebug returns the functions of .gnu_debugdata: an ELF file with a symbol table, packed by xz
// (https://sourceware.org/gdb/current/onlinedocs/gdb.html/MiniDebugInfo.html).
func miniDebug(f *elf.File) []symbol {
	section := f.Section(".gnu_debugdata")
	if section == nil {
		return nil
	}
	unpacked, err := xz.NewReader(section.Open())
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(unpacked, maxMiniDebug))
	if err != nil {
		return nil
	}
	mini, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	return functionsOf(mini, (*elf.File).Symbols)
}

func linesOf(f *elf.File) *dwarf.Data {
	info := f.Section(".debug_info")
	if info == nil || info.Size > maxDebugInfo {
		return nil
	}
	data, err := f.DWARF()
	if err != nil {
		return nil
	}
	return data
}

// address returns where the file's headers put a place of the file.
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

// frame names an address as the file's headers put it. returned says that it is where a call returns to.
func (im *image) frame(f *Frame, address uint64, returned bool) {
	s, ok := im.symbols.find(address)
	// Behind a call that never returns there may be the next function. A signal handler returns to the very beginning of one.
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

// place returns the one in the source, or none.
func (im *image) place(address uint64) place {
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
func openDebug(f *elf.File, name string, roots []string) (*elf.File, io.Closer) {
	id := buildID(f)
	if len(id) > 2 {
		text := hex.EncodeToString(id)
		for _, root := range roots {
			path := filepath.Join(root, "/usr/lib/debug/.build-id", text[:2], text[2:]+".debug")
			if d, err := openELF(path); err == nil {
				if bytes.Equal(buildID(d.File), id) {
					return d.File, d
				}
				d.Close()
			}
		}
	}
	link, sum, err := debugLink(f)
	if err != nil {
		return nil, nil
	}
	dir := filepath.Dir(name)
	for _, root := range roots {
		for _, path := range []string{filepath.Join(dir, link), filepath.Join(dir, ".debug", link), filepath.Join("/usr/lib/debug", dir, link)} {
			path = filepath.Join(root, path)
			if checksum(path) != sum {
				continue
			}
			if d, err := openELF(path); err == nil {
				return d.File, d
			}
		}
	}
	return nil, nil
}

type openedELF struct {
	*elf.File
	file *os.File
}

func (o *openedELF) Close() error { return o.file.Close() }

func openELF(path string) (*openedELF, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &openedELF{f, file}, nil
}

// buildID returns the note that identifies a file, or nil.
func buildID(f *elf.File) []byte {
	section := f.Section(".note.gnu.build-id")
	if section == nil || section.Type != elf.SHT_NOTE {
		return nil
	}
	note, err := section.Data()
	if err != nil || len(note) < 16 {
		return nil
	}
	name, size := f.ByteOrder.Uint32(note), f.ByteOrder.Uint32(note[4:])
	if name != 4 || uint64(size) > uint64(len(note)-16) || string(note[12:15]) != "GNU" {
		return nil
	}
	return note[16 : 16+size]
}

// debugLink returns the name in .gnu_debuglink, and the checksum that the file has to have.
func debugLink(f *elf.File) (name string, sum uint32, err error) {
	section := f.Section(".gnu_debuglink")
	if section == nil {
		return "", 0, errors.New("no .gnu_debuglink")
	}
	data, err := section.Data()
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

func checksum(path string) uint32 {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, file); err != nil {
		return 0
	}
	return binary.BigEndian.Uint32(sum.Sum(nil))
}
