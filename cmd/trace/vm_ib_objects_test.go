//go:build vm

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// objectProbes are the probes of objects, each with the function of the driver that does the work
// (drivers/infiniband/sw/rxe/rxe_verbs.c); it has the same name on every kernel.
var objectProbes = map[string]string{
	"ib:alloc_pd": "rxe_alloc_pd", "ib:dealloc_pd": "rxe_dealloc_pd", "ib:create_cq": "rxe_create_cq", "ib:destroy_cq": "rxe_destroy_cq",
	"ib:reg_mr": "rxe_reg_user_mr", "ib:dereg_mr": "rxe_dereg_mr",
}

const objectGlobs = "ib:*_pd, ib:*_cq, ib:*_mr"

// startKprobes runs bpftrace, which counts the calls of kernel functions by name, process and cgroup; a name may have several, or
// The counted objects in bpftrace's own words.
func startKprobes(t *testing.T, functions map[string]string) *tool {
	t.Helper()
	var program strings.Builder
	for name, list := range functions {
		if !strings.Contains(list, ":") {
			list = "kprobe:" + strings.Join(strings.Fields(list), ",kprobe:")
		}
		fmt.Fprintf(&program, "%s { @[%q, pid, cgroup] = count(); }\n", list, name)
	}
	program.WriteString(`interval:ms:100 { printf("attached\n"); }`) // attached last
	return startTool(t, "attached", "bpftrace", "-e", program.String())
}

// counted matches a line of such a map.
var counted = regexp.MustCompile(`@\[(\S+), (\d+), (\d+)\]: (\d+)`)

// kprobeCounts ends bpftrace and returns what it counted, by "name pid cgroup".
func kprobeCounts(t *testing.T, tl *tool) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, m := range counted.FindAllStringSubmatch(strings.Join(tl.stop(t), "\n"), -1) {
		counts[m[1]+" "+m[2]+" "+m[3]], _ = strconv.Atoi(m[4])
	}
	return counts
}

// eventCounts counts events in the same way.
func eventCounts(events []jsonEvent) map[string]int {
	counts := make(map[string]int)
	for _, e := range events {
		counts[e.text("probe")+" "+e.text("pid")+" "+e.text("cgroup.id")]++
	}
	return counts
}

// newCgroup makes a cgroup and returns its folder, open, and its id.
func newCgroup(t *testing.T, name string) (*os.File, uint64) {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	return f, stat.Ino
}

// waitForRping waits until rping listens; /proc/net/tcp does not show that.
func waitForRping(t *testing.T) {
	t.Helper()
	waitUntil(t, "rping listens", func() bool { return strings.Contains(sh(t, "rdma res show cm_id"), "LISTEN") })
}

// buildVerbs compiles the helper program.
func buildVerbs(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "verbs")
	sh(t, "gcc -Wall -Werror -o %s testdata/vm/verbs.c -libverbs", path)
	return path
}

// resource returns what `rdma -d res show KIND` has of a process.
func resource(t *testing.T, kind string, pid int) jsonEvent {
	t.Helper()
	var all []jsonEvent
	d := json.NewDecoder(strings.NewReader(sh(t, "rdma -j -d res show %s", kind)))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.text("pid") == fmt.Sprint(pid) {
			return r
		}
	}
	t.Fatalf("rdma res shows no %s of process %d: %v", kind, pid, all)
	return nil
}

