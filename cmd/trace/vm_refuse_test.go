//go:build vm

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"trace/lang/run"
)

// A policy keeps trace from something.
type policy struct {
	name  string             // "": none
	begin func(t *testing.T) // t.Cleanup takes it back
	// variants are those by which nothing is attached then, and reason is why, in its words, a probe is no longer available.
	variants, reason string
	// least is how many probes are still available at least; 0: all.
	least int
	// silent: it does not keep trace from attaching, but the kernel then does not run programs. A run warns.
	silent bool
}

var policies = []policy{
	{"", func(*testing.T) {}, "", "", 0, false},
	{"fexit", forbidFexit, "fexit|fentry", byModule, 60, false},
	{"fexit and kprobes", func(t *testing.T) { forbidFexit(t); forbidKprobes(t) }, "fexit|fentry|kprobe|uprobe", byModule, 30, false},
	{"kprobes and tracefs", hideTracing, "kprobe", `kprobes cannot be reached|tracefs is not mounted`, 40, false},
	{"types", hideTypesOfKernel, "fexit|fentry|tp_btf", `this kernel shows no BTF`, 3, false},
	{"", func(*testing.T) {}, "", "", 0, false},
	{"integrity", lockDown("integrity"), "", "", 0, false},
	{"confidentiality", lockDown("confidentiality"), "kprobe", `the kernel is locked down \(confidentiality`, 3, false},
}

// byModule is the reason where a program forbids it that a security module runs.
const byModule = `a security module forbids it \([^)]*\bbpf\b[^)]* of /sys/kernel/security/lsm`

// What doctor calls available is attached, whatever the kernel forbids. Of the rest doctor and a run give the reason, and scripts and the service
// show what is left. Without a policy, before it and after it, all is available. A level of lockdown lasts, so they come last.
func TestVMRefuse(t *testing.T) { checkPolicies(t, policies) }

// The same without ftrace, in a machine to itself: after it, and under lockdown, fexit was seen to fail with "no such device".
func TestVMRefuseFtrace(t *testing.T) {
	checkPolicies(t, []policy{
		{"", func(*testing.T) {}, "", "", 0, false},
		{"ftrace", silenceFtrace, "fexit|fentry", `kernel\.ftrace_enabled is 0.*\(sysctl kernel\.ftrace_enabled=1\)`, 30, true},
	})
}

func checkPolicies(t *testing.T, all []policy) {
	sh(t, "mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security")
	var whole map[string]string
	for _, p := range all {
		t.Run(cmp.Or(p.name, "none"), func(t *testing.T) {
			p.begin(t)
			checkCounts(t)
			d := examined(t)
			if whole == nil {
				whole = d.available
			}
			p.checkDoctor(t, d, whole)
			if p.name != "" {
				p.checkAttached(t, d, whole)
				p.checkUsers(t, d)
			}
		})
	}
}

// checkCounts shows that programs run: nothing below is empty because nothing ran.
func checkCounts(t *testing.T) {
	t.Helper()
	if out := sh(t, "trace -q -c true 'syscall:enter { @ = count() }'"); !regexp.MustCompile(`^@: [1-9]`).MatchString(out) {
		t.Fatalf("system calls are not counted: %s", out)
	}
}

// A diagnosed kernel is what doctor finds out: the variants of the probes that are available, which of these lack fields, and why the others are not.
type diagnosed struct {
	available, reasons map[string]string
	partial            []string
}

func examined(t *testing.T) diagnosed {
	t.Helper()
	began := time.Now()
	out, err := exec.Command("trace", "doctor", "-f", "json").CombinedOutput()
	t.Logf("doctor took %v", time.Since(began))
	var found run.Diagnosis
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil || strings.Contains(string(out), "bug in trace") {
		t.Fatalf("%v: %s", err, out)
	}
	d := diagnosed{available: map[string]string{}, reasons: map[string]string{}}
	for _, p := range found.Probes {
		if !p.Available {
			d.reasons[p.Name] = p.Reason
			continue
		}
		d.available[p.Name] = p.Variant
		if strings.Contains(strings.Join(p.Notes, "\n"), "some fields cannot be read: ") {
			d.partial = append(d.partial, p.Name)
			t.Log(p.Name, p.Notes)
		}
	}
	return d
}

