package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trace/probes"
)

// Programs see which unit the cgroup of a task belongs to: in the kernel, in user space, and in a recording, when the cgroups are gone. One
// unit has two cgroups, whose counts are joined. Another one is made only when tracing has begun.
func TestWorkloadsLive(t *testing.T) {
	requireLive(t)
	unit := fmt.Sprintf("trace-test-%d", os.Getpid())
	replacer := strings.NewReplacer("UNIT", unit, "WHEN", `comm == "helper" && nr == getppid`)
	program := replacer.Replace(`
		syscall:enter / WHEN / { @[unit] = count() }
		syscall:enter / WHEN && unit == "UNIT.service" / { @one = count() }
		syscall:enter / WHEN && unit == "UNIT-later.scope" / { @later = count() }
		syscall:enter / WHEN && unit in ["UNIT.service", "UNIT-later.scope"] && !(unit endsWith ".scope") / { @in = count() }
		syscall:enter / WHEN && unit != "UNIT.service" / { @other = count() }
		syscall:enter / WHEN && unit matches "^trace-test-.*scope$" && pod == nil / { @matches = count() }
		syscall:enter / WHEN && (pod ?? unit) == "UNIT.service" / { @sum[unit, pid > 0] += 1 }
		syscall:enter / WHEN && !(unit == "UNIT.service" && nr == getppid) / { @not = count() }
		syscall:enter / WHEN && !(pod == "none" && nr == getppid) / { @absent = count() }
		syscall:enter / WHEN && pod == "none" / { @none = count() }`)
	want := replacer.Replace("@[UNIT-later.scope]: 50\n@[UNIT.service]: 70\n@absent: 0\n@in: 70\n@later: 50\n@matches: 50\n@none: 0\n@not: 50\n@one: 70\n@other: 50\n@sum[UNIT.service, true]: 70\n")
	w := workloads{t, unit}
	recorded := filepath.Join(t.TempDir(), "recorded")
	for name, run := range map[string]func(output string){
		"kernel":     func(output string) { w.trace("-o", output, program) },
		"user space": func(output string) { w.trace("--no-kernel", "-o", output, program) },
		"both":       func(output string) { w.trace("--compare", "-o", output, program) },
		"recording": func(output string) {
			w.trace("record", "-o", recorded, replacer.Replace("syscall:enter / WHEN /"))
			if said, err := exec.Command("trace", "-r", recorded, "-o", output, program).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			output := filepath.Join(t.TempDir(), "output")
			run(output)
			printed, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			if got := inOrder(string(printed)); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// inOrder sorts lines.
func inOrder(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// workloads are units with cgroups of the tests.
type workloads struct {
	t    *testing.T
	unit string
}

// trace runs trace while programs run in the cgroups of two units.
func (w workloads) trace(arguments ...string) {
	catalog, err := probes.Load()
	if err != nil {
		w.t.Fatal(err)
	}
	mount, _, ok := catalog.Cgroups().Mount()
	if !ok {
		w.t.Skip("needs cgroups to be mounted, like mount -t cgroup2 none /sys/fs/cgroup")
	}
	service, later := filepath.Join(mount, w.unit+".service"), filepath.Join(mount, w.unit+"-later.scope")
	for _, dir := range []string{service, service + "/one", service + "/two"} {
		makeCgroup(w.t, dir)
		w.t.Cleanup(func() { os.Remove(dir) })
	}
	w.t.Cleanup(func() { os.Remove(later) })
	if out, err := exec.Command("sh", "-c", "echo 0 >"+service+"/cgroup.procs").CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("Permission denied")) || bytes.Contains(out, []byte("Operation not permitted")) {
			w.t.Skipf("needs root, and cgroups that can be written to, to move a process: %s", out)
		}
		w.t.Fatalf("%v: %s", err, out)
	}
	script := filepath.Join(w.t.TempDir(), "script")
	text := strings.NewReplacer("SERVICE", service, "LATER", later).Replace(`set -e
(echo 0 >SERVICE/one/cgroup.procs; exec helper 30)
(echo 0 >SERVICE/two/cgroup.procs; exec helper 40)
mkdir LATER
sleep 0.5 # until trace has read its name
(echo 0 >LATER/cgroup.procs; exec helper 50)
`)
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	if said, err := exec.Command("trace", append([]string{"--children", "-c", "sh " + script}, arguments...)...).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %v\n%s", arguments, err, said)
	}
}

// What the kernel has answers to, and what it has not.
func TestWorkloadPlaces(t *testing.T) {
	requireLive(t)
	for program, inKernel := range map[string]bool{
		`/ pod == "a" / { @ = count() }`:                          true,
		`/ pod matches "a" && nsecs > 0 / { @ = count() }`:        true,
		`/ !(pod == "a" || job != nil) / { @ = count() }`:         true,
		`/ upper(pod) == "A" / { @ = count() }`:                   false,
		`/ pod == comm / { @ = count() }`:                         false,
		`{ @[pod, comm] = count() }`:                              true,
		`{ @[pod] = quantile(nsecs, 50) }`:                        true,
		`{ @[pod] += 1 }`:                                         true,
		`{ if (pod == "a") { @ = count() } }`:                     true,
		`{ @[pod] = nsecs }`:                                      false,
		`{ @[pod ?? "-"] = count() }`:                             false,
		`{ @[tid] = pod }`:                                        false,
		`{ @[pod] = count() } end { print(@["a"]) }`:              false,
		`{ @[pod] += 1; if (has_key(@["a"])) { @b = count() } }`:  false,
		`{ @[pod] = count() } interval:1s { print(@); clear(@) }`: true,
		`{ @ = topk(pod, 3) }`:                                    false,
		`{ @[pod] = count() } end { zero(@) }`:                    false,
	} {
		var out, notes strings.Builder
		status := runCommand(t.Context(), []string{"--explain", "syscall:enter " + program}, strings.NewReader(""), &out, &notes)
		if status != 0 || strings.Contains(out.String(), "user space:") == inKernel {
			t.Errorf("%s: want in kernel: %v\n%s%s", program, inKernel, &out, &notes)
		}
	}
}
