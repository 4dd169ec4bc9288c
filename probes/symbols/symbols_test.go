package symbols

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const kallsyms = `ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000100 t helper.isra.0
ffffffff81000200 D jiffies
ffffffff81000300 T bpf_trace_run1
ffffffff81000380 T bpf_trace_run2
ffffffff81000400 T bpf_trace_runner
ffffffff81000500 T _etext
ffffffffc0000000 t nvme_poll	[nvme]
ffffffffc0000080 t nvme_queue_rq	[nvme]
ffffffffc0100000 t other	[other]
ffffffffc0100040 t nvme_poll	[other]
ffffffffc0200000 t bpf_prog_6deef7357e7b4530	[bpf]
`

func testKernel(t *testing.T, text string) *Kernel {
	t.Helper()
	k := &Kernel{open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	if err := k.reload(); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKernelFrames(t *testing.T) {
	k := testKernel(t, kallsyms)
	for address, want := range map[uint64]string{
		0xffffffff81000000: "_stext+0",
		0xffffffff81000123: "helper.isra.0+35",
		0xffffffff81000250: "helper.isra.0+336", // data is no function
		0xffffffffc0000010: "nvme_poll+16 [nvme]",
		0xffffffffc0000090: "nvme_queue_rq+16 [nvme]",
		0xffffffffc0001000: "0xffffffffc0001000", // behind the last page that is known to be of the module
		0xffffffffc0100010: "other+16 [other]",
		0xffffffffc0200010: "bpf_prog_6deef7357e7b4530+16 [bpf]",
		0xffffffffc0300000: "0xffffffffc0300000",
		0xffffffff80000000: "0xffffffff80000000",
		0:                  "0x0",
	} {
		if got := k.Frames([]uint64{address})[0].String(); got != want {
			t.Errorf("%#x: %s, want %s", address, got, want)
		}
	}
}

func TestKernelRange(t *testing.T) {
	k := testKernel(t, kallsyms)
	for name, want := range map[string][2]uint64{
		"bpf_trace_run*": {0xffffffff81000300, 0x100},
		"nvme_poll":      {0xffffffffc0000000, 0x80},
		"nobody":         {0, 0},
	} {
		if from, size := k.Range(name); from != want[0] || size != want[1] {
			t.Errorf("%s: %#x %#x", name, from, size)
		}
	}
}

// A module that came later is found when the table has become old.
func TestKernelReload(t *testing.T) {
	k := testKernel(t, kallsyms)
	k.open = func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(kallsyms + "ffffffffd0000000 t late\t[late]\n")), nil
	}
	at := []uint64{0xffffffffd0000004}
	if got := k.Frames(at)[0].String(); got != "0xffffffffd0000004" {
		t.Error(got)
	}
	k.read = k.read.Add(-2 * reloadAfter)
	if got := k.Frames(at)[0].String(); got != "late+4 [late]" {
		t.Error(got)
	}
}

func TestKernelHidden(t *testing.T) {
	k := &Kernel{open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("0000000000000000 T _stext\n0000000000000000 T do_exit\n")), nil
	}}
	if err := k.reload(); !errors.Is(err, ErrHidden) {
		t.Error(err)
	}
}

// The error names the setting that hides addresses, and the way to see them.
func TestHiddenBy(t *testing.T) {
	const hides = "/proc/kallsyms hides the addresses of the kernel's functions"
	for restrict, want := range map[string]string{
		"2": hides + ", because kernel.kptr_restrict is 2: sysctl kernel.kptr_restrict=1 shows them to root",
		"1": hides + ", because kernel.kptr_restrict is 1: run as root, or grant CAP_SYSLOG",
		"0": hides + ": run as root, or grant CAP_SYSLOG",
		"":  hides + ": run as root, or grant CAP_SYSLOG",
	} {
		if err := hiddenBy(restrict); !errors.Is(err, ErrHidden) || err.Error() != want {
			t.Errorf("%q: %v, want %s", restrict, err, want)
		}
	}
}

// The kernel that runs the tests has a function that each has; where it shows no addresses, it explains why.
func TestOpenKernel(t *testing.T) {
	k, err := OpenKernel()
	if err != nil {
		if !errors.Is(err, ErrHidden) || CheckKernel() == nil {
			t.Error(err)
		}
		t.Skip(err)
	}
	if err := CheckKernel(); err != nil {
		t.Error(err)
	}
	from, size := k.Range("bpf_trace_run*")
	if size == 0 {
		t.Fatal("no bpf_trace_run1")
	}
	if got := k.Frames([]uint64{from + 5})[0].String(); got != "bpf_trace_run1+5" {
		t.Error(got)
	}
}

// The addresses come from nm's output for the fixtures.
const (
	tinyTwice  = 0x40010c
	tinyCaller = 0x40014d
	tinyBegin  = 0x400177
)

