package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trace/probes/filetest"
)

// What a helper reads is what is there, up to the first page that is not.
func TestReadMemory(t *testing.T) {
	const size = 3 << 20
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	for i := range memory {
		memory[i] = byte(i >> 3)
	}
	at := uint64(uintptr(unsafe.Pointer(&memory[0])))
	if err := unix.Mprotect(memory[size-4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	var q Questions
	t.Cleanup(q.End)
	buf := make([]byte, 2*MostMemory)
	for _, test := range []struct{ from, size, want int }{
		{0, 64 << 10, 64 << 10}, {7, 2 * MostMemory, MostMemory}, {size - 8192, 8192, 4096}, {0, 0, 0},
	} {
		n, err := q.ReadMemory(0, os.Getpid(), at+uint64(test.from), buf[:test.size])
		if n != test.want || err != nil || !slices.Equal(buf[:n], memory[test.from:][:n]) {
			t.Errorf("%+v: %d bytes, %v", test, n, err)
		}
	}
	if n, err := q.ReadMemory(0, os.Getpid(), at+size-4096, buf); n != 0 || !errors.Is(err, unix.EFAULT) || err.Error() != "bad address" {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := q.ReadMemory(0, 1<<30, at, buf); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a process that is not there: %v", err)
	}
	if len(q.helpers.idle) != 1 {
		t.Errorf("%d helpers", len(q.helpers.idle))
	}
}

// A helper has nothing of ours, and another one is started if somebody kills it.
func TestHelperHasNothing(t *testing.T) {
	var inherited [2]int
	if err := unix.Pipe(inherited[:]); err != nil { // as a shell leaves one open
		t.Fatal(err)
	}
	defer unix.Close(inherited[0])
	defer unix.Close(inherited[1])
	var q Questions
	t.Cleanup(q.End)
	one := make([]byte, 1)
	at := uint64(uintptr(unsafe.Pointer(&one[0])))
	if n, err := q.ReadMemory(0, os.Getpid(), at, one); n != 1 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	h := q.helpers.idle[0]
	of := fmt.Sprintf("/proc/%d/", h.cmd.Process.Pid)
	files, err := os.ReadDir(of + "fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, f := range files {
		to, err := os.Readlink(of + "fd/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if to, _, _ = strings.Cut(to, ":"); to != "anon_inode" {
			open = append(open, to)
		}
	}
	if want := []string{"/dev/null", "/dev/null", "/dev/null", "socket", "/memfd"}; !slices.Equal(open, want) {
		t.Errorf("it has %q open, want %q", open, want)
	}
	if folder, err := os.Readlink(of + "cwd"); err != nil || folder != "/" {
		t.Errorf("it is in %s, %v", folder, err)
	}
	if session, err := unix.Getsid(h.cmd.Process.Pid); err != nil || session != h.cmd.Process.Pid {
		t.Errorf("it is in session %d, %v", session, err)
	}
	h.cmd.Process.Kill()
	h.cmd.Wait()
	if n, err := q.ReadMemory(0, os.Getpid(), at, one); n != 1 || err != nil || q.helpers.idle[0] == h {
		t.Errorf("after it was killed: %d bytes, %v", n, err)
	}
	q.dismiss(q.helpers.idle[0])
	if len(q.helpers.idle) > 0 {
		t.Error("it is not dismissed")
	}
	if n, err := q.ReadMemory(0, os.Getpid(), at, one); n != 1 || err != nil {
		t.Errorf("after it was dismissed: %d bytes, %v", n, err)
	}
	h = q.helpers.idle[0]
	if q.End(); h.cmd.Process.Signal(unix.Signal(0)) == nil {
		for end := time.Now().Add(10 * time.Second); h.cmd.Process.Signal(unix.Signal(0)) == nil; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not end with the questions")
			}
		}
	}
}

// What is in the way of a helper is reported, and nothing is read instead.
func TestNoHelper(t *testing.T) {
	var q Questions
	t.Cleanup(q.End)
	one := make([]byte, 1)
	at := uint64(uintptr(unsafe.Pointer(&one[0])))
	read := func() error { _, err := q.ReadMemory(0, os.Getpid(), at, one); return err }
	if err := filetest.With(t, 1, read); err == nil || err.Error() != "start a process that reads: socketpair: too many open files" {
		t.Error(err)
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	h := q.helpers.idle[0]
	h.cmd.Process.Signal(unix.SIGSTOP) // it gets the request, and no longer answers
	time.AfterFunc(Patience/2, func() { h.cmd.Process.Kill() })
	if err := read(); err == nil || !strings.HasPrefix(err.Error(), "ask a process that reads: ") {
		t.Error(err)
	}
}

// readerVariable makes this test a process that reads memory that never answers: by a helper, or itself.
const readerVariable = "TRACE_TEST_READS"

// TestReads is that process.
func TestReads(t *testing.T) {
	var how string
	var pid int
	var at uint64
	if _, err := fmt.Sscan(os.Getenv(readerVariable), &how, &pid, &at); err != nil {
		t.Skip("it is started by TestProcessEnds")
	}
	buf := make([]byte, 4096)
	if how == "itself" {
		fmt.Println("reads")
		unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[0], Len: 4096}}, []unix.RemoteIovec{{Base: uintptr(at), Len: 4096}}, 0)
		return
	}
	var q Questions
	_, err := q.ReadMemory(1000, pid, at, buf)
	fmt.Println("reads", err)
	fmt.Scanln()
	fmt.Println(q.Holders())
}

