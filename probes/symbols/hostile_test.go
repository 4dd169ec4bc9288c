//go:build linux

package symbols

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace/probes/filetest"
	"trace/probes/proc"
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

// Files of programs that may never answer are not read, and are named, whether they are mapped, or a folder of one is in the way. Nothing waits for them.
func TestServedFiles(t *testing.T) {
	served := filetest.Serve(t, 1000)
	path := filepath.Join(served.Folder, "file")
	m := filetest.Map(t, path, false)
	p := newProcesses(1, new(atomic.Int64))
	p.changes = &changes{wake: -1}
	link := filepath.Join(served.Folder, filetest.Silent, "tiny.debug")
	within(t, func() {
		all, err := codeOf(m.PID, 1)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(c mapping) bool { return c.start == m.Start })
		if i < 0 || all[i].name != path {
			t.Fatalf("%+v lack %s", all, path)
		}
		if of := p.open(m.PID, all[i]); of != nil {
			t.Errorf("%s is opened", of.path)
		}
		_, err = p.openBelow(1000, fmt.Sprintf("/proc/%d/root", m.PID), link, true)
		p.unopened(1000, link, err)
	})
	if want := []string{path + ": " + proc.ErrServed.Error(), link + ": " + proc.ErrNoAnswer.Error()}; !slices.Equal(p.Unread(), want) {
		t.Errorf("%q, want %q", p.Unread(), want)
	}
	began := time.Now()
	err := p.close()
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "symbols: process ") || took > time.Second {
		t.Errorf("it ends after %v: %v", took, err)
	}
}

// headerOf returns where the header of a section is in an ELF file of 64 bits.
func headerOf(t *testing.T, data []byte, name string) []byte {
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
	binary.LittleEndian.PutUint64(headerOf(t, data, name)[32:], size)
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
		{"tiny", ".debug_info", "takes more than 67108864 steps of work"},
		{"tiny.minidebug", ".gnu_debugdata", ".gnu_debugdata has 1073741824 bytes"},
		{"tiny.linked", ".gnu_debuglink", ".gnu_debuglink has 1073741824 bytes"},
	} {
		f := changed(t, test.fixture, test.section, gib, 3*gib)
		within(t, func() {
			bytes := allocated(func() {
				im, _, unread, err := imageOf(f, "/x", nil)
				if err != nil || (unread == nil) != (test.unread == "") || unread != nil && !strings.Contains(unread.Error(), test.unread) {
					t.Errorf("%s: %v, %v", test.section, unread, err)
				}
				if im != nil && im.cost.bytes > 4096 {
					t.Errorf("%s of a GiB: its tables take %d bytes", test.section, im.cost.bytes)
				}
			})
			if bytes > 32<<20 { // 9.5 MB for .debug_info, 16.8 MB with the race detector
				t.Errorf("%s of a GiB takes %d bytes", test.section, bytes)
			}
		})
	}
}

