package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// image is a file that processes map, and its symbols.
type image struct {
	loads   []load
	symbols table
	lines   *lines
	cost    *cost
	// sources are the file and its debug file.
	sources []*source
	closers []io.Closer
	known   map[uint64]named // what was looked up, by twice the address, and 1 for a return address
	memory  int              // that known takes
}

// named is what is known of an address.
type named struct {
	function string
	start    uint64
	place    place
}

// Limits of what is kept of one file.
const (
	maxKnown      = 4096
	maxKnownBytes = 1 << 20
)

// opener opens files where a debug file may be; they are read as source is.
type opener func(root, path string) (debugFile, error)

type debugFile interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// parts of a file that may cost too much.
type parts uint8

const (
	ofDynamic parts = 1 << iota
	ofSymbols
	ofDebugFile
	ofMiniDebug
	ofLines
)

// readImage reads the symbols of an ELF file. Debug files are searched in roots, which are roots of file systems, and name is the file's path there.
// Parts that were left before are left again. unread reports those that cost too much, and left has all that were not read.
func readImage(in *source, name string, roots []string, open opener, before parts) (im *image, left parts, unread error, err error) {
	defer recovered(&err)
	im = &image{cost: in.cost, sources: []*source{in}, known: map[uint64]named{}}
	in.cost.begin(loadSteps)
	f, err := parseELF(in)
	if err != nil {
		return nil, 0, nil, err
	}
	im.loads = f.loads
	var errs []error
	// read reads a part. It returns how many functions it has.
	read := func(part parts, do func() error) int {
		had := len(im.symbols.all)
		if before&part != 0 {
			left |= part
			return 0
		}
		in.cost.begin(loadSteps)
		if err := do(); err != nil {
			if errs = append(errs, err); isCostly(err) {
				left |= part
			}
		}
		return len(im.symbols.all) - had
	}
	add := func(from *elfFile, kind elf.SectionType) func() error {
		return func() error { return im.symbols.add(from, kind, in.cost) }
	}
	read(ofDynamic, add(f, elf.SHT_DYNSYM))
	own, debug := read(ofSymbols, add(f, elf.SHT_SYMTAB)), f
	if own == 0 || f.named(".debug_line") == nil {
		read(ofDebugFile, func() error {
			separate, err := im.openDebug(f, name, roots, open)
			if separate != nil {
				debug = separate
				err = im.symbols.add(separate, elf.SHT_SYMTAB, in.cost)
			}
			return err
		})
	}
	if own == 0 && debug == f {
		read(ofMiniDebug, func() error {
			mini, err := miniDebug(f, in.cost)
			if mini != nil {
				err = im.symbols.add(mini, elf.SHT_SYMTAB, in.cost)
			}
			return err
		})
	}
	im.symbols.sort(in.cost)
	read(ofLines, func() (err error) {
		im.lines, err = linesOf(debug, in.cost)
		return err
	})
	im.cool()
	return im, left, onlyCostly(errs), nil
}

// recovered turns a panic of those who unpack files and names into an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("malformed: %v", r)
	}
}

// onlyCostly returns the errors about what was left because of its costs: malformed parts count as missing.
func onlyCostly(all []error) error {
	return errors.Join(slices.DeleteFunc(all, func(err error) bool { return !isCostly(err) })...)
}

func isCostly(err error) bool {
	var large *tooLarge
	var costly *tooCostly
	return errors.As(err, &large) || errors.As(err, &costly)
}

// cool drops what was read of the files.
func (im *image) cool() {
	for _, s := range im.sources {
		s.cool()
	}
}

// address returns the address of an offset of the file, by its headers.
func (im *image) address(offset uint64) (uint64, bool) {
	const page = 4096
	for _, l := range im.loads {
		if offset >= l.offset&^(page-1) && offset-l.offset&^(page-1) < l.offset-l.offset&^(page-1)+l.size {
			return offset - l.offset + l.address, true
		}
	}
	return 0, false
}

// frame names an address of the file's headers. returned means that it is a return address. An error is about what costs too much.
func (im *image) frame(f *Frame, address uint64, returned bool) error {
	key := address << 1
	if returned {
		key |= 1
	}
	n, known := im.known[key]
	if !known {
		var err error
		if n, err = im.look(address, returned); err != nil {
			return err
		}
		im.remember(key, n)
	}
	if n.function != "" {
		f.Function, f.Offset, f.File, f.Line = n.function, address-n.start, n.place.file, n.place.line
	}
	return nil
}

func (im *image) remember(key uint64, n named) {
	size := 128 + len(n.function) + len(n.place.file)
	if len(im.known) >= maxKnown || im.memory+size > maxKnownBytes {
		clear(im.known)
		im.cost.give(im.memory)
		im.memory = 0
	}
	if im.cost.take(size) == nil {
		im.known[key], im.memory = n, im.memory+size
	}
}

