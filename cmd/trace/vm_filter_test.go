//go:build vm

package main

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The completion of a command passes the filter that its submitter passes, whatever the interrupt met. Two shells read from the disk: one in
// a process group and a pid namespace of its own, which begins when the other one does.
func TestVMNvmeFilters(t *testing.T) {
	const program = `nvme:complete_rq / opcode == read && comm == "dd" && bytes == 4KiB /`
	for flags, want := range map[string]int{
		"": 242, "--comm dd": 242, "--comm no-dd": 0, "--pgid $shell": 42, "--pidns /proc/$shell/ns/pid": 42, "--pidns /proc/self/ns/pid": 200,
		"-p $shell --children": 42, "-p $parent --children --pgid $shell": 42,
	} {
		n := strings.Count(sh(t, "%s", `rm -f /tmp/go /tmp/done && mkfifo /tmp/go /tmp/done
unshare --pid --fork setsid sh -c 'read x < /tmp/go; dd if=/dev/nvme0n1 of=/dev/null bs=4k count=30 iflag=direct status=none; (dd if=/dev/nvme0n1 of=/dev/null bs=4k count=12 iflag=direct status=none &); echo > /tmp/done; sleep 2' > /dev/null 2>&1 &
parent=$!
until shell=$(ps -o pid= --ppid $parent); do sleep 0.1; done
shell=$(echo $shell)
sleep 0.5
trace `+flags+` -q --strict -f json -c 'sh -c "echo > /tmp/go; dd if=/dev/nvme0n1 of=/dev/null bs=4k count=200 iflag=direct status=none; read x < /tmp/done; sleep 1"' '`+program+`'`),
			`"probe":"nvme:complete_rq"`)
		// Where the kernel preempts tasks it may skip a command's submission; then the sender is unknown.
		if least := want - want/10; n != want && !(preempting() && n >= least && n < want) {
			t.Errorf("%s: %d commands, want %d", flags, n, want)
		}
	}
}

var rowOfPath = regexp.MustCompile(`(?m)^(@\w*\[.*\]): (\d+)$`)

// A cgroup passes with all below it, also with what is made later, in each tree of cgroups that there can be; what is beside it does not.
func TestVMCgroupFilter(t *testing.T) {
	for _, tree := range cgroupTrees {
		t.Run(tree.name, func(t *testing.T) {
			sh(t, "%s", tree.setUp)
			t.Cleanup(func() { sh(t, "%s", tree.clean) })
			tree.make(t, "/in", "/in/deep", "/inside")
			trace := startCommand(t, exec.Command("trace", "-v", "--cgroup", "/in", `
				nvme:setup_cmd / comm == "dd" / { @sent[cgroup] = count() }
				nvme:complete_rq / comm == "dd" / { @[cgroup] = count() }`))
			tree.make(t, "/in/later", "/in/later/deep")
			for p, n := range map[string]int{"/in": 3, "/in/deep": 5, "/inside": 9, "/in/later": 7, "/in/later/deep": 11} {
				tree.read(t, p, n)
			}
			trace.end(t)
			data, err := os.ReadFile(trace.events)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for _, row := range rowOfPath.FindAllStringSubmatch(string(data), -1) {
				got[row[1]], _ = strconv.Atoi(row[2])
			}
			want := map[string]int{
				"@[/in]": 3, "@[/in/deep]": 5, "@[/in/later]": 7, "@[/in/later/deep]": 11,
				"@sent[/in]": 3, "@sent[/in/deep]": 5, "@sent[/in/later]": 7, "@sent[/in/later/deep]": 11,
			}
			if !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}
