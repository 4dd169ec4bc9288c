//go:build vm

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// slurmConf is of a cluster of one machine, this one.
const slurmConf = `ClusterName=trace
SlurmctldHost=n1(10.9.0.1)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmdLogFile=/tmp/slurmd.log
SlurmctldLogFile=/tmp/slurmctld.log
SlurmdParameters=config_overrides
NodeName=n1 NodeAddr=10.9.0.1 CPUs=1 State=UNKNOWN
PartitionName=p Nodes=n1 Default=YES State=UP
`

// rootFS is a root file system with what a test needs.
type rootFS string

// run runs a script in it.
func (root rootFS) run(t *testing.T, script string) string {
	t.Helper()
	return sh(t, "chroot %s sh -ec '%s'", root, script)
}

func (root rootFS) write(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(string(root), name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A real job is seen under its number and its step, in the kernel, by each name that Slurm gives its cgroup: a program that waits for the
// job misses none of its writes.
func TestVMSlurm(t *testing.T) {
	root, err := filepath.Abs("../../.vmtest/slurm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/sbin/slurmd-wlm")); err != nil {
		t.Skip("needs Debian's Slurm, which .ci/setup slurm installs")
	}
	cluster := rootFS(root)
	sh(t, "cd %s; hostname n1; mount -t tmpfs none run; mount -t tmpfs none tmp; mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev; mkdir -p /sys/fs/cgroup/system.slice", root)
	t.Cleanup(func() {
		sh(t, "cd %s; umount -l run tmp proc sys dev; rmdir /sys/fs/cgroup/system.slice || true", root)
	})
	cluster.write(t, "etc/hosts", "10.9.0.1 n1\n127.0.0.1 localhost\n")
	cluster.write(t, "etc/slurm/slurm.conf", slurmConf)
	cluster.write(t, "etc/munge/munge.key", strings.Repeat("a key of a test ", 64))
	cluster.run(t, `mkdir /run/munge; chown -R munge: /etc/munge /run/munge /var/log/munge /var/lib/munge; chmod 400 /etc/munge/munge.key; su munge -s /bin/sh -c /usr/sbin/munged`)
	t.Cleanup(func() { cluster.run(t, "pkill munged") })
	for _, setting := range []string{"", "CgroupJobIdPaths=yes"} {
		t.Run(setting, func(t *testing.T) { testSlurm(t, cluster, setting) })
	}
}

func testSlurm(t *testing.T, root rootFS, setting string) {
	root.write(t, "etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"+setting+"\n")
	root.run(t, `rm -rf /run/slurmctld /run/slurmd; mkdir /run/slurmctld /run/slurmd; slurmctld -c >/tmp/out 2>&1; slurmd >>/tmp/out 2>&1
		for n in $(seq 60); do if sinfo -h -o %t 2>/dev/null | grep -q idle; then break; fi; sleep 1; done; sinfo`)
	t.Cleanup(func() {
		root.run(t, "pkill slurmd; pkill slurmctld; for n in $(seq 30); do pgrep slurm >/dev/null || break; sleep 1; done")
	})
	output := filepath.Join(t.TempDir(), "output")
	trace := exec.Command("trace", "-o", output, `
		syscall:enter / comm == "dd" && nr == write / { @all = count() }
		syscall:enter / comm == "dd" && nr == write && job == "1" && step == "0" / { @job = count() }
		syscall:enter / comm == "dd" && nr == write / { @[cgroup, unit, job, step] = count() }`)
	var notes strings.Builder
	trace.Stderr = &notes
	if err := trace.Start(); err != nil {
		t.Fatal(err)
	}
	// The task waits until trace has read the number of the job: Slurm makes the cgroup first.
	path := root.run(t, `srun -n1 sh -c "cat /proc/self/cgroup; sleep 5; exec dd if=/dev/zero of=/dev/null bs=1 count=1000 status=none"`)
	if err := trace.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := trace.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &notes)
	}
	_, path, found := strings.Cut(strings.TrimSpace(path), "0::")
	if byNumber := strings.Contains(path, "/job_1/step_0/"); !found || byNumber != (setting != "") || !strings.Contains(path, "/step_0/") {
		t.Errorf("the kernel lists %q", path)
	}
	printed, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("@[%s, n1_slurmstepd.scope, 1, 0]: 1000\n@all: 1000\n@job: 1000\n", path)
	if got := string(printed); got != want {
		t.Errorf("got\n%swant\n%s%s", got, want, &notes)
	}
}
