package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestStacks traces small programs whose functions are known: see probes/symbols/testdata.
func TestStacks(t *testing.T) {
	requireLive(t)
	stacks(t)
}

// Stacks of tiny in getppid, as objdump and the source tell: with line numbers, with names alone, and without any.
var (
	tinyLines = []string{"tiny::Thing::twice(int)+52 tiny.cc:5", "caller+28 tiny.cc:24", "begin+39 tiny.cc:34", "_start+10 tiny.cc:40"}
	tinyNames = []string{"tiny::Thing::twice(int)+52", "caller+28", "begin+39", "_start+10"}
	tinyHex   = []string{"0x400140 [tiny]", "0x400169 [tiny]", "0x40019e [tiny]", "0x400231 [tiny]"}
)

// getppids is the number of getppid calls that tiny makes.
const getppids = 100

const tinyCalls = `syscall:enter / nr == getppid && comm == "tiny" / `

func stacks(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the programs are for amd64")
	}
	dir := t.TempDir()
	fixture := func(name, as string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("../../probes/symbols/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, as)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o777); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := fixture("tiny", "whole/tiny")
	linked := fixture("tiny.linked", "linked/tiny")
	fixture("tiny.debug", "linked/tiny.debug")
	gone := filepath.Join(dir, "tiny")

	// All of them have ended before anything is printed.
	for name, test := range map[string]struct {
		run  string
		want []string
	}{
		"symbols":         {whole, tinyLines},
		"debug link":      {linked, tinyLines},
		".gnu_debugdata":  {fixture("tiny.minidebug", "mini/tiny"), tinyNames},
		"stripped":        {fixture("tiny.stripped", "stripped/tiny"), tinyHex},
		"deleted":         {fmt.Sprintf("cp %[1]s %[2]s; %[2]s wait; rm %[2]s", whole, gone), tinyLines},
		"mount namespace": {fmt.Sprintf("unshare -m sh -c 'mount -t tmpfs none /mnt && cp %s /mnt/tiny && /mnt/tiny wait; true'", whole), tinyLines},
	} {
		t.Run(name, func(t *testing.T) {
			for _, engine := range [][]string{nil, {"--no-kernel"}} {
				m := mapByTrace(t, append(engine, tinyCalls+"{ @[ustack] = count() }"), test.run+"; true")
				if len(m) != 1 || m[0].count(t) != getppids || !slices.Equal(m[0].frames(t, 0), test.want) {
					t.Errorf("%v: %v, want %v", engine, m, test.want)
				}
			}
		})
	}
	t.Run("two processes", func(t *testing.T) {
		m := mapByTrace(t, []string{tinyCalls + "{ @[ustack] = count() }"}, whole+"; "+whole+"; true")
		if len(m) != 2 || !slices.Equal(m[0].frames(t, 0), m[1].frames(t, 0)) || m[0].count(t) != getppids || m[1].count(t) != getppids {
			t.Errorf("stacks of two processes with the same addresses are %v", m)
		}
	})
	t.Run("exec", func(t *testing.T) { // the shell's mappings are gone
		m := mapByTrace(t, []string{tinyCalls + "{ @[ustack(2), pid] = count() }"}, "exec "+whole)
		if len(m) != 1 || !slices.Equal(m[0].frames(t, 0), tinyLines[:2]) || m[0].count(t) != getppids {
			t.Errorf("%v", m)
		}
	})
	t.Run("few frames", func(t *testing.T) {
		all := mapByTrace(t, []string{tinyCalls + "{ @[kstack, kstack(2), kstack(1) == kstack(2), kstack(127) == kstack] = count() }"}, whole+"; true")
		if len(all) != 1 || all[0].count(t) != getppids {
			t.Fatalf("%v", all)
		}
		whole, two := all[0].frames(t, 0), all[0].frames(t, 1)
		if len(whole) < 3 || !slices.Equal(whole[:2], two) {
			t.Errorf("kstack(2) is %v of %v", two, whole)
		}
		if all[0].Key[2] != false || all[0].Key[3] != true {
			t.Errorf("comparisons of stacks: %v", all[0].Key[2:])
		}
		for _, f := range whole {
			if strings.HasPrefix(f, "bpf_") || strings.HasPrefix(f, "0x") || strings.Contains(f, "traceiter") {
				t.Errorf("%s is of tracing, or has no name: %v", f, whole)
			}
		}
	})
	t.Run("absent", func(t *testing.T) {
		// A sample that meets a process has no stack of the kernel, and the idle task none of a process.
		m := mapByTrace(t, []string{"profile:199hz / pid == 0 && ustack != nil || pid != 0 && kstack == nil / { @[pid == 0, kstack] = count() }"},
			"timeout 2 sh -c 'while :; do :; done'; true")
		if len(m) != 1 || m[0].Key[0] != false || m[0].Key[1] != nil {
			t.Errorf("stacks that cannot be there: %v", m)
		}
	})
	t.Run("no room", func(t *testing.T) {
		cmd := exec.Command("trace", "--strict", "--map-size", "1", "--children", "-c", whole,
			`syscall:enter / comm == "tiny" && nr in [getppid, exit] / { printf("%s", ustack(1)) }`)
		out, err := cmd.CombinedOutput()
		var exited *exec.ExitError
		if !errors.As(err, &exited) || exited.ExitCode() != 3 {
			t.Errorf("lost stacks and --strict: %v", err)
		}
		for _, want := range []string{"\n        " + tinyLines[0] + "\n", "\n        (lost: no room for more stacks)\n",
			"trace: stacks: no room for a stack, 1 time: its frames are unknown (raise --map-size)\n"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("no %q in:\n%s", want, out)
			}
		}
	})
}

