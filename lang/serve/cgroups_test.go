//go:build linux

package serve

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trace/lang/metrics/family"
	"trace/lang/serve/wire"
	"trace/probes/kernel"
)

// someCalls are system calls that neither Go nor libc makes by itself. Without arguments, each is harmless.
var someCalls = []struct {
	name string
	nr   uintptr
}{
	{"getpgid", unix.SYS_GETPGID}, {"getsid", unix.SYS_GETSID}, {"getpriority", unix.SYS_GETPRIORITY}, {"sched_getscheduler", unix.SYS_SCHED_GETSCHEDULER},
	{"sched_getparam", unix.SYS_SCHED_GETPARAM}, {"sched_get_priority_max", unix.SYS_SCHED_GET_PRIORITY_MAX}, {"sched_get_priority_min", unix.SYS_SCHED_GET_PRIORITY_MIN},
	{"sched_rr_get_interval", unix.SYS_SCHED_RR_GET_INTERVAL}, {"getresuid", unix.SYS_GETRESUID}, {"getresgid", unix.SYS_GETRESGID}, {"getgroups", unix.SYS_GETGROUPS},
	{"getitimer", unix.SYS_GETITIMER}, {"times", unix.SYS_TIMES}, {"sysinfo", unix.SYS_SYSINFO}, {"capget", unix.SYS_CAPGET}, {"getrusage", unix.SYS_GETRUSAGE},
	{"getcpu", unix.SYS_GETCPU}, {"ioprio_get", unix.SYS_IOPRIO_GET}, {"timer_getoverrun", unix.SYS_TIMER_GETOVERRUN}, {"getegid", unix.SYS_GETEGID},
}

// manyCgroups is how many cgroups make calls.
const manyCgroups = 200

// callsIn returns how often the process in a cgroup makes a call.
func callsIn(cgroup, call int) int { return 1 + (7*cgroup+3*call)%13 }

