//go:build linux

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"trace/lang/codegen/bpftest"
	"trace/lang/metrics/family"
	"trace/lang/serve/wire"
	"trace/probes/kernel"
)

// callerName is the name under which this binary makes system calls in cgroups.
const callerName = "caller"

// TestMain lets tests run other programs: this binary, under another name.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case callerName:
		exitWith(callIn(os.Args[1]))
	case webName:
		exitWith(asWeb[os.Args[2]]())
	case userName:
		fmt.Println(webUser())
		os.Exit(0)
	case attackerName:
		exitWith(attack(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// again is how long a program waits first that could not be attached.
const again = 50 * time.Millisecond

// running starts a service with a configuration. change writes another one.
func running(t testing.TB, text string, log ...io.Writer) (s *Service, change func(text string) error) {
	t.Helper()
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	file := configured(t, text)
	s, err := New(t.Context(), Options{Config: file, Version: "v1", Again: again, Log: slog.New(slog.NewTextHandler(io.MultiWriter(log...), nil))})
	if err != nil {
		t.Fatal(err)
	}
	start(t, s)
	return s, func(text string) error {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return s.Reload(context.Background())
	}
}

// configured returns a file with a configuration.
func configured(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// start runs a service until the test ends.
func start(t testing.TB, s *Service) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		end()
		over.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// attached waits until all programs are.
func attached(t testing.TB, s *Service) {
	t.Helper()
	for range 2000 {
		if len(s.ready().Waiting) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not attached: %v", s.ready().Waiting)
}

// scrape returns all metrics, as the other process gets them.
func scrape(t testing.TB, s *Service) (all family.Set) {
	t.Helper()
	answer, err := s.Answer(t.Context(), wire.Request{Do: wire.GetMetrics})
	if err != nil {
		t.Fatal(err)
	}
	data, err := answer.(family.Set).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if err := all.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	return all
}

// series returns a series of a metric.
func series(t *testing.T, s *Service, name string, labels ...string) *family.Series {
	t.Helper()
	for _, f := range scrape(t, s) {
		for _, s := range f.Series {
			if f.Name == name && !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(s.Labels, l) }) {
				return &s
			}
		}
	}
	return nil
}

func call(n int) {
	for range n {
		unix.Getpgid(0)
	}
}

const counting = `labels: {rack: r17}
programs:
  - name: calls
    program: 'syscall:enter / nr == getpgid && pid == $1 / { @n = count() }'
  - name: other
    program: 'syscall:enter / nr == getsid / { @ = count() }'
`

// What a program counts is a metric. A reload keeps what has not changed, and starts the rest at 0.
func TestReload(t *testing.T) {
	text := strings.ReplaceAll(counting, "$1", strings.TrimSpace(pid()))
	s, change := running(t, text)
	attached(t, s)
	call(100)
	before := series(t, s, "trace_calls_n_total", "r17")
	if before == nil || before.Value != 100 {
		t.Fatalf("%+v, want 100", before)
	}
	if err := change(text + "  - name: third\n    program: 'syscall:enter / nr == getsid / { @ = count() }'\n"); err != nil {
		t.Fatal(err)
	}
	attached(t, s)
	call(11)
	after := series(t, s, "trace_calls_n_total")
	if after.Value != 111 || !after.Created.Equal(before.Created) {
		t.Errorf("%+v after a reload, before %+v", after, before)
	}
	if up := series(t, s, "trace_program_up", "third"); up == nil || up.Value != 1 {
		t.Errorf("the new program: %+v", up)
	}
	if err := change(strings.ReplaceAll(text, "@n = count()", "@n = count(); @m = count()")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the changed program", func() bool { return series(t, s, "trace_map_keys", "@m") != nil })
	call(5)
	changed := series(t, s, "trace_calls_n_total")
	if changed.Value != 5 || !changed.Created.After(before.Created) {
		t.Errorf("%+v of a changed program", changed)
	}
	if up := series(t, s, "trace_program_up", "third"); up != nil {
		t.Errorf("a program that was removed is %+v", up)
	}
}

func pid() string { data, _ := json.Marshal(os.Getpid()); return string(data) }

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain: " + what)
}

// The configuration in the manual is right, and so are its programs.
func TestConfigurationInManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(manual), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	dir := t.TempDir()
	for name, content := range map[string]string{"trace.yaml": text, "token": "x", "flows.trace": "ib:modify_qp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(t.Context(), Options{Config: filepath.Join(dir, "trace.yaml"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || len(s.programs) != 3 {
		t.Errorf("%v, %d programs", err, len(s.programs))
	}
}

// A wrong configuration changes nothing.
func TestWrongConfiguration(t *testing.T) {
	text := strings.ReplaceAll(counting, "$1", pid())
	s, change := running(t, text)
	attached(t, s)
	for wrong, want := range map[string]string{
		strings.ReplaceAll(text, "count()", "cont()"): "program calls, at ",
		"listen: [":                              "this is not YAML",
		"programs: [{name: x, script: nothing}]": "trace has no script nothing: `trace scripts` lists them",
		"programs: [{name: x, program: 'syscall:enter { @a = count() }', maps: {b: {help: x}}}]": "the program has no map @b: its maps are @a",
		"programs: [{name: x, program: 'syscall:enter { @[comm, nr] = max(1) }'}]":               "@ cannot be a metric, as max() is not additive",
	} {
		if err := change(wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if ok := series(t, s, "trace_config_last_reload_successful"); ok == nil || ok.Value != 0 {
			t.Errorf("%+v after %s", ok, wrong)
		}
	}
	call(7)
	if n := series(t, s, "trace_calls_n_total"); n == nil || n.Value != 7 {
		t.Errorf("%+v, want 7", n)
	}
	if err := change(text); err != nil {
		t.Fatal(err)
	}
	if ok := series(t, s, "trace_config_last_reload_successful"); ok.Value != 1 {
		t.Errorf("%+v", ok)
	}
}

// Attempts come more and more seldom: a host without a device has few of them. The log has one line.
func TestTriedSeldom(t *testing.T) {
	var log lockedBuffer
	s, _ := running(t, "filter: {pgid: 4194304}\nprograms: [{name: calls, program: 'syscall:enter { @n = count() }'}]", &log)
	programs, _ := s.now()
	attempts, last := 0, errStarting
	attempted := func() bool { // each attempt has an error of its own
		_, err := programs[0].running()
		if err != last {
			attempts, last = attempts+1, err
		}
		return attempts > 2
	}
	for !attempted() {
		time.Sleep(again / 10)
	}
	began, before := time.Now(), attempts
	for time.Since(began) < 30*again {
		attempted()
		time.Sleep(again / 10)
	}
	if n, took := attempts-before, time.Since(began); n == 0 || n > int(took/(4*again)) {
		t.Errorf("%d attempts in %v, after intervals that began with %v", n, took, again)
	}
	if n := strings.Count(log.String(), "cannot be attached: --pgid 4194304: there is no such process group"); n != 1 || strings.Count(log.String(), "cannot be") != 1 {
		t.Errorf("the log has the reason %d times:\n%s", n, log.String())
	}
	var other lockedBuffer
	p := &program{log: slog.New(slog.NewTextHandler(&other, nil))}
	for _, why := range []string{"one", "one", "another", "another", "one"} {
		p.tell(why)
	}
	if got := other.String(); strings.Count(got, "msg=one") != 2 || strings.Count(got, "msg=another") != 1 {
		t.Error(got)
	}
}

// A program that could not be attached is tried again, and its reason is logged.
func TestTriedAgain(t *testing.T) {
	child := exec.Command("sh", "-c", "read begin; exec setsid sh -c 'kill -0 $$; read end'")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); child.Wait() })
	var log lockedBuffer
	s, _ := running(t, fmt.Sprintf("filter: {pgid: %d}\nprograms: [{name: calls, program: 'syscall:enter / nr == kill / { @n = count() }'}]", child.Process.Pid), &log)
	why := fmt.Sprintf("--pgid %d: there is no such process group", child.Process.Pid)
	waitFor(t, "the first attempt", func() bool { return strings.Contains(log.String(), "cannot be attached: "+why) })
	if got := s.ready().Waiting["calls"]; !strings.HasPrefix(got, why) {
		t.Errorf("%q, want %q", got, why)
	}
	io.WriteString(stdin, "begin\n")
	attached(t, s)
	if got := strings.Count(log.String(), why); got != strings.Count(log.String(), "cannot be attached") {
		t.Errorf("the reason stands more than once in a line:\n%s", log.String())
	}
}

