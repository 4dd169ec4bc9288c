//go:build vm

package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The journal of a file system flushes, and asks for writes that do not stay in the disk's cache.
func TestVMBlockDisk(t *testing.T) {
	sh(t, "modprobe ext4")
	for _, scheduler := range []string{"none", "mq-deadline"} {
		t.Run(scheduler, func(t *testing.T) {
			schedule(t, "nvme0n1", scheduler)
			checkDisk(t, "nvme0n1")
		})
	}
}

func TestVMBlockSplit(t *testing.T) { checkSplits(t, "nvme0n1") }

// The kernel takes no time of a command of a program, unless io.stat counts it. What an earlier use left in the request is no time of it.
func TestVMBlockPassthrough(t *testing.T) {
	got := tablesOf(t, `dd if=/dev/nvme0n1 of=/dev/null bs=4k iflag=direct count=50 status=none
		sleep 2
		for i in 1 2 3 4 5 6 7 8; do nvme read /dev/nvme0n1 -s $i -c 0 -z 512 >/dev/null 2>&1; done`, `
		block:complete / disk == "nvme0n1" && op == drv_in / { @seen[op] = count() }
		block:complete / op == drv_in && latency > 1s / { @late[op] = count() }
		nvme:setup_cmd / disk == "nvme0n1" && opcode == read && block_latency > 1s / { @early[opcode] = count() }`)
	compareTables(t, got, map[string]int64{"seen drv_in": 8})
}

// I/O belongs to the cgroup whose io.stat counts it (Documentation/admin-guide/cgroup-v2.rst), also where another task writes back the data.
func TestVMBlockCgroup(t *testing.T) {
	folders := []string{ioCgroup(t, "first"), ioCgroup(t, "second")}
	mountOnMnt(t)
	var script strings.Builder
	in := func(folder, command string) {
		fmt.Fprintf(&script, "sh -ec 'echo $$ >%s/cgroup.procs; exec %s'\n", folder, command)
	}
	in(folders[0], "dd if=/dev/zero of=/mnt/first bs=64k count=40 status=none")
	in(folders[1], "dd if=/dev/zero of=/mnt/second bs=4k count=30 status=none")
	fmt.Fprintln(&script, "sync")
	in(folders[0], "dd if=/dev/nvme0n1 of=/dev/null bs=16k iflag=direct count=20 status=none")
	in(folders[1], "dd if=/dev/nvme0n1 of=/dev/null bs=1M skip=32 count=3 status=none")
	in(folders[1], "dd if=/dev/zero of=/mnt/second bs=8k count=10 oflag=direct,dsync conv=notrunc status=none")

	before := iostat(t, folders)
	got := tablesOf(t, script.String(), `
		block:complete / disk == "nvme0n1" && (io_cgroup == "/first" || io_cgroup == "/second") / {
			@ios[io_cgroup, op] = sum(merged + 1); @bytes[io_cgroup, op] = sum((uint64)bytes)
		}
		nvme:setup_cmd / disk == "nvme0n1" && (io_cgroup == "/first" || io_cgroup == "/second") / { @sent[io_cgroup, opcode] = sum((uint64)bytes) }
		nvme:complete_rq / disk == "nvme0n1" && (io_cgroup == "/first" || io_cgroup == "/second") / { @done[io_cgroup, opcode] = sum((uint64)bytes) }`)
	want := less(iostat(t, folders), before)
	for name, n := range maps.Clone(want) {
		if key, ok := strings.CutPrefix(name, "bytes "); ok {
			want["sent "+key], want["done "+key] = n, n
		}
	}
	compareTables(t, got, want)
	if want["bytes /first write"] < 64<<10*40 || want["bytes /second write"] < 4<<10*30 || want["bytes /second read"] < 3<<20 {
		t.Error("there was nothing to count")
	}
}