// whole reports whether a probe is available with all of its fields.
func (d diagnosed) whole(probe string) bool {
	return d.available[probe] != "" && !slices.Contains(d.partial, probe)
}

// lost are the probes that are no longer available.
func (d diagnosed) lost(whole map[string]string) (names []string) {
	for name := range whole {
		if d.available[name] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// checkDoctor compares what doctor finds with what it finds without a policy.
func (p policy) checkDoctor(t *testing.T, d diagnosed, whole map[string]string) {
	t.Helper()
	lost := d.lost(whole)
	t.Logf("%d probes are available, %d of them in part: %v", len(d.available), len(d.partial), d.available)
	if p.least == 0 {
		// Under lockdown the kernel hides whether it preempts tasks inside programs, so that functions are traced by kprobe.
		if !maps.Equal(d.available, whole) && (p.name == "" || len(lost) > 0 || len(d.available) > len(whole)) {
			t.Errorf("available are %v, without a policy %v; %v", d.available, whole, d.reasons)
		}
		return
	}
	for name, variant := range d.available {
		if regexp.MustCompile("^(" + p.variants + ")$").MatchString(variant) {
			t.Errorf("%s is available by %s", name, variant)
		}
	}
	if len(d.available) < p.least || maps.Equal(d.available, whole) {
		t.Errorf("%d probes are available, want at least %d", len(d.available), p.least)
	}
	tried := map[string]bool{}
	for _, name := range lost {
		reason := d.reasons[name]
		if !regexp.MustCompile(p.reason).MatchString(reason) {
			t.Errorf("%s: %s", name, reason)
		}
		if tried[reason] {
			continue
		}
		tried[reason] = true
		t.Logf("%s: %s", name, reason)
		p.checkRefused(t, name, reason)
	}
}

// silence is the warning.
const silence = `the kernel does not run programs of .*\b%s\b.*, so their events are missing: kernel\.ftrace_enabled is 0: sysctl kernel\.ftrace_enabled=1`

// explains reports whether a run prints why it does not see events of a probe.
func (p policy) explains(out, probe string) bool {
	if p.silent {
		return regexp.MustCompile(fmt.Sprintf(silence, probe)).MatchString(out)
	}
	return regexp.MustCompile(`\b` + probe + `\b.*: .*(` + p.reason + `)`).MatchString(out)
}

// checkRefused has a run of a probe end as doctor foretells.
func (p policy) checkRefused(t *testing.T, name, reason string) {
	t.Helper()
	out, err := exec.Command("trace", "--dry-run", name).CombinedOutput()
	if !p.explains(string(out), name) || (err == nil) != p.silent || strings.Contains(string(out), "bug in trace") {
		t.Errorf("a run of %s: %v: %s; doctor: %s", name, err, out, reason)
	}
}

// checkAttached attaches all that is available, with all fields but where some are missing, or there are too many events to print them.
func (p policy) checkAttached(t *testing.T, d diagnosed, whole map[string]string) {
	t.Helper()
	var printed []string
	counted := append([]string{"verbs:poll"}, d.partial...)
	for _, name := range slices.Sorted(maps.Keys(d.available)) {
		if !slices.Contains(counted, name) {
			printed = append(printed, name)
		}
	}
	counted = slices.DeleteFunc(counted, func(name string) bool { return d.available[name] == "" })
	program := strings.Join(printed, ", ")
	if len(counted) > 0 {
		program += "\n" + strings.Join(counted, ", ") + " { @ = count() }"
	}
	program = strings.ReplaceAll(program, "profile:hz", "profile:99hz")
	out, err := exec.Command("trace", "-v", "--dry-run", program).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("Attached %d probes", len(d.available))) || strings.Contains(string(out), "bug in trace") {
		t.Errorf("%v: %s", err, out)
	}
	// On a kernel that preempts, like 7.2, it is attached by kprobe anyway.
	if strings.Contains(p.variants, "fexit") && whole["ib:create_qp"] == "fexit" && d.available["ib:create_qp"] == "kprobe" && !regexp.MustCompile(`ib:create_qp: fexit: .*(`+p.reason+`)`).Match(out) {
		t.Errorf("why ib:create_qp is attached by kprobe is not there: %s", out)
	}
}

// limits leave nothing unusual to triage.
var limits = strings.Fields("--failed=9999 --slow=9999s --verbs=9999 --errors=99999 --retries=99999 --congestion=99999 --runq=9999s --throttled=9999 --reclaims=99999 --held=9999s")

// checkUsers looks at what triage, rdma_monitor and the service with its default configuration have seen of a disk and a device.
func (p policy) checkUsers(t *testing.T, d diagnosed) {
	t.Helper()
	seesObjects := d.whole("rdma:resource")
	service := startDefault(t)
	triage := startTool(t, "", "trace", append([]string{"triage", "1h"}, limits...)...)
	monitor := startTool(t, "", "trace", "rdma_monitor")
	if !seesObjects && !p.silent {
		if err := monitor.cmd.Wait(); err == nil || !p.explains(monitor.out.String(), "rdma:resource") || strings.Contains(monitor.out.String(), "Started") {
			t.Errorf("rdma_monitor: %v: %s", err, monitor.out.String())
		}
	} else {
		waitUntil(t, "rdma_monitor is attached", func() bool { return strings.Contains(monitor.out.String(), "Attached") })
	}
	waitUntil(t, "triage is attached", func() bool { return strings.Contains(triage.out.String(), "Attached") })
	service.checkSees(t, d) // and the disk and the device work
	if seesObjects || p.silent {
		time.Sleep(2 * time.Second) // a report
		monitor.end(t)
		out := monitor.out.String()
		if regexp.MustCompile(`(?m)^ +\w+ +: \d+(m\d|h)`).MatchString(out) {
			t.Errorf("calls that take minutes: %s", out)
		}
		if seesObjects != regexp.MustCompile(`create_qp +: [1-9]`).MatchString(out) || seesObjects == p.explains(out, "rdma:resource") {
			t.Errorf("rdma:resource is available: %t: %s", seesObjects, out)
		}
	}
	triage.end(t)
	out := triage.out.String()
	m := regexp.MustCompile(`nothing unusual in \S+ among (\d+) NVMe commands, (\d+) block requests, (\d+) verbs, \d+ changes of counters, (\d+) waits`).FindStringSubmatch(out)
	if strings.Contains(out, "nothing was seen in ") {
		m = []string{"", "0", "0", "0", "0"}
	}
	if m == nil || strings.Contains(out+monitor.out.String(), "bug in trace") {
		t.Fatal(out)
	}
	for i, probe := range []string{"nvme:complete_rq", "block:complete", "ib:create_qp", "sched:runq"} {
		there := d.whole(probe)
		if there != (m[i+1] != "0") || there == p.explains(out, probe) {
			t.Errorf("%s is available: %t: %s", probe, there, out)
		}
	}
}

// startDefault starts the service with its default configuration.
func startDefault(t *testing.T) defaultService {
	t.Helper()
	config, err := os.ReadFile("../trace-web/deploy/trace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	provideWeb(t)
	s := &service{file: filepath.Join(t.TempDir(), "trace.yaml"), address: freeAddress(t)}
	s.configure(t, string(config))
	return defaultService{startTool(t, "", "trace", "serve", "-c", s.file), s.address}
}

type defaultService struct {
	*tool
	address string
}

// checkSees lets a disk and a device work until metrics of all that can be seen are there, and ends the service. There are no others.
func (s defaultService) checkSees(t *testing.T, d diagnosed) {
	t.Helper()
	small, _ := namespaces(t)
	probes := map[string]string{"trace_nvme_command": "nvme:complete_rq", "trace_rdma_call": "ib:create_qp", "trace_host_block": "block:complete", "trace_host_runq": "sched:runq"}
	text := ""
	differ := func() (names []string) {
		for metric, probe := range probes {
			there := regexp.MustCompile(`(?m)^` + metric + `_seconds_count\{.*\} [1-9]`).MatchString(text)
			if there != d.whole(probe) {
				names = append(names, metric)
			}
		}
		return names
	}
	for end := time.Now().Add(2 * time.Minute); ; {
		sh(t, "dd if=/dev/%s of=/dev/null bs=4096 count=5 iflag=direct status=none", small.disk)
		pingPong(t, true)
		if _, text = httpGet(s.address, "/metrics"); len(differ()) == 0 || time.Now().After(end) {
			break
		}
	}
	if names := differ(); len(names) > 0 {
		_, ready := httpGet(s.address, "/-/ready")
		t.Errorf("%v are there or missing, available are %v: %s", names, d.available, ready)
	}
	if err := s.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil || strings.Contains(s.out.String(), "bug in trace") {
		t.Errorf("%v: %s", err, s.out.String())
	}
}

// A condition is about a number of 4 bytes in what an argument points to.
type condition struct {
	offset int32
	values []int32
}

// forbid lets a hook of security modules answer err, where its argument meets all conditions.
func forbid(t *testing.T, hook string, arg int16, err unix.Errno, all ...condition) {
	t.Helper()
	code := asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 8*arg, asm.DWord)}
	for i, c := range all {
		met := fmt.Sprint("met", i)
		code = append(code,
			asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, -8), asm.Mov.Imm(asm.R2, 4),
			asm.Mov.Reg(asm.R3, asm.R6), asm.Add.Imm(asm.R3, c.offset), asm.FnProbeReadKernel.Call(),
			asm.LoadMem(asm.R1, asm.RFP, -8, asm.Word))
		for _, v := range c.values {
			code = append(code, asm.JEq.Imm(asm.R1, v, met))
		}
		code = append(code, asm.Mov.Imm(asm.R0, 0), asm.Return(), asm.Mov.Imm(asm.R0, -int32(err)).WithSymbol(met))
	}
	code = append(code, asm.Return())
	p, e := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.LSM, AttachType: ebpf.AttachLSMMac, AttachTo: hook, License: "GPL", Instructions: code})
	if e != nil {
		t.Fatal(e)
	}
	defer p.Close()
	l, e := link.AttachLSM(link.LSMOptions{Program: p})
	if e != nil {
		t.Fatal(e)
	}
	t.Cleanup(func() { l.Close() })
}

