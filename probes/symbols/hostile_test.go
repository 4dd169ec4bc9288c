//go:build linux

package symbols

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// within fails the test if f takes longer than anything here may.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it hangs")
	}
}

// Only regular files below the root are opened.
func TestOpenRegular(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	for _, name := range []string{outside, filepath.Join(root, "file")} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"out": outside, "up": "../../../../../.." + outside, "zero": "/dev/zero", "fd": "/proc/self/fd/0", "in": "/file", "dir": "."} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	within(t, func() {
		for _, test := range []struct {
			root, path string
			follow, ok bool
		}{
			{root, "/file", true, true}, {root, "file", false, true}, {root, "/in", true, true}, {root, "/in", false, false},
			{root, "/fifo", true, false}, {root, "/out", true, false}, {root, "/up", true, false}, {root, "/zero", true, false},
			{root, "/dir", true, false}, {root, "/", true, false}, {root, "/none", true, false},
			{"/", filepath.Join(root, "zero"), true, false}, {"/", filepath.Join(root, "fd"), true, false}, {"/", "/dev/zero", true, false},
			{"/", filepath.Join(root, "out"), true, true},
		} {
			f, err := openRegular(test.root, test.path, test.follow)
			if (err == nil) != test.ok {
				t.Errorf("%s in %s, follow %v: %v", test.path, test.root, test.follow, err)
			}
			if err == nil {
				f.Close()
			}
		}
	})
}

// section returns where the header of a section is in an ELF file of 64 bits.
func section(t *testing.T, data []byte, name string) []byte {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.Sections, func(s *elf.Section) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no section %s", name)
	}
	return data[binary.LittleEndian.Uint64(data[40:])+64*uint64(i):]
}