// The filter of the configuration is a filter of each program.
func TestFilter(t *testing.T) {
	for filter, want := range map[string][2]float64{"pid: " + pid(): {100, 0}, "comm: sh": {0, 1}} {
		s, _ := running(t, "filter: {"+filter+"}\nprograms:\n  - {name: calls, program: 'syscall:enter / nr == getpgid / { @ = count() }'}\n"+
			"  - {name: kills, program: 'syscall:enter / nr == kill / { @ = count() }'}\n")
		attached(t, s)
		call(100)
		if err := exec.Command("sh", "-c", "kill -0 $$").Run(); err != nil {
			t.Fatal(err)
		}
		calls, kills := series(t, s, "trace_calls_total"), series(t, s, "trace_kills_total")
		if calls.Value != want[0] || kills.Value != want[1] {
			t.Errorf("%s: %v calls and %v kills, want %v", filter, calls.Value, kills.Value, want)
		}
	}
}

// The series of a cgroup that has ended moves to the others.
func TestEndedCgroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, which makes cgroups")
	}
	dir, _, ok := kernel.NewCgroups().Mount()
	if !ok {
		t.Skip("needs a tree of cgroups")
	}
	dir = filepath.Join(dir, "trace-test-ended")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	removed := false
	t.Cleanup(func() {
		if !removed {
			os.Remove(dir)
		}
	})
	s, _ := running(t, "programs: [{name: kills, program: 'syscall:enter / nr == kill / { @[cgroup] = count() }'}]")
	attached(t, s)
	if out, err := exec.Command("sh", "-c", "echo $$ >"+dir+"/cgroup.procs; kill -0 $$; kill -0 $$").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if k := series(t, s, "trace_kills_total", "/trace-test-ended"); k == nil || k.Value != 2 {
		t.Fatalf("%+v, want 2", k)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	removed = true
	waitFor(t, "the others have it", func() bool {
		k := series(t, s, "trace_kills_total", "other")
		return k != nil && k.Value >= 2 && series(t, s, "trace_kills_total", "/trace-test-ended") == nil
	})
}

