package symbols

import (
	"bytes"
	"container/list"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"trace/probes/proc"
)

// This file opens the files that processes map, reads their symbols, and drops both when there are too many.

// fileKey identifies an open file. It includes the path, because subvolumes of btrfs number their files separately. While a file is open,
// its number is not reused.
type fileKey struct {
	file
	path string
}

func (m mapping) key() fileKey { return fileKey{m.file, strings.TrimSuffix(m.name, " (deleted)")} }

// openFile is a file that some process maps. path and roots are where to look for a debug file.
type openFile struct {
	id     fileKey
	reader io.ReaderAt
	closer io.Closer
	path   string
	roots  []string
	image  *image
	failed bool // it is not an ELF file
	used   *list.Element
}

// Unread returns which files have parts that were too large to read, so that frames have no names.
func (p *Processes) Unread() []string {
	p.unread.mu.Lock()
	defer p.unread.mu.Unlock()
	return slices.Clone(p.unread.lines)
}

// unread are notes about files, the first of them.
type unread struct {
	mu    sync.Mutex
	lines []string
}

// maxUnread limits the notes.
const maxUnread = 8

func (u *unread) note(name string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	line := fmt.Sprintf("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", ", "))
	if len(u.lines) < maxUnread && !slices.Contains(u.lines, line) {
		u.lines = append(u.lines, line)
	}
}

// open opens the file of a mapping: through the mapping itself, which is exact, or by its path in the process' file system.
func (p *Processes) open(pid int, m mapping) *openFile {
	path := m.key().path
	of := &openFile{id: m.key(), path: path, roots: p.rootsOf(pid)}
	f, err := openMapped(pid, m.start, m.end)
	for _, root := range of.roots {
		if err == nil || !strings.HasPrefix(path, "/") {
			break
		}
		if f, err = openRegular(root, path, true); err == nil && !isFile(f, m.file) {
			f.Close()
			f, err = nil, errors.New("another file")
		}
	}
	if err != nil {
		return nil
	}
	of.reader, of.closer = f, f
	p.files[of.id] = of
	of.used = p.recent.PushBack(of)
	for p.recent.Len() > maxFiles {
		p.forget(p.recent.Front().Value.(*openFile))
	}
	return of
}

// rootsOf returns where the process' file system may be seen: through it, if it has ended through its parents, and ours.
func (p *Processes) rootsOf(pid int) []string {
	roots := []string{fmt.Sprintf("/proc/%d/root", pid)}
	s := p.spaces[pid]
	for range 4 {
		if s == nil {
			break
		}
		if s = s.parent(true); s != nil {
			roots = append(roots, fmt.Sprintf("/proc/%d/root", s.pid))
		}
	}
	return append(roots, "/")
}

func (p *Processes) forget(of *openFile) {
	p.recent.Remove(of.used)
	delete(p.files, of.id)
	p.unload(of)
	of.closer.Close()
}

func (p *Processes) unload(of *openFile) {
	if of.image != nil {
		p.loaded -= of.image.size()
		of.image.close()
		of.image = nil
	}
}

// image returns the symbols of the file of a mapping, or nil.
func (p *Processes) image(pid int, m mapping) *image {
	of := p.files[m.key()]
	if of == nil {
		if of = p.open(pid, m); of == nil {
			return nil
		}
	}
	p.recent.MoveToBack(of.used)
	p.load(of)
	return of.image
}

// load reads the symbols of a file, and drops others if there are too many.
func (p *Processes) load(of *openFile) {
	if of.image != nil || of.failed {
		return
	}
	im, unread, err := readImage(of.reader, of.path, of.roots)
	if err != nil {
		of.failed = true
		if errors.Is(err, errTooMuch) {
			p.unread.note(of.path, err)
		}
		return
	}
	if of.image = im; unread != nil {
		p.unread.note(of.path, unread)
	}
	p.loaded += of.image.size()
	p.shrink(of, nil)
}

// shrink drops the least recently used symbols, and maps of compilers, if they need too much memory, except these.
func (p *Processes) shrink(file *openFile, m *writtenMap) {
	for pid, other := range p.maps {
		if p.loaded > maxLoaded && other != m {
			p.forgetMap(pid)
		}
	}
	for at := p.recent.Front(); at != nil && p.loaded > maxLoaded; at = at.Next() {
		if other := at.Value.(*openFile); other != file {
			p.unload(other)
		}
	}
}

// vdsoFile is the key of the code that the kernel maps into each process.
var vdsoFile = fileKey{path: "[vdso]"}

// vdso returns our own vdso. Each process' vdso of the same size is equal: it comes from the same kernel.
func (p *Processes) vdso(size uint64) *image {
	of := p.files[vdsoFile]
	if of == nil {
		of = &openFile{id: vdsoFile, path: vdsoFile.path, closer: io.NopCloser(nil)}
		data := ownVDSO()
		if uint64(len(data)) != size {
			return nil
		}
		of.reader = bytes.NewReader(data)
		p.files[vdsoFile] = of
		of.used = p.recent.PushBack(of)
	}
	p.load(of)
	return of.image
}

func ownVDSO() []byte {
	all, err := proc.Mappings(os.Getpid())
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(all, func(m proc.Mapping) bool { return m.Path == "[vdso]" })
	if i < 0 {
		return nil
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil
	}
	defer mem.Close()
	data := make([]byte, all[i].End-all[i].Start)
	if _, err := mem.ReadAt(data, int64(all[i].Start)); err != nil {
		return nil
	}
	return data
}
