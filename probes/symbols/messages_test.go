//go:build linux

package symbols

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"trace/probes/filetest"
)

// What cannot be read is reported with its reason.
func TestMessages(t *testing.T) {
	watch := func() error { _, err := watchChanges(); return err }
	malformed := func() (err error) {
		defer recovered(&err)
		panic("slice bounds out of range")
	}
	_, headers := (&bounded{strings.NewReader("x"), 1}).ReadAt(make([]byte, 2), 0)
	_, packed := debugBytes(&elf.File{Sections: []*elf.Section{{SectionHeader: elf.SectionHeader{Name: ".zdebug_line"}}}})
	_, _, unlinked := debugLink(&elf.File{})
	_, device := openRegular("/", "/dev/zero", true)
	_, long := readFunctions(io.MultiReader(strings.NewReader("ffffffff814154e0 t "), bytes.NewReader(make([]byte, 1<<17))))
	stuck := newProcesses()
	stuck.changes = &changes{wake: -1}
	stuck.stopped.Add(1)
	for _, test := range []struct {
		err  error
		want string
	}{
		{headers, "its headers are too large"},
		{packed, ".zdebug_line: line numbers of this kind are not read"},
		{malformed(), "malformed: slice bounds out of range"},
		{unlinked, "no .gnu_debuglink"},
		{device, "open /dev/zero: not a regular file"},
		{long, "/proc/kallsyms: bufio.Scanner: token too long"},
		{filetest.With(t, 0, watch), "eventfd: too many open files"},
		{filetest.With(t, 1, watch), "watch what processes map: perf_event_open: too many open files"},
		{stuck.Close(), "symbols: a file system does not answer"},
	} {
		if test.err == nil || test.err.Error() != test.want {
			t.Errorf("%v, want %s", test.err, test.want)
		}
	}
}

// The names that another user wrote for a process are not read.
func TestNamesOfAnotherUser(t *testing.T) {
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Skipf("only root can make files of other users: %v", err)
	}
	if _, err := (&space{pid: os.Getpid(), inner: os.Getpid()}).openWritten(); err == nil || err.Error() != path+" is of another user" {
		t.Error(err)
	}
}