// The fields equal what the program and `rdma res` print. A failed call has its error, and its arguments.
func TestVMIbObjectFields(t *testing.T) {
	verbs := buildVerbs(t)
	trace := start(t, objectGlobs)
	cmd := exec.Command(verbs)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewReader(output)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	said := pairsOf(first)
	pd, cq, mr := resource(t, "pd", cmd.Process.Pid), resource(t, "cq", cmd.Process.Pid), resource(t, "mr", cmd.Process.Pid)
	fmt.Fprintln(input)
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, rest)
	}
	failed := pairsOf(string(rest))
	var got []string
	for _, e := range trace.stop(t) {
		got = append(got, describeObject(t, e))
	}

	// Kernels that do not describe the types of uverbs show neither the arguments of a request nor the device of a failed one.
	start, access, vector, badDev, badMR, badCQ := said["addr"], "LOCAL_WRITE|REMOTE_READ", said["vector"], "rxe0", "LOCAL_WRITE 4096 65536 65536", fmt.Sprint(1<<24, " 0")
	if !knowsRequests(t) {
		start, access, vector, badDev, badMR, badCQ = "-", "-", "-", "-", "- - - -", "- -"
	}
	id := fmt.Sprint(pd.at("pdn"))
	newMR := fmt.Sprintf("pd %s mr %v lkey %s rkey %s", id, mr.at("mrn"), said["lkey"], said["rkey"])
	newCQ := fmt.Sprintf("cq %v cqe %s", cq.at("cqn"), said["cqe"])
	want := []string{
		"ib:alloc_pd rxe0 0 pd " + id,
		"ib:create_cq rxe0 0 " + newCQ + " " + vector,
		"ib:reg_mr rxe0 0 " + newMR + " " + access + " 8192 " + start + " " + said["addr"],
		"ib:reg_mr " + badDev + " -" + failed["reg_mr"] + " pd - mr - lkey - rkey - " + badMR,
		"ib:create_cq " + badDev + " -" + failed["create_cq"] + " cq - cqe " + badCQ,
		"ib:dealloc_pd rxe0 -" + failed["dealloc_pd"] + " pd " + id,
		"ib:dereg_mr rxe0 0 " + newMR + " - 8192 - " + said["addr"],
		"ib:destroy_cq rxe0 0 " + newCQ + " -",
		"ib:dealloc_pd rxe0 0 pd " + id,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("events are\n%s\nthe program and rdma say\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, value := range map[string]string{"reg_mr": fmt.Sprint(int(unix.EFAULT)), "create_cq": fmt.Sprint(int(unix.EINVAL)), "dealloc_pd": fmt.Sprint(int(unix.EBUSY))} {
		if failed[name] != value {
			t.Errorf("%s fails with %s, expected %s:\n%s", name, failed[name], value, rest)
		}
	}
	if cqe := fmt.Sprint(cq.at("cqe")); cqe != said["cqe"] || fmt.Sprint(mr.at("mrlen")) != "8192" {
		t.Errorf("rdma res shows %v and %v", cq, mr)
	}
}

// pairsOf reads pairs of words.
func pairsOf(text string) map[string]string {
	pairs := make(map[string]string)
	for pair := range slices.Chunk(strings.Fields(text), 2) {
		if len(pair) == 2 {
			pairs[pair[0]] = pair[1]
		}
	}
	return pairs
}

// knowsRequests reports whether the kernel describes struct uverbs_attr_bundle.
func knowsRequests(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat("/sys/kernel/btf/ib_core")
	return err == nil
}

// describeObject formats an event of an object as a line; absent fields are -.
func describeObject(t *testing.T, e jsonEvent) string {
	t.Helper()
	parts := []string{e.text("probe"), "dev", "ret"}
	switch {
	case strings.HasSuffix(e.text("probe"), "_cq"):
		parts = append(parts, "cq", "cq.id", "cqe", "cq.cqe", "cq.comp_vector")
	case strings.HasSuffix(e.text("probe"), "_mr"):
		parts = append(parts, "pd", "pd.id", "mr", "mr.id", "lkey", "mr.lkey", "rkey", "mr.rkey", "mr.access", "mr.length", "mr.start", "mr.iova")
	default:
		parts = append(parts, "pd", "pd.id")
	}
	for i, name := range parts {
		_, isWord := map[string]bool{"cq": true, "cqe": true, "pd": true, "mr": true, "lkey": true, "rkey": true}[name]
		if i == 0 || isWord {
			continue
		}
		parts[i] = e.text(name)
		if e.at(name) == nil {
			parts[i] = "-"
		}
	}
	return strings.Join(parts, " ")
}