// changed returns a fixture whose section has another size, at the end of the file if that makes the file long enough.
func changed(t *testing.T, fixture, name string, size uint64, sparse int64) *os.File {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", fixture))
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(section(t, data, name)[32:], size)
	path := filepath.Join(t.TempDir(), "elf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, max(int64(len(data)), sparse)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What a file claims to have is not read beyond the limits, and reported.
func TestSparseSections(t *testing.T) {
	const gib = 1 << 30
	for _, test := range []struct{ fixture, section, unread string }{
		{"tiny", ".symtab", ".symtab has 1073741824 bytes"},
		{"tiny", ".strtab", ".strtab has 1073741824 bytes"},
		{"tiny", ".debug_info", ".debug_info has 1073741824 bytes"},
		{"tiny", ".debug_line", "line numbers has "},
		{"tiny.minidebug", ".gnu_debugdata", ".gnu_debugdata has 1073741824 bytes"},
		{"tiny.linked", ".gnu_debuglink", ".gnu_debuglink has 1073741824 bytes"},
	} {
		f := changed(t, test.fixture, test.section, gib, 3*gib)
		within(t, func() {
			bytes := allocated(func() {
				im, unread, err := readImage(f, "/x", nil)
				if err != nil || unread == nil || !strings.Contains(unread.Error(), test.unread) {
					t.Errorf("%s: %v, %v", test.section, unread, err)
				}
				if im != nil {
					im.close()
				}
			})
			if bytes > 1<<20 {
				t.Errorf("%s of a GiB takes %d bytes", test.section, bytes)
			}
		})
	}
	f := changed(t, "tiny", ".shstrtab", gib, 3*gib)
	if bytes := allocated(func() {
		if _, _, err := readImage(f, "/x", nil); !errors.Is(err, errTooMuch) {
			t.Errorf(".shstrtab: %v", err)
		}
	}); bytes > 16<<20 { // debug/elf reads large parts in pieces of 10 MiB
		t.Errorf(".shstrtab of a GiB takes %d bytes", bytes)
	}
}

// A link to a debug file needs a name and a checksum.
func TestMalformedDebugLink(t *testing.T) {
	f, err := elf.NewFile(changed(t, "tiny.linked", ".gnu_debuglink", 4, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDebug(f, "/x", nil); err == nil || err.Error() != ".gnu_debuglink of 4 bytes is malformed" {
		t.Error(err)
	}
}

// A million symbols that share a long name do not copy it each, and no demangled name grows without bound.
func TestLongNames(t *testing.T) {
	if got := nameAt(strings.Repeat("a", 2*maxName)+"\x00", 0); got != "" {
		t.Errorf("a name of %d bytes", len(got))
	}
	if got := nameAt("ab\x00cd", 1); got != "b" || nameAt("ab\x00cd", 3) != "" || nameAt("", 7) != "" {
		t.Errorf("%q", got)
	}
	doubled := "_Z1f"
	for range 40 {
		doubled += "NS_IS_S_E"
	}
	within(t, func() {
		for _, name := range []string{doubled, "_Z1fI1AEvT_" + strings.Repeat("S0_", 1000), "_Z" + strings.Repeat("1aI", 5000)} {
			if got := readable(name); len(got) > max(len(name), 1<<longestName) {
				t.Errorf("%d bytes for a name of %d", len(got), len(name))
			}
		}
	})
}

// A link to something that is not a debug file blocks nothing.
func TestHostileDebugLink(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"fifo":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"sparse": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
		"sparse ELF": func(path string) error {
			data, err := os.ReadFile("testdata/tiny.debug")
			return errors.Join(err, os.WriteFile(path, data, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		root := t.TempDir()
		if err := make(filepath.Join(root, "tiny.debug")); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open("testdata/tiny.linked")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		within(t, func() {
			im, unread, err := readImage(f, "/tiny.linked", []string{root})
			if err != nil || len(im.symbols) > 0 || (unread != nil) != (name == "sparse ELF") {
				t.Errorf("%s: %v, %v", name, unread, err)
			}
		})
	}
}

// The map of functions of a process is a regular file of its user, and of no unbounded size.
func TestHostilePerfMap(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	const pid = 1<<22 + 4711 // more than there are
	path := fmt.Sprintf("/tmp/perf-%d.map", pid)
	defer os.Remove(path)
	write := func(uid int) func() error {
		return func() error {
			return errors.Join(os.WriteFile(path, []byte("1000 100 theirs\n"), 0o600), os.Chown(path, uid, uid))
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "map")
	for _, test := range []struct {
		name string
		make func() error
		uid  int // of the process; -1: not known
		want string
	}{
		{"fifo", func() error { return unix.Mkfifo(path, 0o666) }, 0, ""},
		{"device", func() error { return os.Symlink("/dev/zero", path) }, 0, ""},
		{"link", func() error {
			return errors.Join(os.WriteFile(elsewhere, []byte("1000 100 theirs\n"), 0o600), os.Symlink(elsewhere, path))
		}, 0, ""},
		{"of another user", write(65534), 1000, ""},
		{"of another user than root", write(65534), 0, ""},
		{"of nobody knows whom", write(65534), -1, ""},
		{"of its user", write(65534), 65534, "theirs"},
		{"of root", write(0), 65534, "theirs"},
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := test.make(); err != nil {
			t.Fatal(err)
		}
		p, s := newProcesses(), &space{pid: pid}
		s.owner.uid, s.owner.ok = test.uid, test.uid >= 0
		within(t, func() {
			if got, _ := p.written(s).find(0x1000); got.name != test.want {
				t.Errorf("%s: %q, want %q", test.name, got.name, test.want)
			}
		})
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	within(t, func() {
		p := newProcesses()
		if got, _ := p.written(&space{pid: pid}).find(0x1000); got.name != "theirs" || len(p.Unread()) != 1 {
			t.Errorf("a large map: %q, %q", got.name, p.Unread())
		}
	})
}

// Functions beyond the limit are left out, as are lines that no name is as long as.
func TestLargePerfMap(t *testing.T) {
	var b bytes.Buffer
	for range maxPerfFunctions + 10 {
		b.WriteString("1 1 a\n")
	}
	var large *tooLarge
	if m, err := readPerfMap(&b); len(m) != maxPerfFunctions || !errors.As(err, &large) {
		t.Errorf("%d functions, %v", len(m), err)
	}
	text := "1000 10 before\n2000 10 " + strings.Repeat("x", 3*maxName) + "\n3000 10 after\n"
	if m, err := readPerfMap(strings.NewReader(text)); len(m) != 2 || m[1].name != "after" || err != nil {
		t.Errorf("%d functions, %v", len(m), err)
	}
}

// While names are looked for the end of the context ends the wait for them.
func TestFramesEndWithContext(t *testing.T) {
	p := newProcesses()
	p.changes = &changes{wake: -1}
	p.mu.Lock() // as one does who reads from a file system that hangs
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	within(t, func() {
		if got := p.Frames(ctx, os.Getpid(), BootClock(), []uint64{0x1000}); len(got) != 1 || got[0].String() != "0x1000" {
			t.Errorf("%v", got)
		}
	})
	p.mu.Unlock()
}

// Of processes that have ended what nobody asks for is let go, and the files that they alone mapped; the rest stays.
func TestLetGo(t *testing.T) {
	p := newProcesses()
	p.inUse = func() (map[int]bool, error) { return map[int]bool{-3: true}, nil }
	add := func(pid int, name string, begins ...begin) *space {
		s := &space{pid: pid, begins: begins}
		p.spaces[pid] = s
		p.mappings(t, s, name)
		return s
	}
	parent := add(-1, "of the parent")
	add(-2, "of the living", begin{1, parent})
	execed := add(-5, "before the exec")
	add(-6, "of what called exec", begin{1, execed}, begin{2, nil})
	for pid, name := range map[int]string{-1: "", -3: "of the stack", -4: "of nobody", -5: ""} {
		s := p.spaces[pid]
		if s == nil {
			s = add(pid, name)
		}
		p.end(s)
	}
	p.letGo()
	var kept []string
	for id := range p.files {
		kept = append(kept, id.path)
	}
	slices.Sort(kept)
	if want := []string{"of the living", "of the parent", "of the stack", "of what called exec"}; !slices.Equal(kept, want) {
		t.Errorf("kept %q, want %q", kept, want)
	}
	if len(p.spaces) != 4 || p.ended.Len() != 2 || p.recent.Len() != 4 {
		t.Errorf("%d processes, %d ended, %d files", len(p.spaces), p.ended.Len(), p.recent.Len())
	}
	bytes := 0
	for _, s := range p.spaces {
		for _, m := range s.mappings {
			bytes += m.bytes()
		}
	}
	if bytes != p.mapped {
		t.Errorf("%d bytes of mappings, counted %d", bytes, p.mapped)
	}
}

// mappings gives a process one of a file that is open.
func (p *Processes) mappings(t *testing.T, s *space, name string) {
	m := mapping{start: 0x1000, end: 0x2000, file: file{1, 1, uint64(len(p.files) + 1)}, name: name}
	of := &openFile{id: m.key(), closer: &os.File{}}
	p.files[of.id], of.used = of, p.recent.PushBack(of)
	p.add(s, m)
}

// Memory for processes is bounded, whatever they do.
func TestBounds(t *testing.T) {
	p := newProcesses()
	s := p.space(-1)
	for i := range 3 * maxMapped {
		p.add(s, mapping{start: uint64(i), end: uint64(i + 1), name: strings.Repeat("x", 1000)})
		s.begin(begin{time: uint64(i)})
	}
	if len(s.mappings) > maxMapped || len(s.begins) > maxBegins {
		t.Errorf("%d mappings, %d begins", len(s.mappings), len(s.begins))
	}
	for pid := range 100 {
		for i := range 2000 {
			p.add(p.space(-pid-2), mapping{start: uint64(i), end: uint64(i + 1), name: strings.Repeat("x", 4000)})
		}
	}
	if p.mapped > maxMappedBytes+100*2*fewMapped*4200 {
		t.Errorf("%d bytes of mappings", p.mapped)
	}
}
