package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trace/probes"
)

// A program that runs in cgroups of its own is counted under their paths, which are those that the kernel lists for it. One of them is
// made only when tracing has begun, and both are gone when the maps are printed.
func TestCgroupsLive(t *testing.T) {
	requireLive(t)
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	mount, controller, ok := catalog.Cgroups().Mount()
	if !ok {
		t.Skip("needs cgroups to be mounted, like mount -t cgroup2 none /sys/fs/cgroup")
	}
	name := fmt.Sprintf("/trace-test-%d", os.Getpid())
	one, later := name+"-one", name+"-later"
	makeCgroup(t, mount+one)
	t.Cleanup(func() { os.Remove(mount + one); os.Remove(mount + later) })
	out, err := exec.Command("sh", "-c", "echo 0 >"+mount+one+"/cgroup.procs").CombinedOutput()
	if bytes.Contains(out, []byte("Permission denied")) || bytes.Contains(out, []byte("Operation not permitted")) {
		t.Skipf("needs root, and cgroups that can be written to, to move a process: %s", out)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script := filepath.Join(t.TempDir(), "script")
	// The last process of a cgroup must be gone before its folder can be removed.
	text := `set -e
mkdir MOUNT/LATER
(echo 0 >MOUNT/ONE/cgroup.procs; cat /proc/self/cgroup; exec helper 30)
(echo 0 >MOUNT/LATER/cgroup.procs; cat /proc/self/cgroup; exec helper 50)
for dir in MOUNT/ONE MOUNT/LATER; do
	for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do rmdir $dir 2>/dev/null && break; sleep 0.1; done
done
`
	text = strings.NewReplacer("MOUNT", mount, "/ONE", one, "/LATER", later).Replace(text)
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "output")
	program := strings.NewReplacer("ONE", one, "LATER", later).Replace(`
		syscall:enter / comm == "helper" && nr == getppid / { @[cgroup] = count() }
		syscall:enter / comm == "helper" && nr == getppid && cgroup == "ONE" / { @one = count() }
		syscall:enter / comm == "helper" && nr == getppid && cgroup == "LATER" / { @later = count() }
		syscall:enter / comm == "helper" && nr == getppid && cgroup in ["ONE", "LATER"] / { @both = count() }
		syscall:enter / comm == "helper" && nr == getppid && cgroup startsWith "ONE" / { @begins = count() }`)
	cmd := exec.Command("trace", "-o", output, "--children", "-c", "sh "+script, program)
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, cgroup := range []string{one, later} {
		line := "0::" + cgroup
		if controller != "" {
			line = controller + ":" + cgroup
		}
		if !strings.Contains(string(said), line) {
			t.Errorf("the kernel does not report %s:\n%s", line, said)
		}
	}
	if note := "cgroup " + later + " does not exist"; !strings.Contains(string(said), note) {
		t.Errorf("want %q in:\n%s", note, said)
	}
	printed, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"@[" + one + "]: 30\n", "@[" + later + "]: 50\n", "@one: 30\n", "@later: 50\n", "@both: 80\n", "@begins: 30\n"} {
		if !strings.Contains(string(printed), want) {
			t.Errorf("want %q in:\n%s", want, printed)
		}
	}
}

// A cgroup that is removed and made again is another one, and a note reports it.
func TestCgroupMadeAgain(t *testing.T) {
	requireLive(t)
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	mount, _, ok := catalog.Cgroups().Mount()
	if !ok {
		t.Skip("needs cgroups to be mounted, like mount -t cgroup2 none /sys/fs/cgroup")
	}
	dir := fmt.Sprintf("%s/trace-test-%d-again", mount, os.Getpid())
	makeCgroup(t, dir)
	t.Cleanup(func() { os.Remove(dir) })
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, fmt.Appendf(nil, "rmdir %s; mkdir %[1]s\n", dir), 0o644); err != nil {
		t.Fatal(err)
	}
	program := fmt.Sprintf("syscall:enter / cgroup == %q /", "/"+filepath.Base(dir))
	said, err := exec.Command("trace", "-c", "sh "+script, program).CombinedOutput()
	if err != nil || !strings.Contains(string(said), "was removed and created again while tracing") {
		t.Errorf("%v:\n%s", err, said)
	}
}

// A path that is there is a number for the kernel; one that is not, and any other operator, is for user space.
func TestCgroupPlaces(t *testing.T) {
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	_, _, mounted := catalog.Cgroups().Mount()
	for predicate, inKernel := range map[string]bool{
		`cgroup == "/"`: mounted, `cgroup != "/"`: mounted, `cgroup in ["/", "//"]`: mounted, `"/" == cgroup`: mounted,
		`cgroup == 1`: true, `cgroup == "/none/such"`: false, `cgroup in ["/", "/none/such"]`: false, `cgroup startsWith "/"`: false,
		`cgroup matches "^/"`: false,
	} {
		var out, notes strings.Builder
		status := runCommand(t.Context(), []string{"--explain", "syscall:enter / " + predicate + " / { @ = count() }"}, strings.NewReader(""), &out, &notes)
		place := "user space"
		if inKernel {
			place = "kernel"
		}
		if status != 0 || !regexp.MustCompile(regexp.QuoteMeta(predicate)+" +"+place).MatchString(out.String()) {
			t.Errorf("%s: want %s\n%s%s", predicate, place, &out, &notes)
		}
	}
}

// makeCgroup makes a cgroup, or skips the test where this process may not: in a container they are read-only as a rule.
func makeCgroup(t *testing.T, dir string) {
	t.Helper()
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skipf("needs root, and cgroups that can be written to: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
