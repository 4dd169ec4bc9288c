//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trace/probes/filetest"
	"trace/probes/proc"
)

// allocator is memory that no test uses: so large that pages of it are never there by chance.
func allocator(t *testing.T, size int) []byte {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil {
		t.Log(err) // then a page is a huge one
	}
	return memory
}

func addressIn(memory []byte, at int) uint64 { return uint64(uintptr(unsafe.Pointer(&memory[at]))) }

// Of memory that a program never touched nothing is read, and it stays untouched: 4 GiB cost their share of the list of pages.
func TestScanReadsWhatIsThere(t *testing.T) {
	const size, at = 4 << 30, 3 << 30
	memory := allocator(t, size)
	copy(memory[at-100:], "needle across the edge of a page")
	f := newFinder(nil)
	self := targetOf(t, f, os.Getpid())
	self.regions = slices.DeleteFunc(self.regions, func(r proc.Mapping) bool { return r.End <= addressIn(memory, 0) || r.Start > addressIn(memory, size-1) })
	before, seen, found := f.Read(), 0, false
	err := self.scan(64, func(address uint64, piece []byte) bool {
		seen += len(piece)
		if i := int64(addressIn(memory, at-100)) - int64(address); i >= 0 && i+64 < int64(len(piece)) {
			found = string(piece[i:i+6]) == "needle"
		}
		return false
	})
	pages := size / os.Getpagesize() * pageEntry
	if err != nil || !found || seen > 64<<10 {
		t.Errorf("%v; found: %v; %d bytes of memory were read", err, found, seen)
	}
	if read := f.Read() - before; read > int64(pages+seen+1<<20) || read < int64(seen) {
		t.Errorf("%d bytes were read, want about %d", read, pages+seen)
	}
}

// withUserfault makes pages of memory wait for a program that never answers: userfaultfd(2), ioctl_userfaultfd(2).
func withUserfault(t *testing.T, memory []byte) {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		t.Skipf("userfaultfd: %v", errno)
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
	const api, register = 0xc018aa3f, 0xc020aa00
	hello := [3]uint64{0xAA, 0, 0}
	missing := [4]uint64{addressIn(memory, 0), uint64(len(memory)), 1, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, api, uintptr(unsafe.Pointer(&hello))); errno != 0 {
		t.Skipf("userfaultfd: %v", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, register, uintptr(unsafe.Pointer(&missing))); errno != 0 {
		t.Skipf("userfaultfd: %v", errno)
	}
}

// Memory that never answers is not read; and where the kernel does not tell which memory that is, a read is given up, and the process is left.
func TestUserfault(t *testing.T) {
	memory := allocator(t, 64<<20)
	withUserfault(t, memory)
	f := newFinder(nil)
	self := targetOf(t, f, os.Getpid())
	buf := make([]byte, 4096)
	began := time.Now()
	if n, err := self.read(addressIn(memory, 4096), buf); n != 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := self.scan(contextSize(), func(uint64, []byte) bool { return false }); err != nil {
		t.Errorf("the search: %v", err)
	}
	if self.pages.file == nil {
		t.Error("the kernel has no list of pages")
	}
	self.pages = &pages{size: self.pages.size}
	_, err := self.read(addressIn(memory, 4096), buf)
	if r := (*refusal)(nil); !errors.As(err, &r) || r.reason != silent {
		t.Errorf("without the list of pages: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("that took %v", took)
	}
}

// A process that puts a page of a file that never answers in the place of pages that are there is left, and we end: what waits for it is a helper, which is
// named. Nobody else waits.
func TestFlip(t *testing.T) {
	served := filetest.Serve(t, 1000)
	m := filetest.Map(t, filepath.Join(served.Folder, "file"), true)
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	hostile := targetOf(t, f, m.PID)
	hostile.payer = 1000
	buf := make([]byte, m.End-m.Start)
	var r *refusal
	for end := time.Now().Add(30 * time.Second); r == nil; {
		if _, err := hostile.read(m.Start, buf); err != nil && !errors.As(err, &r) && !errors.Is(err, unix.EFAULT) {
			t.Fatal(err)
		}
		if hostile.pages.last = nil; time.Now().After(end) {
			t.Skip("no page was taken away while it was read")
		}
	}
	if r.reason != silent {
		t.Errorf("it is refused: %v", r)
	}
	self := targetOf(t, f, os.Getpid())
	if n, err := self.read(addressIn(buf, 0), make([]byte, 8)); n != 8 || err != nil {
		t.Errorf("another process: %d bytes, %v", n, err)
	}
	began := time.Now()
	if err := f.Close(); err != nil || time.Since(began) > time.Second {
		t.Errorf("it ends after %v, %v", time.Since(began), err)
	}
	if want := fmt.Sprintf("what it reads of process %d is in a file of FUSE", m.PID); len(notes) != 1 || !strings.Contains(notes[0], want) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
}

// A file that never answers is not opened, whatever the mapping was when it was read.
func TestBeginServed(t *testing.T) {
	served := filetest.Serve(t, 1000)
	m := filetest.Map(t, filepath.Join(served.Folder, "file"), false)
	began := time.Now()
	for _, device := range []uint32{0, 8} { // 8:0 is a disk's
		if _, err := begin(m.PID, proc.Mapping{Start: m.Start, End: m.End, Major: device}); err == nil {
			t.Errorf("device %d: it is opened", device)
		}
	}
	_, err := begin(m.PID, proc.Mapping{Start: m.Start, End: m.End, Major: 8})
	if !errors.Is(err, proc.ErrServed) || time.Since(began) > time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