func TestImage(t *testing.T) {
	type place struct {
		address  uint64
		returned bool
	}
	twice, inCaller, begin := place{tinyTwice + 52, false}, place{tinyCaller + 28, true}, place{tinyBegin + 39, true}
	for file, want := range map[string]map[place]string{
		"tiny": {
			twice: "tiny::Thing::twice(int)+52 tiny.cc:5", inCaller: "caller+28 tiny.cc:24", begin: "begin+39 tiny.cc:34",
		},
		"tiny.minidebug": {twice: "tiny::Thing::twice(int)+52", inCaller: "caller+28", begin: "begin+39"},
		"tiny.linked": {
			twice: "tiny::Thing::twice(int)+52 tiny.cc:5", inCaller: "caller+28 tiny.cc:24", begin: "begin+39 tiny.cc:34",
		},
		"tiny.stripped": {twice: "0x400140", inCaller: "0x400169"},
	} {
		t.Run(file, func(t *testing.T) {
			im := openImage(t, file, "/", ".")
			for p, want := range want {
				f := Frame{Address: p.address}
				if err := im.frame(&f, p.address, p.returned); err != nil {
					t.Error(err)
				}
				if got := f.String(); got != want {
					t.Errorf("%#x: %s, want %s", p.address, got, want)
				}
			}
			if a, ok := im.address(0x10c); !ok || a != tinyTwice {
				t.Errorf("offset 0x10c is at %#x, %v", a, ok)
			}
			if _, ok := im.address(1 << 40); ok {
				t.Error("an offset beyond the end of the file has an address")
			}
		})
	}
}

func openImage(t *testing.T, name string, roots ...string) *image {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	im, _, _, err := imageOf(f, path, roots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range append(im.closers, f) {
			c.Close()
		}
	})
	return im
}

