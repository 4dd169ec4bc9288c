//go:build linux

package serve

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace"
)

// attaches reports whether a probe alone can be attached here.
func attaches(t *testing.T, probe string) bool {
	t.Helper()
	host, err := trace.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	p, err := host.Compile("alone", probe+" { @ = count() }", nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := p.Start(t.Context())
	if err != nil {
		return false
	}
	if err := run.Close(); err != nil {
		t.Error(err)
	}
	return true
}

// unavailable returns a probe that cannot be attached here, as the kernel refuses it, or as it is not there.
func unavailable(t *testing.T, refused bool) string {
	t.Helper()
	host, err := trace.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for _, probe := range []string{"oom:kill", "memory:reclaim", "block:tag_wait", "mlx5:cmd", "nvme:complete_rq", "ib:modify_qp"} {
		found, err := host.Available(probe)
		if err != nil {
			t.Fatal(err)
		}
		if seems := found[0].Err == nil; seems == refused && !attaches(t, probe) {
			return probe
		}
	}
	t.Skip("all these probes are available")
	return ""
}

// up returns what trace_probe_up has, -1 without a series.
func up(t *testing.T, s *Service, program, probe string) float64 {
	t.Helper()
	if found := series(t, s, "trace_probe_up", program, probe); found != nil {
		return found.Value
	}
	return -1
}

// What a program lacks is left out, whether it is not there or refused: the rest counts. It is in the answer about readiness, in a metric, and in the log
// once. A program that cannot do without it waits, and so does one that has nothing else.
func TestLeftOut(t *testing.T) {
	for _, refused := range []bool{true, false} {
		t.Run(fmt.Sprintf("refused=%v", refused), func(t *testing.T) {
			probe := unavailable(t, refused)
			var log lockedBuffer
			s, _ := running(t, fmt.Sprintf(`labels: {rack: r17}
programs:
  - name: calls
    program: 'syscall:enter / nr == getpgid && pid == %[1]s / { @n = count() } %[2]s { @m = count() }'
  - name: strict
    program: 'config = { missing_probes = "error" } syscall:enter { @n = count() } %[2]s { @m = count() }'
  - name: none
    program: '%[2]s { @m = count() } interval:1 { @n = count() }'
`, pid(), probe), &log)
			waitFor(t, "the programs", func() bool {
				_, err := s.programs[0].running()
				return err == nil && strings.Count(log.String(), "cannot be attached: ") == 2
			})
			time.Sleep(8 * again) // some more attempts
			call(5)
			if n := series(t, s, "trace_calls_n_total"); n == nil || n.Value != 5 {
				t.Errorf("%+v, want 5", n)
			}
			r := s.ready()
			if left := r.LeftOut["calls"]; len(left) != 1 || !strings.HasPrefix(left[0], probe+" is not available: ") || len(r.LeftOut) != 1 {
				t.Errorf("left out: %q", r.LeftOut)
			}
			if len(r.Waiting) != 2 || !strings.Contains(r.Waiting["strict"], probe) || !strings.Contains(r.Waiting["none"], probe) {
				t.Errorf("waiting: %q", r.Waiting)
			}
			for name, want := range map[string]float64{"calls/syscall:enter": 1, "calls/" + probe: 0, "strict/syscall:enter": 0, "strict/" + probe: 0, "none/" + probe: 0} {
				program, p, _ := strings.Cut(name, "/")
				if got := up(t, s, program, p); got != want {
					t.Errorf("trace_probe_up of %s is %v, want %v", name, got, want)
				}
			}
			if n := series(t, s, "trace_events_total", "calls", probe); n != nil {
				t.Errorf("%s has counts: %+v", probe, n)
			}
			if strings.Count(log.String(), "left out: "+probe) != 1 || strings.Count(log.String(), "cannot be attached: ") != 2 {
				t.Error(log.String())
			}
			p := s.programs[0]
			if err := p.run.Stop(); err != nil {
				t.Error(err)
			}
			if p.retry(t.Context(), p.run); !strings.Contains(log.String(), "what was left out cannot be tried again: the session is detached") {
				t.Error(log.String())
			}
		})
	}
}

// What is asked while the service ends is answered.
func TestAskedAtTheEnd(t *testing.T) {
	s, _ := running(t, "programs: [{name: calls, program: 'syscall:enter { @n = count() }'}]")
	attached(t, s)
	s.programs[0].end()
	waitFor(t, "its end", func() bool { return s.ready().Waiting["calls"] == "the service is ending" })
	if up(t, s, "calls", "syscall:enter") != 0 {
		t.Error("it is attached")
	}
}

// What was left out is attached once that is possible. The program counts on.
func TestAttachedLater(t *testing.T) {
	if os.Getenv("OWN_MOUNTS") == "" {
		inNamespace(t)
		return
	}
	const tracefs, probe = "/sys/kernel/tracing", "vm:rss" // which reads tracefs
	for unix.Unmount(tracefs, unix.MNT_DETACH) == nil {
	}
	host, err := trace.Open()
	if err != nil {
		t.Fatal(err)
	}
	if found, err := host.Available(probe); err != nil || found[0].Err == nil || !strings.Contains(found[0].Err.Error(), "tracefs is not mounted") {
		t.Skipf("%+v does not depend on tracefs here: %v", found, err)
	}
	var log lockedBuffer
	s, _ := running(t, fmt.Sprintf("programs: [{name: calls, program: 'syscall:enter / nr == getpgid && pid == %s / { @n = count() } %s { @m = count(); print(1) }', events: otlp}]", pid(), probe), &log)
	attached(t, s)
	call(5)
	before := series(t, s, "trace_calls_n_total")
	if up(t, s, "calls", probe) != 0 || series(t, s, "trace_calls_m_total").Value != 0 || before.Value != 5 {
		t.Fatalf("%+v\n%s", before, log.String())
	}
	if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
		t.Fatal(err)
	}
	waitFor(t, probe, func() bool { return strings.Contains(log.String(), "attached, too: "+probe) })
	call(7)
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its events", func() bool { return series(t, s, "trace_calls_m_total").Value > 0 })
	if after := series(t, s, "trace_calls_n_total"); after.Value != 12 || !after.Created.Equal(before.Created) {
		t.Errorf("%+v, before %+v", after, before)
	}
	if left := s.ready().LeftOut; len(left) != 0 || up(t, s, "calls", probe) != 1 {
		t.Errorf("left out: %q", left)
	}
}