// Objects of the kernel: the MAD layer makes a PD and a CQ for a device that comes and goes, NVMe over RDMA PDs, CQs and MRs.
func TestVMIbKernelObjects(t *testing.T) {
	sh(t, "modprobe -a nvmet nvmet-rdma nvme-rdma; mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config")
	trace := start(t, objectGlobs)
	bpftrace := startKprobes(t, map[string]string{
		"ib:alloc_pd": "__ib_alloc_pd", "ib:dealloc_pd": "ib_dealloc_pd_user",
		// What ib_core calls of the driver: these CQs and MRs have no program.
		"ib:create_cq": "rxe_create_cq", "ib:destroy_cq": "rxe_destroy_cq", "ib:reg_mr": "rxe_alloc_mr", "ib:dereg_mr": "ib_dereg_mr_user",
	})
	sh(t, "rdma link del rxe0; rdma link add rxe0 type rxe netdev dummy0")
	sh(t, `cd /sys/kernel/config/nvmet
mkdir subsystems/objects subsystems/objects/namespaces/1 ports/1
echo 1 > subsystems/objects/attr_allow_any_host
echo -n /dev/nvme0n1 > subsystems/objects/namespaces/1/device_path
echo 1 > subsystems/objects/namespaces/1/enable
echo 10.9.0.1 > ports/1/addr_traddr
echo rdma > ports/1/addr_trtype
echo 4420 > ports/1/addr_trsvcid
echo ipv4 > ports/1/addr_adrfam
ln -s /sys/kernel/config/nvmet/subsystems/objects ports/1/subsystems/objects
nvme connect -t rdma -a 10.9.0.1 -s 4420 -n objects -i 1 -Q 16
rdma res show mr > /dev/null
nvme disconnect -n objects
rm ports/1/subsystems/objects
rmdir ports/1
echo 0 > subsystems/objects/namespaces/1/enable
rmdir subsystems/objects/namespaces/1 subsystems/objects`)
	time.Sleep(2 * time.Second) // what the kernel still has to take apart in its threads
	want := kprobeCounts(t, bpftrace)
	events := trace.stop(t)
	sum := func(counts map[string]int) map[string]int {
		by := make(map[string]int)
		for key, n := range counts {
			by[strings.Fields(key)[0]] += n
		}
		return by
	}
	if got := eventCounts(events); !maps.Equal(got, want) {
		t.Errorf("events by probe, process and cgroup are\n%v\nbpftrace counts\n%v", got, want)
	}
	t.Log(sum(want))
	for probe := range objectProbes {
		if sum(want)[probe] == 0 {
			t.Errorf("bpftrace saw no %s: %v", probe, want)
		}
	}
	owners := make(map[string]bool)
	for _, e := range events {
		owners[e.text("owner.kernel")] = true
		if e.at("owner.kernel") == nil || e.at("owner.pid") != nil || e.text("dev") != "rxe0" || e.num(t, "ret") != 0 || e.at("mr.access") != nil {
			t.Errorf("want an object of the kernel on rxe0: %v", e)
		}
	}
	for _, owner := range []string{"ib_core", "nvme_rdma", "nvmet_rdma"} {
		if !owners[owner] {
			t.Errorf("no object of %s, only of %v", owner, owners)
		}
	}
}

// There are as many lookups of GIDs as calls of the kernel's functions, and they have the GIDs that sysfs shows.
func TestVMIbGids(t *testing.T) {
	trace := start(t, "ib:get_gid, ib:gid_ndev")
	bpftrace := startKprobes(t, map[string]string{"ib:get_gid": "rdma_get_gid_attr", "ib:gid_ndev": "rdma_read_gid_attr_ndev_rcu"})
	const port = "/sys/class/infiniband/rxe0/ports/1/"
	gid := netip.MustParseAddr(strings.TrimSpace(sh(t, "cat %sgids/1", port)))
	ndev := strings.TrimSpace(sh(t, "cat %sgid_attrs/ndevs/1", port))
	sh(t, "cat %sgids/9", port) // empty
	sh(t, "ibv_devinfo -v -d rxe0")
	want := kprobeCounts(t, bpftrace)
	events := trace.stop(t)
	if got := eventCounts(events); !maps.Equal(got, want) {
		t.Errorf("events by probe, process and cgroup are\n%v\nbpftrace counts\n%v", got, want)
	}
	seen := make(map[string]int)
	for _, e := range events {
		failed := e.text("probe") == "ib:get_gid" && e.num(t, "ret") != 0
		if failed {
			seen["failed"]++
			if e.at("gid") != nil || e.at("gid_type") != nil {
				t.Errorf("a lookup that failed has a GID: %v", e)
			}
			// A kprobe no longer knows the arguments.
			if bestVariant() == "fexit" && (e.text("dev") != "rxe0" || e.num(t, "port") != 1) {
				t.Errorf("a lookup that failed: %v", e)
			}
			continue
		}
		if e.text("dev") != "rxe0" || e.num(t, "port") != 1 {
			t.Errorf("not of rxe0: %v", e)
		}
		if e.num(t, "index") != 1 {
			continue
		}
		seen[e.text("probe")+" "+e.text("comm")]++
		if netip.MustParseAddr(e.text("gid")) != gid || e.text("gid_type") != "RoCEv2" {
			t.Errorf("GID 1 is %s (%s), sysfs has %s", e.text("gid"), e.text("gid_type"), gid)
		}
		if e.text("probe") == "ib:gid_ndev" && e.text("ndev") != ndev {
			t.Errorf("the network device of GID 1 is %s, sysfs has %s", e.text("ndev"), ndev)
		}
	}
	if seen["failed"] == 0 || seen["ib:get_gid cat"] == 0 || seen["ib:get_gid ibv_devinfo"] == 0 || seen["ib:gid_ndev ibv_devinfo"] == 0 {
		t.Errorf("lookups by cat and ibv_devinfo, and failed ones: %v", seen)
	}
}