// The submitter is the task that asked for the I/O, also where a worker of the kernel issues it. A scheduler gets each request.
func TestVMBlockSubmitter(t *testing.T) {
	schedule(t, "nvme0n1", "mq-deadline")
	got := tablesOf(t, "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=30 iflag=direct status=none", `
		block:insert / comm == "dd" / { @insert[op] = count() }
		block:issue / comm == "dd" / { @issue[op] = count() }
		block:complete / comm == "dd" / { @complete[op] = count() }
		block:complete / comm == "dd" && queue_latency + device_latency == latency / { @times[op] = count() }
		block:complete / comm == "dd" && pid == tid && uid == 0 && cgroup == "/" && ppid != 0 / { @task[op] = count() }
		block:complete / comm == "dd" && cgroup != "/" / { @elsewhere[op] = count() }`)
	compareTables(t, got, map[string]int64{"insert read": 30, "issue read": 30, "complete read": 30, "times read": 30, "task read": 30})
}

var mediumLine = regexp.MustCompile(`critical medium error, dev (\w+), sector (\d+)`)

// The driver tries again to read a bad block, gives the request back each time, and fails in the end. The kernel logs that once.
func TestVMMoreBlockErrors(t *testing.T) {
	_, disk := controller(t, "errors")
	var retries int64
	if _, err := fmt.Sscan(sh(t, "cat /sys/module/nvme_core/parameters/max_retries"), &retries); err != nil {
		t.Fatal(err)
	}
	sh(t, "dmesg -C")
	got := tablesOf(t, fmt.Sprintf(`for block in 2048 4096; do dd if=/dev/%s of=/dev/null iflag=direct bs=512 count=1 skip=$block status=none || true; done`, disk), `
		block:requeue / comm == "dd" / { @back[sector] = count(); @times[sector] = max(requeues) }
		block:error / comm == "dd" && latency > 0 && bytes == 512 / { @errors[disk, sector, status] = count() }
		block:complete / comm == "dd" / { @ends[sector, status, requeues] = count() }`)
	want := map[string]int64{
		"back 2048": retries, "times 2048": retries, fmt.Sprint("ends 2048 MEDIUM ", retries): 1, "back 4096": 1, "times 4096": 1, "ends 4096 OK 1": 1,
	}
	for _, line := range mediumLine.FindAllStringSubmatch(sh(t, "dmesg"), -1) {
		want["errors "+line[1]+" "+line[2]+" MEDIUM"]++
	}
	compareTables(t, got, want)
}

// A submitter that finds no tag sleeps: io_schedule in blk_mq_get_tag.
func TestVMMoreBlockTags(t *testing.T) {
	shortQueue(t, "nvme0n1")
	bpftrace := startTool(t, "ready", "bpftrace", "-e", `BEGIN { printf("ready\n") }
		kprobe:blk_mq_get_tag { @in[tid] = 1 } kprobe:io_schedule /@in[tid]/ { @in[tid] = 2 }
		kretprobe:blk_mq_get_tag { if (@in[tid] == 2) { @waits = count() } delete(@in[tid]) } END { clear(@in) }`)
	got := tablesOf(t, "exec "+exhaust, `
		block:tag_wait / disk == "nvme0n1" && comm == "fio" && latency > 0 / { @waits[op] = count() }
		block:tag_wait / disk != "nvme0n1" || comm != "fio" / { @others[op] = count() }`)
	bpftrace.end(t)
	var slept int64
	if _, text, ok := strings.Cut(bpftrace.out.String(), "@waits: "); ok {
		fmt.Sscan(text, &slept) // it stays 0
	}
	t.Logf("%v; io_schedule was called in %d calls", got, slept)
	// A tag may come free before the thread has left the CPU.
	if n := got["waits read"]; n == 0 || n > slept || len(got) != 1 {
		t.Errorf("%v: io_schedule was called in %d calls", got, slept)
	}
}

// exhaust has more reads in flight than a short queue holds.
const exhaust = "fio --name=x --filename=/dev/nvme0n1 --rw=randread --bs=4k --ioengine=libaio --direct=1 --iodepth=32 --number_ios=200 --size=64M --minimal"

