//go:build vm

package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// doBlockIO writes a file in a cgroup, which another task writes back, and reads from its disk. It returns what the cgroup's io.stat counts.
func doBlockIO(t *testing.T, folder string) map[string]int64 {
	t.Helper()
	folders := []string{folder}
	before := iostat(t, folders)
	sh(t, `sh -ec 'echo $$ >%s/cgroup.procs; exec dd if=/dev/zero of=/mnt/file bs=64k count=4 status=none'
		sync
		sh -ec 'echo $$ >%[1]s/cgroup.procs; exec dd if=/dev/nvme0n1 of=/dev/null bs=16k skip=100 count=20 iflag=direct status=none'
		rm /mnt/file; sync`, folder)
	return less(iostat(t, folders), before)
}

func snooped(t *testing.T, _ *recorder) {
	folder := ioCgroup(t, "snooped")
	mountOnMnt(t)
	doBlockIO(t, folder)
}

var (
	snoopLine = regexp.MustCompile(`(?m)^\S+ nvme0n1 +(read|write) +(\d+)KiB @\d+ +\S+/\d+ of /snooped queue=\S+ device=\S+ OK$`)
	bytesLine = regexp.MustCompile(`(?m)^@bytes\[nvme0n1, (read|write), /snooped\]: (\d+)KiB$`)
)

// The lines of biosnoop, and the sums of biolatency, are what io.stat counts of a cgroup, with what is written back for it.
func TestVMScriptBio(t *testing.T) {
	folder := ioCgroup(t, "snooped")
	mountOnMnt(t)
	for command, line := range map[string]*regexp.Regexp{"biosnoop --disk nvme0n1": snoopLine, "biolatency --interval=60": bytesLine} {
		trace := startCommand(t, exec.Command("trace", strings.Fields(command)...))
		stat := doBlockIO(t, folder)
		trace.end(t)
		kib := make(map[string]int64)
		for _, m := range line.FindAllStringSubmatch(trace.wrote(t), -1) {
			var n int64
			if _, err := fmt.Sscan(m[2], &n); err != nil {
				t.Fatal(err)
			}
			kib["bytes /snooped "+m[1]] += n << 10
		}
		for what, n := range kib {
			t.Logf("%s: %s: %d", command, what, n)
		}
		for _, what := range []string{"bytes /snooped read", "bytes /snooped write"} {
			if kib[what] != stat[what] || kib[what] == 0 {
				t.Errorf("%s: %s is %d, the kernel counts %d:\n%s", command, what, kib[what], stat[what], trace.wrote(t))
			}
		}
	}
}