// While the kernel measures BPF programs, the cost of each probe is a metric.
func TestCost(t *testing.T) {
	s, _ := running(t, strings.ReplaceAll(counting, "$1", pid()))
	attached(t, s)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	call(1000)
	if err := stats.Close(); err != nil {
		t.Fatal(err)
	}
	runs, took := series(t, s, "trace_bpf_runs_total", "syscall:enter", "calls"), series(t, s, "trace_bpf_run_seconds_total", "syscall:enter", "calls")
	if runs == nil || took == nil || runs.Value < 1000 || took.Value <= 0 || took.Value > runs.Value/1000 {
		t.Errorf("%+v runs took %+v", runs, took)
	}
}

// What a program prints goes out as events, if that is wanted.
func TestEvents(t *testing.T) {
	s, _ := running(t, strings.ReplaceAll(`programs:
  - name: calls
    program: 'syscall:enter / nr == getpgid && pid == $1 /'
    events: otlp
`, "$1", pid()))
	attached(t, s)
	call(3)
	var got []wire.Event
	err := s.Events(t.Context(), func(e []wire.Event) error {
		if got = append(got, e...); len(got) == 3 {
			return io.EOF
		}
		return nil
	})
	if !errors.Is(err, io.EOF) || got[0].Program != "calls" || got[0].Probe != "syscall:enter" || !strings.Contains(string(got[0].Fields), `"nr":"getpgid"`) {
		t.Errorf("%v, %+v", err, got)
	}
}

// Events that nobody reads are counted.
func TestEventsAreBounded(t *testing.T) {
	e := &events{program: "p"}
	for range maxEvents + 5 {
		e.add(wire.Event{})
	}
	if all := e.take(); len(all) != maxEvents || all[0].Lost != 5 {
		t.Errorf("%d events, %d lost", len(all), all[0].Lost)
	}
	if all := e.take(); len(all) != 0 {
		t.Errorf("%d events are left", len(all))
	}
}

func TestUnknownRequest(t *testing.T) {
	s, _ := running(t, "")
	if _, err := s.Answer(t.Context(), wire.Request{Do: "dance"}); err == nil || err.Error() != "there is no request \"dance\": are trace and trace-web of one version?" {
		t.Error(err)
	}
	if _, err := s.Answer(t.Context(), wire.Request{Do: wire.DoReload}); err == nil || err.Error() != "reload_by_http is not set in the configuration" {
		t.Error(err)
	}
}

// POST /-/reload reads the configuration again, and reports a mistake.
func TestReloadByRequest(t *testing.T) {
	text := "reload_by_http: true\n"
	s, change := running(t, text)
	if _, err := s.Answer(t.Context(), wire.Request{Do: wire.DoReload}); err != nil {
		t.Error(err)
	}
	change("programs: [{name: x, script: nothing}]\n" + text)
	if _, err := s.Answer(t.Context(), wire.Request{Do: wire.DoReload}); err == nil || !strings.Contains(err.Error(), "trace has no script nothing") {
		t.Error(err)
	}
}

