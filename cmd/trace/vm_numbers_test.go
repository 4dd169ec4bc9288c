//go:build vm

package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestVMSameNumbersAsBpftrace runs one fixed workload under trace and bpftrace at once: their aggregations of the same tracepoint are the
// same, line by line, the bars of histograms included. The workload has a CPU of its own: where the kernel can preempt a program, as 7.2 can,
// it does not run it for the next process on that CPU.
func TestVMSameNumbersAsBpftrace(t *testing.T) {
	const actions = `@c = count(); @k[ID] = count(); @s[ID] = sum(LEN); @a = avg(LEN); @h = hist(LEN); @hk[ID] = hist(LEN); ` +
		`@t[ID] = stats(LEN); @l = lhist(LEN, 0, 2000, 100); @m = max(LEN); @n = min(LEN);`
	ours := `syscall:enter / comm == "dd" && nr in [read, write] / { ` + strings.NewReplacer("ID", "(int64)nr", "LEN", "(int64)arg2").Replace(actions) + ` }`
	theirs := `tracepoint:raw_syscalls:sys_enter / comm == "dd" && (args->id == 0 || args->id == 1) / { ` +
		strings.NewReplacer("ID", "args->id", "LEN", "args->args[2]").Replace(actions) + ` } interval:ms:100 { printf("attached\n"); }` // attached last
	a := startTool(t, "Attached", "taskset", "1", "trace", ours)
	b := startTool(t, "attached", "taskset", "1", "bpftrace", "-e", theirs)
	for _, size := range []string{"1", "777", "1999", "65536"} {
		if out, err := exec.Command("taskset", "2", "dd", "if=/dev/zero", "of=/dev/null", "bs="+size, "count=500").CombinedOutput(); err != nil {
			t.Fatalf("dd: %v\n%s", err, out)
		}
	}
	mine, others := a.stop(t), statsOfToday(b.stop(t))
	if len(mine) < 40 || !slices.Equal(mine, others) {
		t.Errorf("trace printed\n%s\nbpftrace printed\n%s", strings.Join(mine, "\n"), strings.Join(others, "\n"))
	}
}

// statsOfToday writes statistics as bpftrace 0.27 does. Debian 12 has an older one.
func statsOfToday(lines []string) []string {
	older := regexp.MustCompile(`count (\d+), average (\d+), total (\d+)`)
	for i, line := range lines {
		lines[i] = older.ReplaceAllString(line, "{ .count = $1, .average = $2, .total = $3 }")
	}
	return lines
}

// lockedBuffer is what a process has written so far.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// tool is a tracer that runs.
type tool struct {
	cmd  *exec.Cmd
	out  lockedBuffer
	name string
}

func startTool(t *testing.T, state, name string, args ...string) *tool {
	t.Helper()
	tl := &tool{cmd: exec.Command(name, args...), name: name}
	tl.cmd.Stdout, tl.cmd.Stderr = &tl.out, &tl.out
	if err := tl.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tl.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("%s %q printed\n%s", name, args, tl.out.String())
		}
	})
	waitUntil(t, name+" prints "+state, func() bool { return strings.Contains(tl.out.String(), state) })
	return tl
}

// stop ends the tool and returns its lines, those about itself left out, each map's in the order of the text.
func (tl *tool) stop(t *testing.T) []string {
	t.Helper()
	tl.end(t)
	return mapsOf(tl.out.String())
}

// end ends the tool.
func (tl *tool) end(t *testing.T) {
	t.Helper()
	if err := tl.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := tl.cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", tl.name, err, tl.out.String())
	}
}

// mapsOf returns the maps of an output in the order of their names; of each its lines as they are.
func mapsOf(text string) []string {
	var blocks []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n ")
		switch {
		case strings.HasPrefix(line, "@"):
			blocks = append(blocks, line)
		case strings.HasPrefix(line, "[") || strings.HasPrefix(line, "("):
			blocks[len(blocks)-1] += "\n" + line
		}
	}
	slices.Sort(blocks)
	return strings.Split(strings.Join(blocks, "\n"), "\n")
}