func (im *image) look(address uint64, returned bool) (n named, err error) {
	defer recovered(&err)
	im.cost.begin(findSteps)
	s, name, ok, err := im.symbols.find(address)
	// Behind a call that never returns there may be the next function. But a signal handler returns to the first address of a function.
	if err == nil && returned && (!ok || address == s.start && !strings.Contains(name, "restore_rt")) {
		s, name, ok, err = im.symbols.find(address - 1)
	}
	if err != nil || !ok {
		return n, err
	}
	n = named{function: readable(name), start: s.start}
	if returned {
		address--
	}
	if im.lines == nil {
		return n, nil
	}
	if n.place, err = im.lines.place(address, im.cost); isCostly(err) { // it has a name
		err = nil
	}
	return n, err
}

// openDebug opens the separate debug file of a file: by its build id, or by the name in .gnu_debuglink.
func (im *image) openDebug(f *elfFile, name string, roots []string, open opener) (*elfFile, error) {
	id := buildID(f)
	if 2 < len(id) && len(id) <= maxBuildID {
		text := hex.EncodeToString(id)
		path := filepath.Join("/usr/lib/debug/.build-id", text[:2], text[2:]+".debug")
		for _, root := range roots {
			if d := im.tryDebug(open, root, path, func(d *elfFile, _ debugFile) bool { return bytes.Equal(buildID(d), id) }); d != nil {
				return d, nil
			}
		}
	}
	link, sum, err := debugLink(f)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(name)
	for _, root := range roots {
		for _, path := range []string{filepath.Join(dir, link), filepath.Join(dir, ".debug", link), filepath.Join("/usr/lib/debug", dir, link)} {
			same := func(_ *elfFile, file debugFile) bool {
				var got uint32
				got, err = checksum(im.sources[len(im.sources)-1], file.Size(), link)
				return err == nil && got == sum
			}
			if d := im.tryDebug(open, root, path, same); d != nil {
				return d, nil
			}
		}
	}
	return nil, err
}

// tryDebug opens a file, and keeps it if it is the right one.
func (im *image) tryDebug(open opener, root, path string, right func(*elfFile, debugFile) bool) *elfFile {
	file, err := open(root, path)
	if err != nil {
		return nil
	}
	own := im.sources[0]
	s := &source{r: file, ask: own.ask, user: own.user, cost: own.cost}
	im.sources, im.closers = append(im.sources, s), append(im.closers, file)
	if f, err := parseELF(s); err == nil && right(f, file) {
		return f
	}
	im.sources, im.closers = im.sources[:len(im.sources)-1], im.closers[:len(im.closers)-1]
	file.Close()
	return nil
}

// maxBuildID is longer than any build ID: they are checksums.
const maxBuildID = 64

// buildID returns the note that identifies a file, or nil.
func buildID(f *elfFile) []byte {
	section := f.named(".note.gnu.build-id")
	if section == nil || section.kind != elf.SHT_NOTE {
		return nil
	}
	note, err := dataOf(f, section, maxNote)
	if err != nil || len(note) < 16 {
		return nil
	}
	name, size := f.order.Uint32(note), f.order.Uint32(note[4:])
	if name != 4 || uint64(size) > uint64(len(note)-16) || string(note[12:15]) != "GNU" {
		return nil
	}
	return note[16 : 16+size]
}

// errNoLink is what files without a separate debug file have.
var errNoLink = errors.New("no .gnu_debuglink")

// debugLink returns the name in .gnu_debuglink, and the checksum that the file must have.
func debugLink(f *elfFile) (name string, sum uint32, err error) {
	section := f.named(".gnu_debuglink")
	if section == nil {
		return "", 0, errNoLink
	}
	data, err := dataOf(f, section, maxNote)
	if err != nil {
		return "", 0, err
	}
	end := bytes.IndexByte(data, 0)
	at := (end + 4) &^ 3
	if end <= 0 || at+4 > len(data) {
		return "", 0, fmt.Errorf(".gnu_debuglink of %d bytes is malformed", len(data))
	}
	return filepath.Base(string(data[:end])), f.order.Uint32(data[at:]), nil
}

// maxDebugFile bounds a debug file whose checksum has to be computed, in bytes.
const maxDebugFile = 512 << 20

// checksum returns the checksum of a whole file.
func checksum(s *source, size int64, name string) (uint32, error) {
	if size > maxDebugFile {
		return 0, &tooLarge{"the debug file " + name, uint64(size), "bytes", maxDebugFile}
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(s, 0, maxDebugFile)); err != nil {
		return 0, err
	}
	return sum.Sum32(), nil
}
