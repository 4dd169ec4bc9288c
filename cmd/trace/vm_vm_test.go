//go:build vm

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
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
		vm:map { @growth = sum((int64)delta); @total = max((uint64)total) }
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
		"@calls[mmap, 0]": 6, "@calls[mmap, -ENOMEM]": 1, "@calls[munmap, 0]": 2, "@calls[mremap, 0]": 3,
		"@length[private_anon]": 17 * MB, "@length[shared_anon]": 4 * MB, "@length[private_file]": 64 * pageSize, "@length[shared_file]": 64 * pageSize,
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

// What processvm reports of a process from before is the growth of VmSize, and at last VmSize itself.
func TestVMScriptProcessvm(t *testing.T) {
	m := startMemory(t, coldFile(t, filepath.Join(mountDisk(t), "mapped"), 64).Name())
	before := memoryOf(t, m.pid, "VmSize")
	trace := startCommand(t, exec.Command("trace", "-f", "json", "-p", fmt.Sprint(m.pid), "processvm"))
	m.goOn(t)
	after := memoryOf(t, m.pid, "VmSize")
	last := regexp.MustCompile(fmt.Sprintf(`/%d (\S+) \($`, m.pid))
	var size string
	waitUntil(t, "there is a line", func() bool { return strings.Contains(trace.wrote(t), fmt.Sprintf("/%d ", m.pid)) })
	time.Sleep(2 * time.Second) // for one more, if the work took longer than an interval
	events := trace.stop(t)
	var grown int64
	for _, e := range events {
		if e.text("type") == "map" {
			for _, n := range e["data"].(map[string]any)["@grown"].(map[string]any) {
				kept, err := n.(json.Number).Int64()
				if err != nil {
					t.Fatal(err)
				}
				grown += kept
			}
		}
	}
	for _, line := range printed(events) {
		if found := last.FindStringSubmatch(line); found != nil {
			size = found[1]
		}
	}
	t.Logf("VmSize grows from %d to %d KiB; processvm reports a growth of %d KiB to %s", before, after, grown>>10, size)
	if grown != int64(after-before)<<10 {
		t.Error("another growth")
	}
	if got := sizeOf(t, size) / float64(after<<10); got < 0.9 || got > 1.1 { // a line has one digit after the point
		t.Error("another size")
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
