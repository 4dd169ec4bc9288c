package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"trace/lang"
	"trace/lang/check"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/kernel"
)

func TestMain(m *testing.M) {
	// With -race every process would sleep a second before it exits.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(m, map[string]func(){
		"trace":  main,
		"helper": helper,
		"capped": capped,
	})
}

// helper makes the number of getppid system calls in its argument.
func helper() {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	for range n {
		unix.Getppid()
	}
}

// capped runs a command with no capabilities but those whose numbers its first argument lists.
func capped() {
	keep := strings.Split(os.Args[1], ",")
	runtime.LockOSThread()
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			panic(err)
		}
		if held == 0 || os.Geteuid() != 0 || slices.Contains(keep, strconv.Itoa(c)) {
			continue // an ordinary user has none anyway
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			panic(err)
		}
	}
	path, err := exec.LookPath(os.Args[2])
	if err == nil {
		err = unix.Exec(path, os.Args[2:], os.Environ())
	}
	panic(err)
}

// TestScripts runs what needs no privileges.
func TestScripts(t *testing.T) {
	objects, err := filepath.Abs(filepath.Join(root, "bpf"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(e *testscript.Env) error {
		e.Setenv("OBJECTS", objects)
		return nil
	}})
}

// TestLive runs what traces system calls of this machine.
func TestLive(t *testing.T) {
	requireLive(t)
	callsComeIn(t)
	testscript.RunT(inTurn{t}, testscript.Params{
		Dir:       "testdata/live",
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"jsonlines": jsonLines, "wellformed": wellFormed, "status": status},
		Condition: canUnshare,
	})
}

// canUnshare reports whether this process may have a namespace of its own, as the conditions of scripts ask: [mount], [time].
func canUnshare(name string) (bool, error) {
	return exec.Command("unshare", "--"+name, "true").Run() == nil, nil
}

// inTurn runs one script after the other: each traces all processes that are called helper.
type inTurn struct{ *testing.T }

func (t inTurn) Parallel()     {}
func (t inTurn) Verbose() bool { return testing.Verbose() }
func (t inTurn) Run(name string, script func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { script(inTurn{t}) })
}

// status runs a command and checks its exit status.
func status(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || strconv.Itoa(exit.ExitCode()) != args[0] {
		ts.Fatalf("%v, want status %s", err, args[0])
	}
}

// wellFormed checks that the elements of a page are closed in their order.
func wellFormed(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(closedInOrder(ts.ReadFile(args[0])))
}

func closedInOrder(page string) error {
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		if _, err := d.Token(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// TestEnginesAgree runs every program of testdata/agree.txt on the system calls of helper, in the kernel and in user space at once:
// both have to print the same.
func TestEnginesAgree(t *testing.T) {
	requireLive(t)
	enginesAgree(t)
}

func enginesAgree(t *testing.T) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Files: []string{"testdata/agree.txtar"},
		Setup: func(e *testscript.Env) error {
			programs, err := os.ReadFile("testdata/agree.txt")
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(e.WorkDir, "programs"), programs, 0o644)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"agree": agree},
	})
}

// agree runs each line of a file as a program that both engines run. The command is pinned: between two CPUs the order of two
// events is anybody's guess.
func agree(ts *testscript.TestScript, _ bool, args []string) {
	for program := range strings.Lines(ts.ReadFile(args[0])) {
		program = strings.TrimSpace(program)
		if strings.HasPrefix(program, "#") {
			continue
		}
		if strings.Contains(program, `startsWith "/"`) && !hasCgroupPaths(ts) {
			ts.Logf("skipped, because no tree of cgroups is mounted here, so that no cgroup has a path: %s", program)
			continue
		}
		err := ts.Exec("trace", "--compare", "--buffer-size", "64MiB", "--children", "-c", "taskset 1 helper 300", program)
		if err != nil || ts.ReadFile("stdout") == "" {
			ts.Fatalf("%s\n%v", program, err)
		}
		// What the kernel did not run the program for, neither engine saw.
		if notes := ts.ReadFile("stderr"); strings.Contains(notes, "rejected") || strings.Contains(notes, "ring buffer full") {
			ts.Fatalf("%s\n%s", program, notes)
		}
	}
}

// hasCgroupPaths reports whether a tree of cgroups is mounted here.
func hasCgroupPaths(ts *testscript.TestScript) bool {
	catalog, err := probes.Load()
	ts.Check(err)
	_, _, ok := catalog.Cgroups().Mount()
	return ok
}

// requireLive skips the test if this process lacks the privileges to trace system calls; any other failure is one.
func requireLive(t *testing.T) {
	t.Helper()
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	program, err := lang.Compile("live", "syscall:enter", catalog.Probes(), check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := lang.Prepare(program, plan.Options{CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	host, err := probes.Detect(catalog, probes.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := probes.Attach(context.Background(), host, plan.Requests(), probes.AttachOptions{Layouts: plan.Layouts()})
	if denied := (*kernel.PermissionError)(nil); errors.As(err, &denied) || errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
}

// jsonLines checks that a file has a number of lines, and that each is a JSON object with the given keys.
func jsonLines(ts *testscript.TestScript, _ bool, args []string) {
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile(args[0]), "\n"), "\n")
	if want, err := strconv.Atoi(args[1]); err != nil || len(lines) != want {
		ts.Fatalf("%d lines, want %s", len(lines), args[1])
	}
	for _, line := range lines {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("%v in %s", err, line)
		}
		for _, key := range args[2:] {
			if _, ok := object[key]; !ok {
				ts.Fatalf("no %s in %s", key, line)
			}
		}
	}
}
