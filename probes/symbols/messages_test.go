//go:build linux

package symbols

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
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
	_, _, unlinked := debugLink(&elfFile{})
	_, device := testProcesses(t).openBelow(0, "/", "/dev/zero", true)
	_, long := readFunctions(io.MultiReader(strings.NewReader("ffffffff814154e0 t "), bytes.NewReader(make([]byte, 1<<17))))
	stuck := newProcesses(1, new(atomic.Int64))
	stuck.changes = &changes{wake: -1}
	stuck.running.Add(1)
	_, text := parseELF(strings.NewReader(strings.Repeat("x", 64)))
	costs := testCost()
	for _, test := range []struct {
		err  error
		want string
	}{
		{text, "not an ELF file"},
		{costs.step(loadSteps + 1), "what there is of names takes more than 67108864 steps of work"},
		{costs.take(mostBytes + 1), "what there is of names takes more than 32 MiB of memory"},
		{&tooLarge{".gnu_debuglink", 5000, "bytes", maxNote}, ".gnu_debuglink has 5000 bytes, more than the 4096 that are read"},
		{malformed(), "malformed: slice bounds out of range"},
		{unlinked, "no .gnu_debuglink"},
		{device, "open /dev/zero: not a regular file"},
		{long, "/proc/kallsyms: bufio.Scanner: token too long"},
		{filetest.With(t, 0, watch), "eventfd: too many open files"},
		{filetest.With(t, 1, watch), "watch what processes map: perf_event_open: too many open files"},
		{stuck.close(), "symbols: a file system does not answer"},
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
	if _, err := testProcesses(t).openWritten(&space{pid: os.Getpid(), inner: os.Getpid()}, 0); err == nil || err.Error() != path+" is of another user" {
		t.Error(err)
	}
}
