//go:build !vm

package probes

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pids makes a family of one process, and, with descendants, of all that it has forked, and returns it with the bytes of all
// processes.
func pids(t *testing.T, root int, descendants bool) (family, []byte) {
	t.Helper()
	f, err := detect(t).follow([]int{root}, descendants)
	requirePermitted(t, err)
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	members, err := unix.Mmap(f.members.FD(), 0, PIDs, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(members) })
	return f, members
}

// shell starts a shell that waits for lines to run.
func shell(t *testing.T) (pid int, run func(line string) string) {
	t.Helper()
	cmd := exec.Command("sh")
	in, out := startPiped(t, cmd)
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return cmd.Process.Pid, func(line string) string {
		fmt.Fprintf(in, "%s\necho .\n", line)
		var said strings.Builder
		for buf := make([]byte, 1); !strings.HasSuffix(said.String(), ".\n"); {
			if _, err := out.Read(buf); err != nil {
				t.Fatal(err)
			}
			said.Write(buf)
		}
		return strings.TrimSuffix(said.String(), ".\n")
	}
}

// All that a process forks belongs to it, at any depth and after its end; what others fork does not.
func TestFamily(t *testing.T) {
	root, run := shell(t)
	_, members := pids(t, root, false)
	_, other := shell(t)
	for _, pid := range strings.Fields(run("sh -c 'echo $$; sh -c \"echo \\$\\$; exec true\"; true'; (sh -c 'echo $$' & wait)")) {
		var n int
		fmt.Sscan(pid, &n)
		if n == 0 || members[n] != 1 {
			t.Errorf("process %s was forked by the root, and is no member", pid)
		}
	}
	for _, pid := range strings.Fields(other("sh -c 'echo $$'; sh -c 'echo $$'")) {
		var n int
		fmt.Sscan(pid, &n)
		if n == 0 || members[n] != 0 {
			t.Errorf("process %s was forked by another, and is a member", pid)
		}
	}
	if members[root] != 1 || members[os.Getpid()] != 0 {
		t.Errorf("the root is %d, this process %d", members[root], members[os.Getpid()])
	}
}

// A process id that is reused by another process leaves the family.
func TestFamilyForgets(t *testing.T) {
	last := "/proc/sys/kernel/ns_last_pid"
	root, run := shell(t)
	_, members := pids(t, root, false)
	var old int
	fmt.Sscan(run("sh -c 'echo $$'"), &old)
	if members[old] != 1 {
		t.Fatalf("process %d is no member", old)
	}
	for range 1000 {
		// Others fork, too, so it takes some attempts.
		if err := os.WriteFile(last, []byte(fmt.Sprint(old-1)), 0); err != nil {
			t.Skipf("needs root, and a /proc/sys that can be written to, to choose the next process id: %v", err)
		}
		cmd := exec.Command("true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if cmd.Process.Pid == old {
			if members[old] != 0 {
				t.Errorf("process %d belongs to another now, and is still a member", old)
			}
			return
		}
	}
	t.Skip("no process got the id that was chosen")
}

// Without the program that follows forks nothing is added, and a number that is not a process id is an error.
func TestFamilyEnds(t *testing.T) {
	root, run := shell(t)
	f, members := pids(t, root, false)
	if err := f.detach(); err != nil {
		t.Fatal(err)
	}
	var n int
	fmt.Sscan(run("sh -c 'echo $$'"), &n)
	if members[n] != 0 || members[root] != 1 {
		t.Errorf("after detaching process %d is %d, the root %d", n, members[n], members[root])
	}
	for _, pid := range []int{0, -1, PIDs} {
		if err := f.add([]int{pid}, false); err == nil || err.Error() != fmt.Sprintf("%d is not a process id", pid) {
			t.Errorf("adding %d: %v", pid, err)
		}
	}
}

// What a process has forked before belongs to its family as well, at any depth, and also while it goes on forking.
func TestFamilyOfDescendants(t *testing.T) {
	root, run := shell(t)
	_, other := shell(t)
	background := func(run func(string) string) []string {
		return strings.Fields(run("sh -c 'echo $$; sh -c \"echo \\$\\$; exec sleep 20\" & echo $!; exec sleep 20' & sleep 0.2; echo $!"))
	}
	sleepers, strangers := background(run), background(other)
	run("(for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (sh -c 'exec sleep 20' & sh -c 'exec sleep 20' & wait) & done; wait) >/dev/null 2>&1 &")
	t.Cleanup(func() { run("kill $(ps -o pid= --ppid $$ | grep -v $$)"); other("kill $!") })
	f, members := pids(t, root, true)
	run("sleep 0.5")
	if err := f.detach(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range sleepers {
		if n, err := strconv.Atoi(pid); err != nil || members[n] != 1 {
			t.Errorf("process %s is a descendant, and no member", pid)
		}
	}
	for _, pid := range strangers {
		if n, err := strconv.Atoi(pid); err != nil || members[n] != 0 {
			t.Errorf("process %s is no descendant, and a member", pid)
		}
	}
	tree := descendantsOf(t, root)
	if len(tree) < 60 {
		t.Errorf("%d descendants, want 60 at least", len(tree))
	}
	for _, pid := range tree {
		if members[pid] != 1 {
			t.Errorf("process %d was forked meanwhile, and is no member", pid)
		}
	}
}

// descendantsOf returns the descendants of a process from ps.
func descendantsOf(t *testing.T, root int) (all []int) {
	t.Helper()
	out, err := exec.Command("ps", "-e", "-o", "pid=,ppid=").Output()
	if err != nil {
		t.Fatal(err)
	}
	parents := map[int]int{}
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		fmt.Sscan(line, &pid, &parent)
		parents[pid] = parent
	}
	for pid := range parents {
		for p := parents[pid]; p != 0; p = parents[p] {
			if p == root {
				all = append(all, pid)
				break
			}
		}
	}
	return all
}