// A process ends while memory of another one that it reads never answers, if a helper reads it. Without one not even SIGKILL ends it.
func TestProcessEnds(t *testing.T) {
	for _, how := range []string{"itself", "helper"} {
		t.Run(how, func(t *testing.T) {
			served := filetest.Serve(t, 1000)
			m := filetest.Map(t, filepath.Join(served.Folder, "file"), false)
			reader := exec.Command("/proc/self/exe", "-test.run=^TestReads$")
			reader.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", fmt.Sprintf("%s=%s %d %d", readerVariable, how, m.PID, m.Start))
			var out strings.Builder
			reader.Stdout = &out
			in, err := reader.StdinPipe()
			if err := errors.Join(err, reader.Start()); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- reader.Wait() }()
			time.Sleep(time.Second)
			in.Close()
			if how == "itself" {
				reader.Process.Kill()
			}
			select {
			case err := <-ended:
				if how == "itself" {
					t.Fatalf("it ends, so this test shows nothing: %v, %s", err, out.String())
				}
				if want := fmt.Sprintf("what it reads of process %d is in a file of FUSE", m.PID); err != nil || !strings.Contains(out.String(), want) {
					t.Errorf("%v, it writes %q, want %q", err, out.String(), want)
				}
			case <-time.After(time.Second):
				served.Stop()
				if <-ended; how == "helper" {
					t.Errorf("it does not end within a second: %s", out.String())
				}
			}
		})
	}
}

// Nothing of a file system that never answers gets to us, whichever way leads there. What waits for it is named, and ends with it.
func TestServedFiles(t *testing.T) {
	served := filetest.Serve(t, 1000)
	m := filetest.Map(t, filepath.Join(served.Folder, "file"), false)
	var q Questions
	t.Cleanup(q.End)
	mapping := Mapping{Start: m.Start, End: m.End}
	var null unix.Stat_t
	if err := unix.Stat("/dev/null", &null); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(served.Folder, filetest.Silent), link); err != nil {
		t.Fatal(err)
	}
	root := fmt.Sprintf("/proc/%d/root", m.PID)
	for _, test := range []struct {
		name string
		open func() (*os.File, error)
		want error
	}{
		{"mapped", func() (*os.File, error) { return q.OpenMapped(1000, m.PID, mapping) }, ErrServed},
		{"a path", func() (*os.File, error) { return q.OpenBelow(1000, 0, "/", served.Folder+"/file", true) }, ErrServed},
		{"a path of the process", func() (*os.File, error) { return q.OpenBelow(1000, m.PID, root, served.Folder+"/file", false) }, ErrServed},
		{"a folder", func() (*os.File, error) { return q.OpenBelow(1000, 0, "/", served.Folder+"/silent/file", true) }, ErrNoAnswer},
		{"a link", func() (*os.File, error) { return q.OpenBelow(1001, 0, "/", link, true) }, ErrNoAnswer},
		{"no device", func() (*os.File, error) { return q.Device(1000, m.PID, m.FD, null.Rdev) }, ErrNoAnswer}, // it is closed
	} {
		began := time.Now()
		if f, err := test.open(); f != nil || !errors.Is(err, test.want) || err.Error() != test.want.Error() {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s takes %v", test.name, took)
		}
	}
	holders := q.Holders()
	users := map[uint32]int{}
	for _, h := range holders {
		users[h.User]++
	}
	if users[1000] != 2 || users[1001] != 1 {
		t.Errorf("%v are left behind", holders)
	}
	served.Stop()
	for end := time.Now().Add(10 * time.Second); len(q.Holders()) > 0; {
		if time.Now().After(end) {
			t.Fatalf("%v are left behind", q.Holders())
		}
	}
}

// Start and throughput of a helper, and of reads without one.
func BenchmarkReadMemory(b *testing.B) {
	memory, err := unix.Mmap(-1, 0, 1<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(memory)
	at := uint64(uintptr(unsafe.Pointer(&memory[0])))
	buf := make([]byte, MostMemory)
	var q Questions
	defer q.End()
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			var q Questions
			if _, err := q.ReadMemory(0, os.Getpid(), at, buf[:8]); err != nil {
				b.Fatal(err)
			}
			q.End()
		}
	})
	for _, size := range []int{360, 4 << 10, 256 << 10, 1 << 20} {
		all := func(b *testing.B, read func(at uint64)) {
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				read(at + uint64(i*size%(1<<30-size)))
			}
		}
		b.Run(fmt.Sprintf("helper/%d", size), func(b *testing.B) {
			all(b, func(at uint64) { q.ReadMemory(0, os.Getpid(), at, buf[:size]) })
		})
		b.Run(fmt.Sprintf("direct/%d", size), func(b *testing.B) {
			all(b, func(at uint64) {
				unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &buf[0], Len: uint64(size)}}, []unix.RemoteIovec{{Base: uintptr(at), Len: size}}, 0)
			})
		})
	}
	if h := q.helpers.idle; len(h) > 0 {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", h[0].cmd.Process.Pid))
		b.Logf("%s", status)
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
	var q Questions
	t.Cleanup(q.End)
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
		f, err := q.OpenBelow(0, 0, test.root, test.path, test.follow)
		if (err == nil) != test.ok {
			t.Errorf("%s in %s, follow %v: %v", test.path, test.root, test.follow, err)
		}
		if err == nil {
			f.Close()
		}
	}
}