// A link to a debug file needs a name and a checksum.
func TestMalformedDebugLink(t *testing.T) {
	f, err := parseELF(changed(t, "tiny.linked", ".gnu_debuglink", 4, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := debugLink(f); err == nil || err.Error() != ".gnu_debuglink of 4 bytes is malformed" {
		t.Error(err)
	}
}

// A million symbols that share a long name do not copy it each, and no demangled name grows without bound.
func TestLongNames(t *testing.T) {
	for _, test := range []struct {
		text string
		at   int64
		want string
	}{
		{strings.Repeat("a", 2*maxName) + "\x00", 0, ""}, {"ab\x00cd", 1, "b"}, {"ab\x00cd", 3, ""}, {"", 7, ""},
		{strings.Repeat("b", 3000) + "\x00", 0, strings.Repeat("b", 3000)},
	} {
		if got, err := stringAt(strings.NewReader(test.text), test.at, maxName); got != test.want || err != nil {
			t.Errorf("at %d of %.10q: a name of %d bytes, %v", test.at, test.text, len(got), err)
		}
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
			im, _, unread, err := imageOf(f, "/tiny.linked", []string{root})
			if err != nil || len(im.symbols.all) > 0 || (unread != nil) != (name == "sparse ELF") {
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
		p, s := testProcesses(t), &space{pid: pid}
		s.owner.uid, s.owner.ok = test.uid, test.uid >= 0
		within(t, func() {
			if _, got, _ := p.written(s, s.user()).find(0x1000); got != test.want {
				t.Errorf("%s: %q, want %q", test.name, got, test.want)
			}
		})
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	within(t, func() {
		p := testProcesses(t)
		if _, got, _ := p.written(&space{pid: pid}, 0).find(0x1000); got != "theirs" || len(p.Unread()) != 1 {
			t.Errorf("a large map: %q, %q", got, p.Unread())
		}
	})
}

// Functions beyond the limit are left out, as are lines that no name is as long as.
func TestLargePerfMap(t *testing.T) {
	var b bytes.Buffer
	for range maxPerfFunctions + 10 {
		b.WriteString("1 1 a\n")
	}
	if m, err := readPerfMap(&b, testCost()); len(m.functions) != maxPerfFunctions || !isCostly(err) {
		t.Errorf("%d functions, %v", len(m.functions), err)
	}
	text := "1000 10 before\n2000 10 " + strings.Repeat("x", 3*maxName) + "\n3000 10 after\n"
	m, err := readPerfMap(strings.NewReader(text), testCost())
	if _, name, _ := m.find(0x3000); len(m.functions) != 2 || name != "after" || err != nil {
		t.Errorf("%d functions, %v", len(m.functions), err)
	}
	long := "1000 10 " + strings.Repeat("x", maxName-100) + "\n"
	c := testCost()
	if m, err := readPerfMap(strings.NewReader(strings.Repeat(long, 4000)), c); len(m.names) > maxPerfNames || !isCostly(err) || c.bytes > 2*maxPerfNames {
		t.Errorf("%d bytes of names, %d bytes, %v", len(m.names), c.bytes, err)
	}
}

// While names are looked for the end of the context ends the wait for them.
func TestFramesEndWithContext(t *testing.T) {
	p := testProcesses(t)
	hangs := make(chan struct{})
	p.turns.add(0, nil, func() { <-hangs }) // as reading from a file system may
	p.running.Go(p.work)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	within(t, func() {
		if got, ok := p.Frames(ctx, os.Getpid(), BootClock(), []uint64{0x1000}); ok || len(got) != 1 || got[0].String() != "0x1000" {
			t.Errorf("%v, %v", got, ok)
		}
	})
	close(hangs)
}

// Of processes that have ended what nobody asks for is let go, and the files that they alone mapped; the rest stays.
func TestLetGo(t *testing.T) {
	p := testProcesses(t)
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
		bytes += s.bytes
	}
	if bytes != p.mapped {
		t.Errorf("%d bytes of mappings, counted %d", bytes, p.mapped)
	}
}

// mappings gives a process one of a file that is open.
func (p *Processes) mappings(t *testing.T, s *space, name string) {
	m := mapping{start: 0x1000, end: 0x2000, file: file{1, 1, uint64(len(p.files) + 1)}, name: name}
	p.keep(&openFile{id: m.key(), closer: &os.File{}})
	p.add(s, m)
}

// Memory for processes is bounded, whatever they do. One user's processes take nothing from another user's.
func TestBounds(t *testing.T) {
	p := testProcesses(t)
	s := p.space(-1)
	for i := range 3 * maxMapped {
		p.add(s, mapping{start: uint64(i), end: uint64(i + 1), name: "x"})
		p.begin(s, begin{time: uint64(i)})
	}
	if len(s.mappings) > maxMapped || len(s.begins) > maxBegins {
		t.Errorf("%d mappings, %d begins", len(s.mappings), len(s.begins))
	}
	honest := p.of(1000, -2)
	for i := range 500 {
		p.add(honest, mapping{start: uint64(i), end: uint64(i + 1), name: "/usr/lib/libhonest.so"})
	}
	for pid := range 100 {
		s := p.of(1001, -pid-3)
		for i := range 2000 {
			p.add(s, mapping{start: uint64(i), end: uint64(i + 1), name: strings.Repeat("x", 4000)})
		}
	}
	if p.mapped > maxMappedBytes+100*2*fewMapped*4200 {
		t.Errorf("%d bytes of mappings", p.mapped)
	}
	for i := range 100 {
		p.add(honest, mapping{start: uint64(1000 + i), end: uint64(1001 + i), name: "/usr/lib/libhonest.so"})
	}
	if len(honest.mappings) != 600 {
		t.Errorf("%d of 600 mappings of another user's process are left", len(honest.mappings))
	}
}

// of returns a new process of a user.
func (p *Processes) of(user, pid int) *space {
	s := p.space(pid)
	s.owner.uid, s.owner.ok, s.payer = user, true, uint32(user)
	p.grow(s, 0)
	return s
}

// imageOf reads an image as a worker does.
func imageOf(r io.ReaderAt, name string, roots []string) (im *image, left parts, unread, err error) {
	in := &source{r: r, ask: &proc.Questions{}, cost: testCost()}
	return readImage(in, name, roots, func(root, path string) (debugFile, error) {
		var asked proc.Questions
		defer asked.End()
		return identified(asked.OpenBelow(0, 0, root, path, true))
	}, 0)
}

func testCost() *cost { return &cost{most: loadSteps, grow: func(int) {}, stopped: new(atomic.Bool)} }

// testProcesses returns processes that nobody watches, and whose worker does not run.
func testProcesses(t *testing.T) *Processes {
	p := newProcesses(1, new(atomic.Int64))
	p.changes = &changes{wake: -1}
	t.Cleanup(func() { p.close() })
	return p
}