// inNamespace runs the test again with mounts of its own.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, which mounts")
	}
	again := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	again.Env = append(os.Environ(), "OWN_MOUNTS=1")
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := again.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) && !strings.Contains(string(out), "--- SKIP: "+t.Name()) {
		t.Error(err)
	}
}

// The default configuration gives what this machine has: each program whose probes are here in part is attached, with just these.
func TestDefaultConfiguration(t *testing.T) {
	text, err := os.ReadFile("../../cmd/trace-web/deploy/trace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := running(t, string(text))
	available := map[string]bool{}
	for _, p := range s.programs {
		for _, name := range p.compiled.Probes() {
			available[name] = attaches(t, name)
		}
	}
	for _, p := range s.programs {
		some := slices.ContainsFunc(p.compiled.Probes(), func(name string) bool { return available[name] })
		waitFor(t, "program "+p.spec.Name, func() bool { _, err := p.running(); return err != errStarting })
		if _, err := p.running(); (err == nil) != some {
			t.Errorf("program %s: %v", p.spec.Name, err)
		}
		for _, name := range p.compiled.Probes() {
			if got := up(t, s, p.spec.Name, name) == 1; got != available[name] {
				t.Errorf("program %s: %s is attached: %v, available: %v", p.spec.Name, name, got, available[name])
			}
		}
	}
	if up(t, s, "host", "sched:runq") != 1 {
		t.Error("sched:runq is not attached")
	}
	waitFor(t, "counts", func() bool { n := series(t, s, "trace_host_runq_seconds", "/"); return n != nil && n.Count > 0 })
}

// --check refuses what can run nowhere, with its place, as the service does at its start and at a reload. What this machine lacks is no mistake.
func TestCheckRefuses(t *testing.T) {
	one := func(program string) string {
		return "programs:\n- {name: p, program: '" + program + "'}\n"
	}
	for _, test := range []struct{ text, want string }{
		{one("syscall:exit { @[comm, nr] = max(1) }"), "program p, at file:2:10: file:2:1:16: @ cannot be a metric, as max() is not additive"},
		{one("syscall:exit { @a = count(); @t = topk(comm, 3) }"), "file:2:1:30: @t cannot be a metric, as topk() is not additive"},
		{one("syscall:exit { @a[comm, kstack] = max(latency) }"), "@a cannot be a metric, as max() is not additive"},
		{one("syscall:exit { @[le = comm, key_le = nr] = count() }"), "two of its labels would be key_le"},
		{one("syscall:exit { @ = comm }"), "as its values are no numbers"},
		{one(`syscall:exit { printf("x") }`), "the program has no map, and nobody gets what it prints: write a map like @ = count(), or events: otlp"},
		{one("syscall:exit / nr == kill /"), "the program has no map"},
		{"filter: {comm: name-of-16-bytes}\n" + one("syscall:exit { @ = count() }"), "names of threads have at most 15 bytes"},
		{"filter: {cgroup: a}\n" + one("syscall:exit { @ = count() }"), "not the path of a cgroup"},
		{"filter: {comm: a}\n" + one("net:counters { @ = count() }"), "net:counters has no process, and the filter"},
		{one(`syscall:exit / comm matches "a" / { @[numaid] = count() }`), "numaid is read in the kernel, at the event, and this clause runs in user space"},
		{one("syscall:exit { @ = count() }"), ""},
		{one("syscall:exit { @a = count(); @b[kstack] = sum(latency) }"), ""},
		{"programs: [{name: p, program: 'syscall:exit', events: otlp}]", ""},
		{"programs: [{name: p, script: rdma_top}]", ""}, // some of its maps are no metrics
		{"filter: {cgroup: /not-here}\n" + one("syscall:exit { @ = count() }"), ""},
	} {
		got := mistakeOf(t, test.text)
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: got %q, want %q", test.text, got, test.want)
		}
		s, err := New(t.Context(), Options{Config: configured(t, test.text), Log: slog.New(slog.DiscardHandler)})
		if (err == nil) != (got == "") {
			t.Errorf("%s: --check has %q, the service %v", test.text, got, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// --check prints what this machine lacks, and accepts it.
func TestCheckHere(t *testing.T) {
	if _, err := os.Stat("/sys/module/mlx5_core"); err == nil {
		t.Skip("it has the module")
	}
	file := configured(t, "programs: [{name: p, program: 'syscall:exit { @ = count() } mlx5:cmd { @m = count() }'}]")
	var out strings.Builder
	err := Main(t.Context(), Settings{Options: Options{Config: file}, Check: true}, &out)
	if want := "p: new\np: here, mlx5:cmd is not available: module mlx5_core is not loaded (modprobe mlx5_core)\n"; err != nil || out.String() != want {
		t.Errorf("%v: %q, want %q", err, out.String(), want)
	}
}
