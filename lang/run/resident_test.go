//go:build linux

package run

import (
	"os"
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