// What the programs have counted goes on in another process, unless it is another program.
func TestRestore(t *testing.T) {
	text := strings.ReplaceAll(counting, "$1", pid())
	before, _ := running(t, text)
	attached(t, before)
	call(100)
	old := series(t, before, "trace_calls_n_total")
	state, err := before.State()
	if err != nil {
		t.Fatal(err)
	}
	for changed, want := range map[string]float64{"count()": 107, "sum(1)": 7} {
		s, err := New(t.Context(), Options{Config: configured(t, strings.ReplaceAll(text, "count()", changed)), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Restore(state); err != nil {
			t.Fatal(err)
		}
		start(t, s)
		attached(t, s)
		call(7)
		if n := series(t, s, "trace_calls_n_total"); n.Value != want || n.Created.Equal(old.Created) != (want > 100) {
			t.Errorf("%s: %+v, want %v; before %+v", changed, n, want, old)
		}
		if err := s.Restore([]byte("{")); err == nil || !strings.HasPrefix(err.Error(), "what was counted before: ") {
			t.Error(err)
		}
	}
}

// --check prints what the running loader would change.
func TestCheck(t *testing.T) {
	text := strings.ReplaceAll(counting, "$1", pid())
	s, _ := running(t, text)
	socket := filepath.Join(t.TempDir(), "loader.sock")
	l, err := socketAt(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	go wire.Serve(t.Context(), l, wire.Anyone, s)
	if _, err := socketAt(socket, 0o600); err == nil || err.Error() != "socket: a loader is answering at "+socket+" already" {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "new.yaml")
	changed := strings.ReplaceAll(text, "getsid / {", "getsid /{ @x = count();") + "  - name: third\n    program: 'syscall:enter { @ = count() }'\n"
	changed = strings.ReplaceAll(changed, "name: calls\n    program: 's", "name: calls\n    program: '  s")
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Main(t.Context(), Settings{Options: Options{Config: file}, Socket: socket, Check: true}, &out); err != nil {
		t.Fatal(err)
	}
	if want := "calls: unchanged\nother: changed: it starts at 0\nthird: new\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// A profile has what was counted while it was made.
func TestProfile(t *testing.T) {
	s, _ := running(t, strings.ReplaceAll(`programs:
  - name: stacks
    program: 'syscall:enter / nr == getpgid && pid == $1 / { @calls[ustack, comm] = count() }'
  - name: calls
    program: 'syscall:enter { @ = count() }'
`, "$1", pid()))
	attached(t, s)
	call(100)
	time.AfterFunc(300*time.Millisecond, func() { call(30) })
	answer, err := s.Answer(t.Context(), wire.Request{Do: wire.GetProfile, Program: "stacks", Seconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(answer.([]byte))
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for _, sample := range p.Sample {
		n += sample.Value[0]
	}
	if n != 30 || p.SampleType[0].Type != "calls" || p.Sample[0].Label["comm"] == nil {
		t.Errorf("%d calls: %v", n, p)
	}
	for _, test := range []struct {
		program, want string
		seconds       int
	}{
		{"none", `there is no program "none" in the configuration`, 1}, {"stacks", "a profile takes from 1 to 300 seconds", 301},
		{"calls", "program calls has no map with a stack: write one like @[kstack] = count()", 1},
	} {
		if _, err := s.Answer(t.Context(), wire.Request{Do: wire.GetProfile, Program: test.program, Seconds: test.seconds}); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	programs, _ := s.now()
	programs[1].set(nil, errStarting)
	if _, err := s.Answer(t.Context(), wire.Request{Do: wire.GetProfile, Program: "calls", Seconds: 1}); err == nil || err.Error() != "program calls is not attached: it is being attached" {
		t.Error(err)
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	if _, err := s.Answer(ctx, wire.Request{Do: wire.GetProfile, Program: "stacks", Seconds: 100}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A program that ends by itself keeps its metrics; the log has it, and that it is no longer attached is seen.
func TestEnds(t *testing.T) {
	var log lockedBuffer
	s, _ := running(t, "programs: [{name: once, program: 'syscall:enter { @ = count(); exit() }'}]", &log)
	waitFor(t, "its end", func() bool { return strings.Contains(log.String(), "it has ended by itself") })
	if n := series(t, s, "trace_once_total"); n == nil || n.Value == 0 { // another CPU may have counted, too
		t.Errorf("%+v", n)
	}
	if n := series(t, s, "trace_program_up", "once"); n == nil || n.Value != 0 || up(t, s, "once", "syscall:enter") != 0 {
		t.Errorf("its program is up: %+v, its probe: %v", n, up(t, s, "once", "syscall:enter"))
	}
	if left := s.ready().LeftOut["once"]; len(left) != 1 || left[0] != "all of its probes: it has ended by itself" {
		t.Errorf("left out: %q", left)
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
