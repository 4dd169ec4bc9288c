//go:build vm

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cgroupTree is a tree of cgroups as a host may have mounted it.
type cgroupTree struct {
	name  string
	mount string
	line  string // begins the line of this tree in /proc/PID/cgroup
	setUp string // script; mounts what is undone by cleanUp
	clean string
}

var cgroupTrees = []cgroupTree{
	{name: "v2", mount: "/sys/fs/cgroup", line: "0::", setUp: "true", clean: "true"},
	{
		name: "v1", mount: "/sys/fs/cgroup/pids", line: ":pids:",
		setUp: "umount /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup; mkdir /sys/fs/cgroup/pids; mount -t cgroup -o pids none /sys/fs/cgroup/pids",
		clean: "umount /sys/fs/cgroup/pids; umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup",
	},
	{
		name: "hybrid, v2 unused", mount: "/sys/fs/cgroup/pids", line: ":pids:",
		setUp: "umount /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup; cd /sys/fs/cgroup; mkdir pids unified; mount -t cgroup -o pids none pids; mount -t cgroup2 none unified",
		clean: "umount /sys/fs/cgroup/pids; umount /sys/fs/cgroup/unified; umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup",
	},
	{
		name: "hybrid, v2 used", mount: "/sys/fs/cgroup/unified", line: "0::",
		setUp: "umount /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup; cd /sys/fs/cgroup; mkdir pids unified; mount -t cgroup -o pids none pids; mount -t cgroup2 none unified; mkdir pids/elsewhere",
		clean: "rmdir /sys/fs/cgroup/pids/elsewhere; umount /sys/fs/cgroup/pids; umount /sys/fs/cgroup/unified; umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup",
	},
}

// Commands are counted for their sender's cgroup, under the path that the kernel lists for it; a path is compared by its id if it is
// there, else by name; and what has ended keeps its name.
func TestVMCgroup(t *testing.T) {
	for _, tree := range cgroupTrees {
		t.Run(tree.name, func(t *testing.T) {
			sh(t, "%s", tree.setUp)
			t.Cleanup(func() { sh(t, "%s", tree.clean) })
			tree.test(t)
		})
	}
}

func (c cgroupTree) test(t *testing.T) {
	t.Helper()
	c.make(t, "/one", "/two", "/two/deep")
	trace := start(t, `
		nvme:complete_rq / comm == "dd" / { @[cgroup] = count() }
		nvme:complete_rq / comm == "dd" && cgroup == "/one" / { @one = count() }
		nvme:complete_rq / comm == "dd" && cgroup != "/one" / { @others = count() }
		nvme:complete_rq / comm == "dd" && cgroup startsWith "/two/" / { @two = count() }
		nvme:complete_rq / comm == "dd" && cgroup == "/later" / { @later = count() }
		nvme:complete_rq / comm == "dd" && cgroup in ["/one", "/later"] / { @both = count() }
		nvme:setup_cmd / comm == "dd" && cgroup == "/two/deep" / { @sent = count() }`)
	c.make(t, "/later")
	want := map[string]int{"/one": 3, "/two/deep": 5, "/later": 7}
	ids := map[string]int64{}
	for p, n := range want {
		ids[p] = c.read(t, p, n)
	}
	for _, p := range []string{"/later", "/two/deep", "/two", "/one"} {
		if err := os.Remove(filepath.Join(c.mount, p)); err != nil {
			t.Fatal(err)
		}
	}
	if said := trace.messages(t); !strings.Contains(said, "cgroup /later does not exist") || strings.Contains(said, "cgroup /one does not exist") {
		t.Errorf("about the path that is not there:\n%s", said)
	}
	numbers := map[string]int64{}
	for _, e := range trace.stop(t) {
		entries, _ := e.at("entries").([]any)
		for _, entry := range entries {
			entry := jsonEvent(entry.(map[string]any))
			name := e.text("name")
			for _, key := range entry["key"].([]any) {
				key := jsonEvent(key.(map[string]any))
				name = key.text("path")
				if key.num(t, "id") != ids[name] {
					t.Errorf("id of %s is %v, its folder has %d", name, key["id"], ids[name])
				}
			}
			numbers[name] = entry.num(t, "value")
		}
	}
	expected := map[string]int64{"/one": 3, "/two/deep": 5, "/later": 7, "@one": 3, "@others": 12, "@two": 5, "@later": 7, "@both": 10, "@sent": 5}
	for name, n := range expected {
		if numbers[name] != n {
			t.Errorf("%s is %d, want %d", name, numbers[name], n)
		}
	}
}

func (c cgroupTree) make(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		dir := filepath.Join(c.mount, p)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
	}
}

// read reads from the disk in a cgroup, and returns the inode of its folder. The kernel itself reports where the process is.
func (c cgroupTree) read(t *testing.T, p string, commands int) int64 {
	t.Helper()
	said := sh(t, "echo $$ >%s/cgroup.procs; cat /proc/self/cgroup; exec dd if=/dev/nvme0n1 of=/dev/null bs=4k iflag=direct status=none count=%d",
		filepath.Join(c.mount, p), commands)
	found := false
	for line := range strings.Lines(said) {
		_, place, ok := strings.Cut(strings.TrimSpace(line), c.line)
		found = found || ok && place == p
	}
	if !found {
		t.Errorf("the kernel does not report %s%s:\n%s", c.line, p, said)
	}
	var inode json.Number
	if _, err := fmt.Sscan(sh(t, "stat -c %%i %s", filepath.Join(c.mount, p)), &inode); err != nil {
		t.Fatal(err)
	}
	n, err := inode.Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
