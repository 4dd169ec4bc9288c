//go:build linux

package counter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// Lines of /proc/PID/maps, as kernels write them.
func TestKinds(t *testing.T) {
	for line, want := range map[string]string{
		"7f00-8f00 rw-p 00000000 00:00 0 ":                                            "private_anon",
		"7f00-8f00 rw-p 00000000 00:00 0                          [anon:arena]":       "private_anon",
		"7f00-8f00 r-xp 00000000 00:00 0                          [vdso]":             "private_anon",
		"7f00-8f00 rw-s 00000000 00:01 8         /dev/zero (deleted)":                 "shared_anon",
		"7f00-8f00 rw-s 00000000 00:01 8         /SYSV00000000 (deleted)":             "shared_anon",
		"7f00-8f00 rw-s 00000000 00:01 8         [anon_shmem:name]":                   "shared_anon",
		"7f00-8f00 rw-p 00000000 00:0f 8         /anon_hugepage (deleted)":            "private_anon",
		"7f00-8f00 rw-p 00000000 00:05 4         /dev/zero":                           "private_file",
		"7f00-8f00 rw-s 00000000 00:01 8         /memfd:zero (deleted)":               "shared_file",
		"7f00-8f00 r--p 00000000 fe:01 5         /home/a b/dev/zero (deleted)":        "private_file",
		"7f00-8f00 rw-p 00000000 00:00 0                          [heap]":             "heap",
		"7f00-8f00 rw-p 00000000 00:00 0                          [stack]":            "stack",
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]": "",
	} {
		maps, err := proc.ReadMappings(strings.NewReader(line + "\n"))
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		for kind, size := range sizesOf(maps) {
			wanted := uint64(0)
			if MappingKinds[kind] == want {
				wanted = 0x1000
			}
			if size != wanted {
				t.Errorf("%s: %d of %s, want %d", line, size, MappingKinds[kind], wanted)
			}
		}
	}
}

// What this process maps is what its kinds grow by.
func TestProcesses(t *testing.T) {
	const size = 1 << 22
	source, err := Processes(func(pid int) bool { return pid == os.Getpid() })
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	read := func() (read Set) {
		if err := source.Read(func(s Set) { read = s }); err != nil || read.Err != nil || read.Device != uint64(os.Getpid()) {
			t.Fatal(err, read)
		}
		return read
	}
	before := read()
	for _, m := range []struct{ fd, flags int }{{int(file.Fd()), unix.MAP_SHARED}, {int(file.Fd()), unix.MAP_PRIVATE}, {-1, unix.MAP_SHARED | unix.MAP_ANON}} {
		data, err := unix.Mmap(m.fd, 0, size, unix.PROT_READ, m.flags)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(data)
	}
	grown := make(map[string]uint64)
	for _, c := range read().Since(before) {
		grown[c.Name] = c.Value - c.Before
	}
	delete(grown, "private_anon") // the Go runtime's
	if fmt.Sprint(grown) != fmt.Sprintf("map[private_file:%d shared_anon:%[1]d shared_file:%[1]d]", size) {
		t.Errorf("grown: %v", grown)
	}
}
