package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace/probes"
)

// family is a run of testdata/filters.c, whose processes are there and wait.
type family struct {
	*testing.T
	in  io.WriteCloser
	out *bufio.Reader
	// numbers of the root, of the process group that is not the root's, and of the pid namespace.
	numbers map[string]string
	// end ends it, and removes the cgroup that it has made.
	end func()
}

// families compiles the program; cgroups are two, the first with one inside called deep, or nothing.
func families(t *testing.T, cgroups []string) func() family {
	t.Helper()
	program := filepath.Join(t.TempDir(), "filters")
	if out, err := exec.Command("cc", "-Wall", "-Werror", "-O2", "-pthread", "-o", program, "testdata/filters.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return func() family {
		t.Helper()
		cmd := exec.Command(program, cgroups...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, outEnd := pipe(t)
		cmd.Stdout, cmd.Stderr = outEnd, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		outEnd.Close()
		end := sync.OnceFunc(func() {
			in.Close()
			cmd.Wait()
			if len(cgroups) > 0 {
				removeEmptied(cgroups[0] + "/later")
			}
		})
		t.Cleanup(end)
		f := family{t, in, bufio.NewReader(out), map[string]string{}, end}
		for range 3 {
			name, number, _ := strings.Cut(f.line(), " ")
			f.numbers[name] = number
		}
		return f
	}
}

func (f family) line() string {
	f.Helper()
	line, err := f.out.ReadString('\n')
	if err != nil {
		f.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// run has all calls made.
func (f family) run() {
	f.Helper()
	fmt.Fprintln(f.in, "go")
	if said := f.line(); said != "done" {
		f.Fatalf("its output is %q", said)
	}
}

// filled puts the numbers, and the cgroups, into the flags of a test.
func (f family) filled(flags, cgroup string) []string {
	for name, number := range f.numbers {
		flags = strings.ReplaceAll(flags, strings.ToUpper(name), number)
	}
	return strings.Fields(strings.ReplaceAll(flags, "PATH", cgroup))
}

// made are the calls of filters.c.
var made = map[string]int{
	"child": 1, "thread": 2, "group": 4, "member": 8, "space": 16, "orphan": 32, "inside": 64, "deep": 128, "beside": 256, "root": 512, "later": 1024,
	"made": 2048,
}

// familyCalls counts them.
const familyCalls = `syscall:enter / nr == getppid && comm startsWith "flt-" /`

var rowOfCalls = regexp.MustCompile(`(?m)^@\[flt-(\w+)\]: (\d+)$`)

// callsIn are the rows of the map.
func callsIn(t *testing.T, text string) map[string]int {
	t.Helper()
	calls := map[string]int{}
	for _, row := range rowOfCalls.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(row[2])
		if err != nil {
			t.Fatal(err)
		}
		calls[row[1]] = n
	}
	return calls
}

var filterTests = []struct {
	flags string
	want  string // names of those whose calls pass, or of those whose calls do not
	live  bool   // not of recordings
}{
	{"", "but", false},
	{"-p ROOT", "root thread", false},
	{"-p ROOT --children", "but orphan", true},
	{"-p GROUP --children", "group member", true},
	{"--comm flt-child", "child", false},
	{"--comm flt-thread -p ROOT", "thread", false},
	{"--comm flt-chil", "", false},
	{"--pgid GROUP", "group member", false},
	{"--pgid ROOT", "but group member", false},
	{"--pgid GROUP --comm flt-member", "member", false},
	{"--pidns SPACE", "space", false},
	{"--pidns /proc/self/ns/pid", "but space", false},
	{"--cgroup PATH", "inside deep made", false},
	{"--cgroup PATH/deep/", "deep", false},
	{"--cgroup PATH --children -p ROOT --comm flt-made", "made", true},
	{"--cgroup PATH --children -p GROUP", "", true},
}

// passing are the calls that a filter lets pass; calls in cgroups if there are some.
func passing(want string, cgroups bool) map[string]int {
	names := strings.Fields(want)
	calls := map[string]int{}
	if len(names) > 0 && names[0] == "but" {
		calls = maps.Clone(made)
		for _, name := range names[1:] {
			delete(calls, name)
		}
	} else {
		for _, name := range names {
			calls[name] = made[name]
		}
	}
	if !cgroups {
		for _, name := range []string{"inside", "deep", "beside", "made"} {
			delete(calls, name)
		}
	}
	return calls
}

// Each filter passes exactly the calls that the program has made where the filter matches, in both engines, live and recorded.
func TestFilters(t *testing.T) {
	requireLive(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a pid namespace")
	}
	cgroups, cgroup := filterCgroups(t)
	start := families(t, cgroups)
	args := func(flags []string, more ...string) []string {
		return append(append(flags, more...), "--buffer-size", "64MiB")
	}
	for _, test := range filterTests {
		if cgroup == "" && strings.Contains(test.flags, "PATH") {
			continue
		}
		want := passing(test.want, cgroup != "")
		for _, engine := range []string{"--no-kernel=false", "--no-kernel"} {
			f := start()
			tr := startTrace(t, args(f.filled(test.flags, cgroup), engine, "-v", familyCalls+" { @[comm] = count() }")...)
			f.run()
			tr.cmd.Process.Signal(os.Interrupt)
			data, err := io.ReadAll(tr.stdout)
			if err != nil {
				t.Fatal(err)
			}
			said := tr.endsWithin(5*time.Second, exitOK)
			if got := callsIn(t, string(data)); !maps.Equal(got, want) {
				t.Errorf("%s %s: %v, want %v", test.flags, engine, got, want)
			}
			if !strings.Contains(said, ", 0 lost\n") {
				t.Errorf("%s %s: %s", test.flags, engine, said)
			}
			f.end()
		}
	}
	// On events that were recorded without a filter, and with it.
	whole := filepath.Join(t.TempDir(), "whole")
	f := start()
	tr := startTrace(t, args(nil, "--record", whole, familyCalls+" { @ = count() }")...)
	f.run()
	tr.cmd.Process.Signal(os.Interrupt)
	tr.endsWithin(5*time.Second, exitOK)
	for _, test := range filterTests {
		if test.live || cgroup == "" && strings.Contains(test.flags, "PATH") {
			continue
		}
		out, err := exec.Command("trace", append(f.filled(test.flags, cgroup), "-r", whole, "syscall:enter { @[comm] = count() }")...).Output()
		if got, want := callsIn(t, string(out)), passing(test.want, cgroup != ""); err != nil || !maps.Equal(got, want) {
			t.Errorf("recorded, %s: %v, %v, want %v", test.flags, got, err, want)
		}
	}
	f.end()
	part := filepath.Join(t.TempDir(), "part")
	f = start()
	flags := f.filled("-p ROOT --children --pgid ROOT", "")
	tr = startTrace(t, append([]string{"record", "-o", part}, args(flags, familyCalls)...)...)
	f.run()
	tr.cmd.Process.Signal(os.Interrupt)
	tr.endsWithin(5*time.Second, exitOK)
	out, err := exec.Command("trace", "-r", part, "syscall:enter { @[comm] = count() }").Output()
	if got, want := callsIn(t, string(out)), passing("but orphan group member", cgroup != ""); err != nil || !maps.Equal(got, want) {
		t.Errorf("of the recording of a part: %v, %v, want %v", got, err, want)
	}
}

// filterCgroups makes two cgroups, the first with one inside called deep, and returns their folders, and the path of the first;
// nothing where this process may not.
func filterCgroups(t *testing.T) (dirs []string, path string) {
	t.Helper()
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	mount, _, ok := catalog.Cgroups().Mount()
	if !ok {
		t.Log("no cgroups are mounted: not tried with --cgroup")
		return nil, ""
	}
	path = fmt.Sprintf("/trace-filter-%d", os.Getpid())
	dirs = []string{mount + path, mount + path + "-beside"}
	for _, dir := range []string{dirs[0], dirs[0] + "/deep", dirs[1]} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Logf("not tried with --cgroup: %v", err)
			return nil, ""
		}
		t.Cleanup(func() {
			if err := removeEmptied(dir); err != nil {
				t.Error(err)
			}
		})
	}
	return dirs, path
}

// removeEmptied removes a cgroup when the last process has left it.
func removeEmptied(dir string) (err error) {
	for range 100 {
		if err = os.Remove(dir); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