// shortQueue gives a disk few tags until the test ends.
func shortQueue(t *testing.T, disk string) {
	t.Helper()
	schedule(t, disk, "mq-deadline")
	writeFile(t, "/sys/block/"+disk+"/queue/nr_requests", "4")
}

func TestVMMoreBlockLines(t *testing.T) {
	_, bad := controller(t, "errors")
	shortQueue(t, "nvme0n1")
	writeFile(t, "/sys/block/nvme0n1/queue/max_sectors_kb", "64")
	recordLines(t, "block", "block:*", func() {
		sh(t, exhaust)
		sh(t, "dd if=/dev/zero of=/dev/nvme0n1 bs=4k count=40 conv=notrunc status=none; sync; dd if=/dev/nvme0n1 of=/dev/null bs=256k count=2 iflag=direct status=none")
		sh(t, "dd if=/dev/%s of=/dev/null iflag=direct bs=512 count=1 skip=2048 status=none || true", bad)
	})
}

// mountOnMnt makes a file system on nvme0n1 and mounts it on /mnt.
func mountOnMnt(t *testing.T) {
	t.Helper()
	sh(t, "modprobe ext4; mkfs.ext4 -q /dev/nvme0n1; mount /dev/nvme0n1 /mnt")
	t.Cleanup(func() { sh(t, "umount /mnt") })
}

// The driver's events have the times of the block layer, and the transport where the kernel describes its types.
func TestVMBlockNvme(t *testing.T) {
	got := tablesOf(t, "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=20 iflag=direct status=none", `
		nvme:setup_cmd / comm == "dd" && block_latency < 1h && transport == pcie / { @sent[opcode] = count() }
		nvme:complete_rq / comm == "dd" && transport == pcie / { @done[opcode] = count() }
		nvme:complete_rq / comm == "dd" / { @queued[rq] = block_latency }
		block:complete / comm == "dd" && @queued[rq] == queue_latency / { @same[op] = count() }`)
	maps.DeleteFunc(got, func(name string, _ int64) bool { return strings.HasPrefix(name, "queued ") })
	want := map[string]int64{"same read": 20}
	if os.Getenv("VMTEST_KERNEL") != "5.10" { // it has no BTF of modules
		want["sent read"], want["done read"] = 20, 20
	}
	compareTables(t, got, want)
}

// schedule gives a disk a scheduler until the test ends.
func schedule(t *testing.T, disk, scheduler string) {
	t.Helper()
	file := "/sys/block/" + disk + "/queue/scheduler"
	writeFile(t, file, scheduler)
	t.Cleanup(func() { writeFile(t, file, "none") })
}

// ioCgroup makes a cgroup whose I/O and dirty memory the kernel counts.
func ioCgroup(t *testing.T, name string) string {
	t.Helper()
	const control = "/sys/fs/cgroup/cgroup.subtree_control"
	writeFile(t, control, "+io +memory")
	t.Cleanup(func() { writeFile(t, control, "-io -memory") })
	return cgroupFolder(t, name)
}

// iostat are the counts of cgroups for nvme0n1.
func iostat(t *testing.T, folders []string) map[string]int64 {
	t.Helper()
	counts := make(map[string]int64)
	number := strings.TrimSpace(sh(t, "cat /sys/block/nvme0n1/dev"))
	for _, folder := range folders {
		path := strings.TrimPrefix(folder, "/sys/fs/cgroup")
		device := "" // the kernel may name devices without counts, in the same line
		for _, field := range strings.Fields(sh(t, "cat %s/io.stat", folder)) {
			name, value, counted := strings.Cut(field, "=")
			if !counted {
				device = field
			}
			if !counted || device != number {
				continue
			}
			op := map[byte]string{'r': "read", 'w': "write", 'd': "discard"}[name[0]]
			var n int64
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatalf("%s: %s, %v", folder, field, err)
			}
			counts[name[1:]+" "+path+" "+op] = n
		}
	}
	return counts
}