// forbidFexit forbids programs that functions call. union bpf_attr has the type of a program at 0, and how it is attached at 68.
func forbidFexit(t *testing.T) {
	forbid(t, "bpf", 1, unix.EPERM, condition{0, []int32{int32(ebpf.Tracing)}}, condition{68, []int32{int32(ebpf.AttachTraceFEntry), int32(ebpf.AttachTraceFExit)}})
}

const kprobePMU = "/sys/bus/event_source/devices/kprobe"

// forbidKprobes forbids perf events that are kprobes. struct perf_event_attr has the type at 0.
func forbidKprobes(t *testing.T) {
	text, err := os.ReadFile(kprobePMU + "/type")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var event *btf.Struct
	if err := types.TypeByName("perf_event", &event); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(event.Members, func(m btf.Member) bool { return m.Name == "attr" })
	forbid(t, "perf_event_alloc", 0, unix.EACCES, condition{int32(event.Members[i].Offset.Bytes()), []int32{int32(n)}})
}

// hide mounts an empty folder over one.
func hide(t *testing.T, dirs ...string) {
	for _, dir := range dirs {
		sh(t, "mount -t tmpfs none %s", dir)
		t.Cleanup(func() { sh(t, "umount %s", dir) })
	}
}

func hideTracing(t *testing.T)       { hide(t, kprobePMU, "/sys/kernel/tracing", "/sys/kernel/debug") }
func hideTypesOfKernel(t *testing.T) { hide(t, "/sys/kernel/btf") }

func silenceFtrace(t *testing.T) {
	sh(t, "sysctl -q kernel.ftrace_enabled=0")
	t.Cleanup(func() { sh(t, "sysctl -q kernel.ftrace_enabled=1") })
}

// lockDown returns what raises the level of kernel_lockdown(7).
func lockDown(level string) func(t *testing.T) {
	return func(t *testing.T) {
		sh(t, "echo %s >/sys/kernel/security/lockdown", level)
	}
}