// callIn makes the calls in each cgroup below a folder: this process moves from one to the next.
func callIn(folder string) error {
	for i := range manyCgroups {
		if err := os.WriteFile(filepath.Join(folder, cgroupName(i), "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
		for k, call := range someCalls {
			for range callsIn(i, k) {
				unix.RawSyscall(call.nr, 0, 0, 0)
			}
		}
	}
	return nil
}

func cgroupName(i int) string { return fmt.Sprintf("c%03d", i) }

// makeCgroups makes the cgroups below one of its own. remove removes them all.
func makeCgroups(t testing.TB, name string) (folder string, remove func()) {
	t.Helper()
	mount, _, ok := kernel.NewCgroups().Mount()
	if !ok {
		t.Skip("needs cgroups to be mounted, like mount -t cgroup2 none /sys/fs/cgroup")
	}
	folder = filepath.Join(mount, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Skipf("needs root, and cgroups that can be written to: %v", err)
	}
	remove = func() {
		for i := range manyCgroups {
			os.Remove(filepath.Join(folder, cgroupName(i)))
		}
		os.Remove(folder)
	}
	t.Cleanup(remove)
	for i := range manyCgroups {
		if err := os.MkdirAll(filepath.Join(folder, cgroupName(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder, remove
}

// familyOf returns the family of a name, as the other process gets it.
func familyOf(t *testing.T, s *Service, name string) (f family.Family) {
	t.Helper()
	all := scrape(t, s)
	if i := slices.IndexFunc(all, func(f family.Family) bool { return f.Name == name }); i >= 0 {
		f = all[i]
	}
	return f
}

func sum(f family.Family) (n int) {
	for _, s := range f.Series {
		n += int(s.Value)
	}
	return n
}

// countCalls is a program that counts the calls, as YAML.
func countCalls() string {
	var calls []string
	for _, c := range someCalls {
		calls = append(calls, "nr == "+c.name)
	}
	return fmt.Sprintf("program: 'syscall:exit / %s / { @[cgroup, nr] = count() }'", strings.Join(calls, " || "))
}

// callFrom makes the calls from another process.
func callFrom(folder string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	caller := exec.Command(self, folder)
	caller.Args[0] = callerName
	if out, err := caller.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Two hundred cgroups make twenty system calls each. Every series is exact if there is room for all of them, and so is the sum if there is not, and
// when the cgroups are gone.
func TestManyCgroups(t *testing.T) {
	const name = "trace-test-many"
	folder, remove := makeCgroups(t, name)
	const all, few = manyCgroups * 20, 1000
	s, _ := running(t, fmt.Sprintf("filter: {cgroup: /%s}\nprograms:\n  - {name: all, series: %d, %s}\n  - {name: few, series: %d, %[3]s}\n", name, all, countCalls(), few))
	attached(t, s)
	over := make(chan error)
	go func() { over <- callFrom(folder) }()
	for before, ended := 0, false; !ended; {
		select {
		case err := <-over:
			if ended = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
		now := sum(familyOf(t, s, "trace_few_total"))
		if now < before {
			t.Errorf("the sum has fallen from %d to %d", before, now)
		}
		before = now
	}
	want, total := map[string]int{}, 0
	for i := range manyCgroups {
		for k, c := range someCalls {
			n := callsIn(i, k)
			want["/"+name+"/"+cgroupName(i)+" "+c.name] = n
			total += n
		}
	}
	f := familyOf(t, s, "trace_all_total")
	for _, s := range f.Series {
		labels := strings.Join(s.Labels, " ")
		if want[labels] != int(s.Value) {
			t.Errorf("%s: %v, want %d", labels, s.Value, want[labels])
		}
		delete(want, labels)
	}
	if len(want) > 0 || len(f.Series) != all {
		t.Errorf("%d series, without %v", len(f.Series), want)
	}
	if f := familyOf(t, s, "trace_few_total"); len(f.Series) != few+1 || sum(f) != total || !f.Series[few].Overflow {
		t.Errorf("%d series have %d in all, want %d with %d", len(f.Series), sum(f), few+1, total)
	}
	remove()
	for range 4 { // then the others have all
		for _, name := range []string{"trace_all_total", "trace_few_total"} {
			if f = familyOf(t, s, name); sum(f) != total {
				t.Errorf("%s: %d in all after the cgroups are gone, want %d", name, sum(f), total)
			}
		}
	}
	if len(f.Series) != 1 || !f.Series[0].Overflow {
		t.Errorf("%d series are left", len(f.Series))
	}
}

// BenchmarkRead reads 4,000 series from a map in the kernel.
func BenchmarkRead(b *testing.B) {
	const name = "trace-test-read"
	folder, _ := makeCgroups(b, name)
	s, _ := running(b, fmt.Sprintf("filter: {cgroup: /%s}\nprograms: [{name: calls, series: 10000, %s}]\n", name, countCalls()))
	attached(b, s)
	if err := callFrom(folder); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Answer(b.Context(), wire.Request{Do: wire.GetMetrics}); err != nil {
			b.Fatal(err)
		}
	}
}

// A service that is started again has another cgroup with the same path. Its counts go on, and an assigned value is not added to the one before.
func TestRemadeCgroup(t *testing.T) {
	const name, calls = "trace-test-remade", 1000
	mount, _, ok := kernel.NewCgroups().Mount()
	if !ok {
		t.Skip("needs cgroups to be mounted, like mount -t cgroup2 none /sys/fs/cgroup")
	}
	folder := filepath.Join(mount, name)
	if err := os.MkdirAll(filepath.Join(folder, "service"), 0o755); err != nil {
		t.Skipf("needs root, and cgroups that can be written to: %v", err)
	}
	t.Cleanup(func() { os.Remove(folder) })
	s, _ := running(t, fmt.Sprintf("filter: {cgroup: /%s}\nprograms:\n  - {name: p, program: 'syscall:exit / nr == kill / { @n[cgroup] = count(); @s[cgroup] = 7 }'}\n", name))
	attached(t, s)
	script := fmt.Sprintf("echo 0 > %s/service/cgroup.procs; i=0; while [ $i -lt %d ]; do kill -0 $$; i=$((i+1)); done", folder, calls)
	for starts := range 3 {
		if err := os.MkdirAll(filepath.Join(folder, "service"), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if n, assigned := sum(familyOf(t, s, "trace_p_n_total")), sum(familyOf(t, s, "trace_p_s")); n != calls*(starts+1) || assigned != 7 {
			t.Errorf("after %d starts: %d calls, and %d is assigned", starts+1, n, assigned)
		}
		if err := os.Remove(filepath.Join(folder, "service")); err != nil {
			t.Fatal(err)
		}
	}
}