// A debug file is found by the build id, and only if it matches.
func TestDebugFileByBuildID(t *testing.T) {
	root := t.TempDir()
	im := openImage(t, "tiny.stripped", root)
	if len(im.symbols.all) != 0 {
		t.Fatalf("a stripped file has symbols: %v", im.symbols)
	}
	id, err := exec.Command("sh", "-c", "readelf -n testdata/tiny | sed -n 's/.*Build ID: //p'").Output()
	text := strings.TrimSpace(string(id))
	if err != nil || len(text) < 8 {
		t.Skip("needs readelf, of binutils")
	}
	path := filepath.Join(root, "usr/lib/debug/.build-id", text[:2], text[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "testdata/tiny.debug", path)
	if im = openImage(t, "tiny.stripped", root); len(im.symbols.all) != 4 || im.lines == nil {
		t.Errorf("symbols %v, lines %v", im.symbols, im.lines != nil)
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, own, path)
	if im = openImage(t, "tiny.stripped", root); len(im.symbols.all) != 0 {
		t.Errorf("the debug file of another program was used: %d symbols", len(im.symbols.all))
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o777); err != nil {
		t.Fatal(err)
	}
}

func TestTable(t *testing.T) {
	names, all := "\x00", []symbol{}
	for _, f := range []struct {
		start uint64
		size  uint32
		name  string
	}{{30, 10, "c"}, {10, 5, "__a"}, {10, 5, "a"}, {20, 0, "b"}, {100, 50, "outer"}, {110, 2, "inner"}, {100, 0, "$x"}, {120, 0, "$d"}} {
		all = append(all, symbol{f.start, uint32(len(names)), f.size})
		names += f.name + "\x00"
	}
	symbols := table{all: all, names: []*io.SectionReader{io.NewSectionReader(strings.NewReader(names), 0, int64(len(names)))}}
	symbols.sort(testCost())
	for address, want := range map[uint64]string{
		9: "", 10: "a", 14: "a", 15: "", 20: "b", 29: "b", 30: "c", 40: "", 105: "outer", 111: "inner", 112: "outer", 125: "outer", 150: "",
	} {
		if _, got, ok, err := symbols.find(address); ok != (want != "") || got != want || err != nil {
			t.Errorf("%d: %q, want %q, %v", address, got, want, err)
		}
	}
}

func TestReadable(t *testing.T) {
	for name, want := range map[string]string{
		"_ZN4tiny5Thing5twiceEi":                           "tiny::Thing::twice(int)",
		"_ZN4core3fmt5Write9write_fmt17h1b2c3d4e5f607182E": "core::fmt::Write::write_fmt",
		"_RNvCs1234_7mycrate4main":                         "mycrate::main",
		"memcpy@@GLIBC_2.14":                               "memcpy",
		"main":                                             "main",
		"runtime.(*mcache).nextFree":                       "runtime.(*mcache).nextFree",
	} {
		if got := readable(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestMappingsWithCode(t *testing.T) {
	got, err := readCode(strings.NewReader("1000-2000 rw-p 00000000 00:00 0 \n7f1e2a000000-7f1e2a022000 r-xp 00026000 fe:01 1234 /usr/lib/x y (deleted)\n"), 7)
	want := []mapping{{start: 0x7f1e2a000000, end: 0x7f1e2a022000, offset: 0x26000, file: file{0xfe, 1, 1234}, name: "/usr/lib/x y (deleted)", since: 7, there: true}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPerfMap(t *testing.T) {
	m, err := readPerfMap(strings.NewReader("1000 100 old\n2000 10 LazyCompile:~f /a b.js:1\n1000 80 new\n\nnonsense\n3000 0 empty\n0x4000 0x10 hex\n"), testCost())
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[uint64]string{
		0x1000: "new", 0x107f: "new", 0x1080: "old", 0x1100: "", 0x2005: "LazyCompile:~f /a b.js:1", 0x3000: "", 0x400f: "hex",
	} {
		if _, got, ok := m.find(address); got != want || ok != (want != "") {
			t.Errorf("%#x: %q, want %q", address, got, want)
		}
	}
}

// What a process maps depends on the moment: it is forked, maps, calls exec, and its number may be another's later.
func TestMapped(t *testing.T) {
	at := func(name string, since uint64, there bool) mapping {
		return mapping{start: 0x1000, end: 0x2000, name: name, since: since, there: there}
	}
	parent := &space{mappings: []mapping{at("shell", 5, true)}}
	s := &space{
		mappings: []mapping{at("fork's own", 120, false), at("exec's", 205, false), at("dlopen", 210, false), at("seen late", 500, true)},
		begins:   []begin{{100, parent}, {200, nil}, {400, nil}},
	}
	for _, test := range []struct {
		when uint64
		want string
	}{
		{110, "shell"}, {130, "fork's own"}, {202, ""}, {206, "exec's"}, {300, "dlopen"}, {450, "seen late"}, {600, "seen late"}, {50, ""},
	} {
		if m, ok := s.mapped(0x1800, test.when); m.name != test.want || ok != (test.want != "") {
			t.Errorf("at %d: %q, want %q", test.when, m.name, test.want)
		}
	}
	if _, ok := s.mapped(0x3000, 300); ok {
		t.Error("nothing is mapped there")
	}
}

func TestParseChange(t *testing.T) {
	le := binary.NativeEndian
	u32 := func(b []byte, x ...uint32) []byte {
		for _, v := range x {
			b = le.AppendUint32(b, v)
		}
		return b
	}
	u64 := func(b []byte, x ...uint64) []byte {
		for _, v := range x {
			b = le.AppendUint64(b, v)
		}
		return b
	}
	mmap := u64(u32(nil, 7, 8), 0x1000, 0x200, 0x3000)
	mmap = u64(u32(mmap, 254, 1), 99, 0)
	mmap = append(u32(mmap, 5, 2), "/usr/bin/x\x00\x00\x00\x00\x00\x00"...)
	c, err := parseChange(recordMmap2, 0, u64(mmap, 1234))
	want := change{kind: recordMmap2, pid: 7, tid: 8, time: 1234, mapping: mapping{
		start: 0x1000, end: 0x1200, offset: 0x3000, file: file{254, 1, 99}, name: "/usr/bin/x", since: 1234}}
	if err != nil || c != want {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := parseChange(recordComm, 1<<13, u64(append(u32(nil, 7, 7), "sh\x00\x00\x00\x00\x00\x00"...), 5)); err != nil || !c.exec || c.pid != 7 || c.time != 5 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := parseChange(recordLost, 0, u64(nil, 1, 44, 5)); err != nil || c.lost != 44 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, kind := range []uint32{recordLost, recordFork, recordMmap2} {
		if _, err := parseChange(kind, 0, make([]byte, 8)); err == nil {
			t.Errorf("a record %d of 8 bytes is taken", kind)
		}
	}
}

// A child's functions have their names, after its end as well, and after its file is gone.
func TestProcesses(t *testing.T) {
	p, err := NewNames(1).Processes(func() (map[int]bool, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Unwatched(); err != nil {
		t.Skipf("needs CAP_PERFMON, to see what a process that ends maps: %v", err)
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the fixtures are for amd64")
	}
	path := filepath.Join(t.TempDir(), "tiny")
	copyFile(t, "testdata/tiny", path)
	cmd := exec.Command(path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var exited *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exited) || exited.ExitCode() != 41 {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		p.mu.Lock()
		p.drain()
		open := false
		for _, of := range p.files {
			open = open || of.path == path
		}
		p.mu.Unlock()
		if open {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the file was not opened")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	got, _ := p.Frames(t.Context(), cmd.Process.Pid, BootClock(), []uint64{tinyTwice + 52, tinyCaller + 28, tinyBegin + 39, 0x7000})
	want := []string{"tiny::Thing::twice(int)+52 tiny.cc:5", "caller+28 tiny.cc:24", "begin+39 tiny.cc:34", "0x7000"}
	for i := range want {
		if got[i].String() != want[i] {
			t.Errorf("%v, want %v", got[i], want[i])
		}
	}
}

// What a process maps is not read again for each number that is no address of it, as samples of code without frame pointers hold.
func TestReadAgain(t *testing.T) {
	p := testProcesses(t)
	p.running.Go(p.work)
	pid := os.Getpid()
	p.Frames(t.Context(), pid, BootClock(), []uint64{1, 2})
	s := p.spaces[pid]
	first := s.read
	p.Frames(t.Context(), pid, BootClock(), []uint64{1, 2})
	if s.read != first {
		t.Error("it was read again at once")
	}
	s.read -= readAgain
	p.Frames(t.Context(), pid, BootClock(), []uint64{1})
	again := s.read
	p.Frames(t.Context(), pid, BootClock(), []uint64{2})
	if again < first || s.read != again {
		t.Errorf("a second later it was read at %d and at %d, want once more than at %d", again, s.read, first)
	}
}

// Our own functions have their file, and the vdso's have names.
func TestOwnFrames(t *testing.T) {
	p, err := NewNames(1).Processes(func() (map[int]bool, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	pc, _, _, _ := runtime.Caller(0)
	all, _ := p.Frames(t.Context(), os.Getpid(), BootClock(), []uint64{uint64(pc)})
	f := all[0]
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// go test strips what it runs.
	if f.Function != "trace/probes/symbols.TestOwnFrames" && (f.Function != "" || f.Module != filepath.Base(own)) {
		t.Errorf("%+v", f)
	}
	vdso := testProcesses(t)
	if im := vdso.vdso(uint64(len(ownVDSO()))); im == nil || len(im.symbols.all) == 0 {
		t.Error("the vdso has no symbols")
	}
}

// Code that no file is behind has the names that its compiler has written down.
func TestWrittenFrames(t *testing.T) {
	p, err := NewNames(1).Processes(func() (map[int]bool, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	code, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(code)
	at := uint64(uintptr(unsafe.Pointer(&code[0])))
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	if err := os.WriteFile(path, fmt.Appendf(nil, "%x 40 compiled\n", at+16), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	got, _ := p.Frames(t.Context(), os.Getpid(), BootClock(), []uint64{at + 20, at + 8})
	if got[0].String() != "compiled+4" || got[1].String() != fmt.Sprintf("%#x", at+8) {
		t.Errorf("%v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(kallsyms))
	f.Add([]byte("1000 20 name\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if all, err := readFunctions(bytes.NewReader(data)); err == nil {
			k := &Kernel{functions: all, read: time.Now()}
			for _, fn := range all {
				if got, ok := k.find(fn.start); ok && got.start != fn.start {
					t.Fatalf("%+v is not found at its beginning, but %+v", fn, got)
				}
			}
			k.Range("a*")
		}
		c := testCost()
		if m, err := readPerfMap(bytes.NewReader(data), c); err == nil {
			for _, f := range m.functions {
				if start, _, ok := m.find(f.start); ok && start > f.start {
					t.Fatalf("the function at %#x is not at %#x", start, f.start)
				}
			}
		}
		for _, kind := range []uint32{recordLost, recordComm, recordExit, recordFork, recordMmap2, 77} {
			_, _ = parseChange(kind, 0, data)
		}
		if im, _, _, err := imageOf(bytes.NewReader(data), "/x", nil); err == nil {
			_ = im.frame(&Frame{}, 1, true)
		}
	})
}

// The ring hands on what goes over its end.
func TestRing(t *testing.T) {
	r := &ring{page: &unix.PerfEventMmapPage{}, data: make([]byte, 64)}
	le := binary.NativeEndian
	write := func(kind uint32, body string) {
		record := le.AppendUint16(le.AppendUint16(le.AppendUint32(nil, kind), 3), uint16(8+len(body)))
		for i, b := range append(record, body...) {
			r.data[(r.page.Data_head+uint64(i))%64] = b
		}
		r.page.Data_head += uint64(8 + len(body))
	}
	for i := range 10 {
		body := strings.Repeat(string(rune('a'+i)), 16)
		write(uint32(i), body)
		n := 0
		r.read(func(kind uint32, misc uint16, got []byte) {
			if n++; kind != uint32(i) || misc != 3 || string(got) != body {
				t.Errorf("%d: %d %d %q", i, kind, misc, got)
			}
		})
		if n != 1 || r.page.Data_tail != r.page.Data_head {
			t.Errorf("%d records, tail %d, head %d", n, r.page.Data_tail, r.page.Data_head)
		}
	}
}
