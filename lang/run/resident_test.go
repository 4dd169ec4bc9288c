//go:build linux

package run

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

func TestOwnMemory(t *testing.T) {
	for mapping, want := range map[string]bool{
		"c000000000-c000400000 rw-p 00000000 00:00 0":                      true,
		"c000400000-c004000000 ---p 00000000 00:00 0":                      false,
		"7ffc0a5e4000-7ffc0a606000 rw-p 00000000 00:00 0     [stack]":      false,
		"01843000-01885000 rw-p 01443000 fe:00 9987105     /usr/bin/trace": false,
	} {
		maps, err := proc.ReadMappings(strings.NewReader(mapping))
		if err != nil || ownMemory(maps[0]) != want {
			t.Errorf("%q: %v, %v", mapping, ownMemory(maps[0]), err)
		}
	}
}

func TestIsCode(t *testing.T) {
	for usage, want := range map[string]bool{
		"00400000-00bd8000 r-xp 00000000 fe:00 9987105 /usr/bin/trace\nAnonymous: 0 kB": true,
		"00400000-00bd8000 r-xp 00000000 fe:00 9987105 /usr/bin/trace\nAnonymous: 4 kB": false,
		"00bd9000-01453000 r--p 007d9000 fe:00 9987105 /usr/bin/trace\nAnonymous: 0 kB": false,
		"7ffd1a3f1000-7ffd1a3f3000 r-xp 00000000 00:00 0 [vdso]\nAnonymous: 0 kB":       false,
	} {
		usages, err := proc.ReadUsages(strings.NewReader(usage))
		if err != nil || isCode(usages[0]) != want {
			t.Errorf("%q: %v, %v", usage, isCode(usages[0]), err)
		}
	}
}

// Less of the code is mapped than before.
func TestCodeIsUnmapped(t *testing.T) {
	resident := func() (kB int) {
		status := proc.Status(os.Getpid())["RssFile"]
		if len(status) == 0 {
			t.Skip("this kernel does not have RssFile")
		}
		kB, _ = strconv.Atoi(status[0])
		return kB
	}
	usages, err := proc.Usages(os.Getpid())
	if err != nil {
		t.Skipf("this kernel does not have the file: %v", err)
	}
	size := 0
	for _, u := range usages {
		if !isCode(u) {
			continue
		}
		size += int(u.End-u.Start) >> 10
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(u.Start), uintptr(u.End-u.Start), unix.MADV_POPULATE_READ)
		if errno == unix.EINVAL {
			t.Skip("this kernel has no MADV_POPULATE_READ (before 5.14)")
		}
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	before := resident()
	if size == 0 || before < size {
		t.Fatalf("%d kB of files are mapped, and the code has %d", before, size)
	}
	returnMemory()
	if after := resident(); after > before-size/2 {
		t.Errorf("%d kB of files are mapped, and %d before, with %d of code", after, before, size)
	}
}

// The kernel makes no huge pages of memory that was there.
func TestAvoidHugePages(t *testing.T) {
	const size = 4 << 20
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	if err := unix.Madvise(memory, unix.MADV_HUGEPAGE); err != nil {
		t.Skipf("this kernel has no huge pages: %v", err)
	}
	if _, huge := flagged(t); huge == 0 {
		t.Fatal("no memory may be huge")
	}
	returnMemory()
	if never, huge := flagged(t); huge > 0 || never == 0 {
		t.Errorf("huge pages may be in %d mappings, and not in %d", huge, never)
	}
}

// flagged returns how many mappings may not have huge pages, and how many should have some.
func flagged(t *testing.T) (never, huge int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), " nh "), strings.Count(string(maps), " hg ")
}
