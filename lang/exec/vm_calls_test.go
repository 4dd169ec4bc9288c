//go:build vm

package exec

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"trace/probes"
)

// Verbs of many threads, which end and whose numbers are used again, while others execute a program and the CPUs are sampled, are counted one by
// one, and have their own latencies: those in a table by thread, and those in the hash for which it has no room. The threads themselves count and
// take the time.
func TestVMManyThreads(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "verbs_threads")
	shell(t, "gcc -Wall -Werror -O2 -pthread -o %s testdata/verbs_threads.c -libverbs", binary)
	useNumbersAgain(t)
	for _, driver := range []bool{false, true} {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprintf("driver: %v, full tables: %v", driver, full), func(t *testing.T) {
				groups := []string{"ib"}
				if driver {
					insertStandIn(t)
					groups = append(groups, "mlx5")
				}
				traceVerbs(t, binary, full, groups)
			})
		}
	}
}

// useNumbersAgain leaves few numbers for threads.
func useNumbersAgain(t *testing.T) {
	const limit = "/proc/sys/kernel/pid_max"
	usual := shell(t, "cat %s", limit)
	shell(t, "read -r _ _ _ _ last </proc/loadavg; echo $((last > 301 ? last + 50 : 351)) > %s", limit)
	t.Cleanup(func() { shell(t, "echo %s > %s", strings.TrimSpace(usual), limit) })
}

// insertStandIn loads the module to which the verbs of rxe0 go then, too (cmd/vmtest/mlx5).
func insertStandIn(t *testing.T) {
	ko := os.Getenv("VMTEST_MLX5_KO")
	if ko == "" {
		t.Skip("needs vmtest -mlx5")
	}
	shell(t, "modprobe -r mlx5_ib; insmod %s", ko)
	t.Cleanup(func() { shell(t, "for i in $(seq 100); do rmmod mlx5_ib && exit; sleep 0.2; done 2>/dev/null; exit 1") })
}

var (
	threadLine = regexp.MustCompile(`(?m)^([tne]\d+) create_qp (\d+) modify_qp (\d+) destroy_qp (\d+) ns (\d+)$`)
	verbLine   = regexp.MustCompile(`(?m)^@(calls|took)\[(\w+:\w+), ([tne]\d+)\]: (\d+)$`)
)

func traceVerbs(t *testing.T, binary string, full bool, groups []string) {
	var verbs []string
	for _, group := range groups {
		for _, verb := range []string{"create_qp", "modify_qp", "destroy_qp"} {
			verbs = append(verbs, group+":"+verb)
		}
	}
	// An emulated CPU has no time for 10,000 samples a second. A kretprobe of 5.10 has one instance for each CPU (kprobe.attach in probes), and
	// each thread may wait in its call.
	threads := crowd * runtime.NumCPU()
	if os.Getenv("VMTEST_KERNEL") == "5.10" {
		threads = runtime.NumCPU()
	}
	var counted string
	out, losses := traced(t, probes.HostOptions{FullTables: full}, strings.Join(verbs, ", ")+` { @calls[probe, comm] = count(); @took[probe, comm] = sum((uint64)latency) }
		profile:1000hz { @samples = count() }`, func() { counted = shell(t, "%s %d %d", binary, threads, 2*generations) })
	calls, took := make(map[string]string), make(map[string]int)
	for _, row := range verbLine.FindAllStringSubmatch(out, -1) {
		if row[1] == "calls" {
			calls[row[2]+" "+row[3]] = row[4]
			continue
		}
		ns, _ := strconv.Atoi(row[4])
		took[strings.Split(row[2], ":")[0]+" "+row[3]] += ns
	}
	all := threadLine.FindAllStringSubmatch(counted, -1)
	if len(all) != 2*generations*(threads+2) || !regexp.MustCompile(`(?m)^@samples: [1-9]`).MatchString(out) {
		t.Errorf("%d threads, %.300s", len(all), out)
	}
	for _, thread := range all {
		name, ns := thread[1], thread[5]
		for i, verb := range verbs {
			if got, want := calls[verb+" "+name], thread[2+i%3]; got != want {
				t.Errorf("%s by thread %s: %s calls, by its own count %s", verb, name, got, want)
			}
		}
		for _, group := range groups {
			if most, _ := strconv.Atoi(ns); took[group+" "+name] == 0 || took[group+" "+name] > most {
				t.Errorf("the calls of %s by thread %s took %d ns, by its own clock %d", group, name, took[group+" "+name], most)
			}
		}
	}
	checkKept(t, losses, full)
}

// checkKept checks that nothing was lost, and where beginnings were kept.
func checkKept(t *testing.T, losses []probes.Losses, full bool) {
	for _, l := range losses {
		if l.Probe.Group == "profile" {
			continue // a sample may be skipped
		}
		if l.Lost() > 0 || full != (l.Overflowed > 0) {
			t.Errorf("%s: lost %d, %d in a hash: %+v", l.Probe, l.Lost(), l.Overflowed, l)
		}
	}
}

func shell(t *testing.T, format string, args ...any) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", fmt.Sprintf(format, args...)).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", fmt.Sprintf(format, args...), err, out)
	}
	return string(out)
}