// mapEntry is an entry of a map in JSON.
type mapEntry struct {
	Key   []any
	Value any
}

func (e mapEntry) count(t *testing.T) int {
	t.Helper()
	n, ok := e.Value.(float64)
	if !ok {
		t.Fatalf("%v is no count", e.Value)
	}
	return int(n)
}

// frames returns the frames of a stack in the key.
func (e mapEntry) frames(t *testing.T, i int) []string {
	t.Helper()
	list, ok := e.Key[i].([]any)
	if !ok {
		t.Fatalf("%v is no stack", e.Key[i])
	}
	frames := make([]string, len(list))
	for i, f := range list {
		frames[i] = fmt.Sprint(f)
	}
	return frames
}

// mapByTrace runs trace with a shell script as its command, and returns the entries of the only map.
// A run that reports losses is no answer: it is repeated.
func mapByTrace(t *testing.T, args []string, script string) []mapEntry {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(script+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	// The command has a CPU of its own: where the kernel can preempt a program, it does not run it for the next process on that CPU.
	workload := "2"
	if runtime.NumCPU() == 1 {
		workload = "1"
	}
	// Another run of these tests, in another container, may have the same kernel: its programs are not counted.
	args = append([]string{"1", "trace", "-q", "-f", "json", "--children", "-c", "taskset " + workload + " sh " + file}, args...)
	for range 5 {
		rows, lost := onlyMap(t, exec.Command("taskset", args...))
		if lost == 0 {
			return rows
		}
		t.Logf("%v: %d events are lost", args, lost)
	}
	t.Fatalf("%v: each of five runs lost events", args)
	return nil
}

// onlyMap runs trace, and returns the entries of the only map and how many events are reported as lost.
func onlyMap(t *testing.T, cmd *exec.Cmd) (rows []mapEntry, lost int) {
	t.Helper()
	var notes strings.Builder
	cmd.Stderr = &notes
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &notes)
	}
	if strings.Contains(notes.String(), "stacks:") {
		t.Errorf("%v:\n%s", cmd.Args, &notes)
	}
	for lines := json.NewDecoder(bytes.NewReader(out)); ; {
		var line struct {
			Type string
			Rows []mapEntry
			Data json.RawMessage
		}
		switch err := lines.Decode(&line); {
		case err == io.EOF:
			return rows, lost
		case err != nil:
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		case line.Type == "map":
			rows = line.Rows
		case line.Type == "lost_events":
			var data struct{ Events int }
			if err := json.Unmarshal(line.Data, &data); err != nil {
				t.Fatal(err)
			}
			lost += data.Events
		default:
			t.Fatalf("%v prints more than a map:\n%s", cmd.Args, out)
		}
	}
}
