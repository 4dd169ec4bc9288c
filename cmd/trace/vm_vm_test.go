//go:build vm

package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Faults are those that getrusage counts, also the pages of a file that nobody reads ahead. Mappings grow as VmSize does, also where
// other threads map and unmap at the same time.
func TestVMFaultsAndMappings(t *testing.T) {
	file := coldFile(t, filepath.Join(mountDisk(t), "mapped"), 64)
	memory := startMemory(t, file.Name())
	trace := startTool(t, "Attached", "trace", "-p", fmt.Sprint(memory.pid), `
		vm:fault / comm == "work" && !failed && !major / { @minor = count() }
		vm:fault / comm == "work" && !failed && major / { @major = count(); @waited = max(latency) }
		vm:fault / comm == "work" && major && file == "mapped" / { @offile = count() }
		vm:map { @growth = sum((int64)delta) }
		vm:stack { @growth = sum((int64)delta) }
		vm:map / comm == "work" && kind == nil && delta != 0 / { @several = count() }
		vm:map / comm == "work" / { @calls[op, ret] = count() }
		vm:map / comm == "work" && op == mmap && ret == 0 / { @length[kind] = sum((uint64)length) }
		vm:map / comm == "work" && op == brk / { @brk[kind] = sum((int64)delta) }
		vm:map / comm == "rest" && op == munmap / { @rest = count() }
		vm:rss / part == anon / { @anon = (uint64)size }
		vm:exit { @exits = count(); @size = sum((uint64)total); @peak = sum((uint64)peak) }
		cache:fault / file == "mapped" && miss / { @lookups = count() }`)
	var minor, major, growth uint64
	fmt.Sscan(memory.goOn(t), &minor, &major, &growth)
	size, peak, anon := memoryOf(t, memory.pid, "VmSize"), memoryOf(t, memory.pid, "VmPeak"), memoryOf(t, memory.pid, "RssAnon")
	memory.end(t)
	got := countsOf(trace.stop(t))
	t.Logf("getrusage counts %d minor and %d major faults, VmSize grows by %d KiB; trace: %v", minor, major, growth, got)
	skipped := strings.Contains(trace.out.String(), "lost") // as 7.2 does, where several threads map at once
	const MB = 1 << 20
	for name, want := range map[string]uint64{
		"@minor": minor, "@major": major, "@offile": 32, "@growth": growth << 10,
		"@calls[mmap, 0]": 8, "@calls[mmap, -ENOMEM]": 1, "@calls[munmap, 0]": 5, "@several": 1, "@calls[mremap, 0]": 3,
		"@length[private_anon]": 21 * MB, "@length[shared_anon]": 4 * MB, "@length[private_file]": 64 * pageSize, "@length[shared_file]": 128 * pageSize,
		"@brk[heap]": 3 * MB, "@lookups": 32, "@exits": 1, "@size": size << 10, "@peak": peak << 10,
	} {
		if got[name] == want {
			continue
		}
		if skipped {
			t.Logf("%s is %d, want %d: the kernel has skipped events, which trace reports", name, got[name], want)
		} else {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
	// Threads of older kernels add up 64 faults before they count them, and neither number has what is left.
	if d := int64(got["@anon"]) - int64(anon<<10); max(d, -d) > 2*64*pageSize {
		t.Errorf("vm:rss reports %d bytes of its own pages at last, /proc/PID/status %d", got["@anon"], anon<<10)
	}
	if minor < 1000 || major < 32 || growth == 0 {
		t.Error("the program did too little")
	}
}

// A comparison in the kernel agrees with the value beside it. The programs of vm:stack and vm:map store another number on each of their paths, and
// verifiers before 6.8 have removed the code that only one of them reaches.
func TestVMDifferentialKinds(t *testing.T) {
	for _, test := range []struct{ probe, kind string }{{"vm:stack", "stack"}, {"vm:map", "heap"}, {"vm:map", "private_file"}} {
		got := sh(t, "trace -q -c 'cat /dev/null' '%s / comm == \"cat\" / { @[kind == %s, kind] = count() }'", test.probe, test.kind)
		if !strings.Contains(got, "@[true, "+test.kind+"]: ") || strings.Contains(got, "@[false, "+test.kind+"]") || strings.Count(got, "@[true, ") != 1 {
			t.Errorf("%s, %s: got\n%s", test.probe, test.kind, got)
		}
	}
}

// What processvm prints at the beginning and at the end is what /proc/PID/smaps has by kind, of a process from before and of a new one. What
// comes and goes by calls is the difference of the process from before.
func TestVMScriptProcessvm(t *testing.T) {
	file := coldFile(t, filepath.Join(mountDisk(t), "mapped"), 64).Name()
	old := startMemory(t, file)
	before := kindsOf(t, old.pid)
	script := startCommand(t, exec.Command("trace", "-f", "json", "processvm", "--top=1000"))
	calls := startTool(t, "Attached", "trace", "-p", fmt.Sprint(old.pid), `
		vm:map { @private_anon = sum((int64)grown.private_anon); @shared_anon = sum((int64)grown.shared_anon)
			@private_file = sum((int64)grown.private_file); @shared_file = sum((int64)grown.shared_file)
			@heap = sum((int64)grown.heap); @stack = sum((int64)grown.stack) }
		vm:stack { @stack = sum((int64)delta) }
		vm:size / delta == nil / { @first[kind] = (uint64)size }
		vm:size { @last[kind] = (uint64)size }`)
	waitUntil(t, "there is a line", func() bool { return strings.Contains(script.wrote(t), fmt.Sprintf("/%d ", old.pid)) })
	recent := startMemory(t, file)
	for _, m := range []memory{old, recent} {
		m.goOn(t)
	}
	after, recently := kindsOf(t, old.pid), kindsOf(t, recent.pid)
	got := countsOf(calls.stop(t))
	t.Logf("%v, then %v; %v", before, after, got)
	skipped := strings.Contains(calls.out.String(), "lost")
	for kind, size := range after {
		if got["@first["+kind+"]"] != before[kind]<<10 || got["@last["+kind+"]"] != size<<10 {
			t.Errorf("%s: %d, then %d", kind, got["@first["+kind+"]"], got["@last["+kind+"]"])
		}
		if grown := int64(size-before[kind]) << 10; int64(got["@"+kind]) != grown && !skipped {
			t.Errorf("%s grew by %d in calls, /proc/PID/smaps shows %d", kind, int64(got["@"+kind]), grown)
		}
	}
	events, _ := script.stopAll(t) // a slow machine leaves out readings
	lines := strings.Split(strings.Join(printed(events), ""), "\n")
	for _, at := range []struct {
		pid  int
		when string
		want map[string]uint64
	}{{old.pid, "beginning", before}, {old.pid, "end", after}, {recent.pid, "end", recently}} {
		i := slices.IndexFunc(lines, func(l string) bool {
			return strings.Contains(l, fmt.Sprintf("/%d ", at.pid)) && strings.HasPrefix(l, "at the "+at.when)
		})
		if i < 0 {
			t.Fatalf("no line of %d at the %s: %q", at.pid, at.when, lines)
		}
		t.Log(lines[i])
		for kind, size := range at.want {
			found := regexp.MustCompile(kind + ` ([^ ,]+)`).FindStringSubmatch(lines[i])
			if found == nil {
				t.Fatalf("%s is missing", kind)
			}
			if got := sizeOf(t, found[1]) / float64(size<<10); got < 0.95 || got > 1.05 { // a line has one digit after the point
				t.Errorf("%s is %s, want %d KiB", kind, found[1], size)
			}
		}
	}
}

// memory is the program of testdata/vm/memory.c.
type memory struct {
	pid int
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startMemory(t *testing.T, file string) memory {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memory")
	sh(t, "gcc -Wall -Werror -O1 -pthread -o %s testdata/vm/memory.c", path)
	cmd := exec.Command(path, file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	m := memory{cmd.Process.Pid, cmd, in, bufio.NewReader(out)}
	m.line(t)
	return m
}

// goOn lets the program go on, and returns the line that it prints then.
func (m memory) goOn(t *testing.T) string {
	t.Helper()
	fmt.Fprintln(m.in)
	return m.line(t)
}

// end lets the program end.
func (m memory) end(t *testing.T) {
	t.Helper()
	m.in.Close()
	if err := m.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// memoryOf reads a size in KiB from /proc/PID/status.
func memoryOf(t *testing.T, pid int, name string) (kib uint64) {
	t.Helper()
	fmt.Sscan(sh(t, `sed -n 's/^%s: *//p' /proc/%d/status`, name, pid), &kib)
	return kib
}

func (m memory) line(t *testing.T) string {
	t.Helper()
	line, err := m.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}
