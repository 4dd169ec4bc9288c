//go:build vm

package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// startCMFtrace switches on the kernel's own text of the events of rdma_cm; the returned function switches it off and reads it, a line
// like `cm_send_rtu: cm.id=1 src=10.9.0.1:36866 dst=10.9.0.1:7174 tos=0` for each event.
func startCMFtrace(t *testing.T) func() []string {
	t.Helper()
	enable := filepath.Join(tracefs, "events/rdma_cma/enable")
	writeFile(t, filepath.Join(tracefs, "buffer_size_kb"), "4096")
	writeFile(t, filepath.Join(tracefs, "trace"), "")
	t.Cleanup(func() { writeFile(t, enable, "0") })
	writeFile(t, enable, "1")
	return func() []string {
		t.Helper()
		writeFile(t, enable, "0")
		text, err := os.ReadFile(filepath.Join(tracefs, "trace"))
		if err != nil {
			t.Fatal(err)
		}
		if h := ftraceHeader.FindSubmatch(text); h == nil || !bytes.Equal(h[1], h[2]) {
			t.Fatalf("ftrace lost events: %q", h)
		}
		var lines []string
		for _, m := range regexp.MustCompile(`(?m) (cm_\w+: .*)$`).FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, m[1])
		}
		return lines
	}
}

// cmText writes an event as the kernel does (drivers/infiniband/core/cma_trace.h).
func cmText(t *testing.T, e jsonEvent) string {
	t.Helper()
	name := strings.TrimPrefix(e.text("probe"), "cm:")
	if _, err := os.Stat(filepath.Join(tracefs, "events/rdma_cma/cm_prepare_mra")); err == nil && name == "send_mra" {
		name = "prepare_mra"
	}
	text := fmt.Sprintf("cm_%s: cm.id=%d src=%s dst=%s", name, e.num(t, "cm_id"), cmEnd(t, e, "src", "sport"), cmEnd(t, e, "dst", "dport"))
	number := func(enum map[string]int, field string) string {
		return fmt.Sprintf("%s (%d", e.text(field), enum[e.text(field)])
	}
	if name == "id_attach" {
		return text + " device=" + e.text("dev")
	}
	text += fmt.Sprintf(" tos=%d", e.num(t, "tos"))
	switch name {
	case "send_req", "send_rep", "qp_destroy":
		text += fmt.Sprintf(" qp_num=%d", e.num(t, "qp_num"))
	case "qp_create":
		qp, kind := int64(0), "SMI"
		if e.num(t, "ret") == 0 {
			qp, kind = e.num(t, "qp_num"), e.text("qp_type")
		}
		text += fmt.Sprintf(" pd.id=%d qp_type=%s send_wr=%d recv_wr=%d qp_num=%d rc=%d",
			e.num(t, "pd"), kind, e.num(t, "send_wr"), e.num(t, "recv_wr"), qp, e.num(t, "ret"))
	case "req_handler":
		text += " " + number(map[string]int{"REQ_RECEIVED": 1, "SIDR_REQ_RECEIVED": 16}, "event") + ")"
	case "event_handler":
		text += fmt.Sprintf(" %s/%d)", number(map[string]int{
			"ADDR_RESOLVED": 0, "ROUTE_RESOLVED": 2, "CONNECT_REQUEST": 4, "CONNECT_RESPONSE": 5, "UNREACHABLE": 7, "REJECTED": 8,
			"ESTABLISHED": 9, "DISCONNECTED": 10, "TIMEWAIT_EXIT": 15,
		}, "event"), e.num(t, "status"))
	case "event_done":
		text += fmt.Sprintf(" %s consumer returns %d", e.text("event"), e.num(t, "ret"))
	}
	return text
}

// cmEnd is address and port as %pISpc writes them.
func cmEnd(t *testing.T, e jsonEvent, address, port string) string {
	t.Helper()
	if e.at(address) == nil || e.text("family") == "IB" {
		return "(other)"
	}
	return netip.AddrPortFrom(netip.MustParseAddr(e.text(address)), uint16(e.num(t, port))).String()
}

// otherAddress is what the kernel writes for an address that is neither IPv4 nor IPv6, or not there: it differs between versions.
var otherAddress = regexp.MustCompile(`(src|dst)=(\(\w[^)]*\)|\S*[^0-9a-f.:\[\] ]\S*|(?:00)+)`)

// connectRping connects two programs by rdma_cm, and disconnects them; then a third one finds no listener at its port.
func connectRping(t *testing.T) {
	t.Helper()
	server := exec.Command("rping", "-s", "-a", "10.9.0.1", "-C", "2")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill() })
	waitFor(t, "the server listens", func() bool {
		return strings.Contains(sh(t, "rdma res show cm_id"), fmt.Sprintf("pid %d ", server.Process.Pid))
	})
	sh(t, "rping -c -a 10.9.0.1 -C 2")
	server.Wait() // it means that the client has disconnected
	if out, err := exec.Command("rping", "-c", "-a", "10.9.0.1", "-p", "999", "-C", "1").CombinedOutput(); err == nil {
		t.Errorf("rping connects where nobody listens:\n%s", out)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 300 {
		if done() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not within 15 s: %s", what)
}

// compareCM compares trace's events with ftrace's lines about them: each comes once, and whole.
func compareCM(t *testing.T, events []jsonEvent, lines []string) {
	t.Helper()
	var mine []string
	for _, e := range events {
		mine = append(mine, otherAddress.ReplaceAllString(cmText(t, e), "$1=?"))
	}
	for i, line := range lines {
		lines[i] = otherAddress.ReplaceAllString(line, "$1=?")
	}
	slices.Sort(mine)
	slices.Sort(lines)
	if !slices.Equal(mine, lines) {
		t.Errorf("trace saw %d events:\n%s\nftrace %d:\n%s", len(mine), strings.Join(mine, "\n"), len(lines), strings.Join(lines, "\n"))
	}
}

// Every event of a connection, of a rejection, and of the end is as ftrace writes it, whichever way it was seen.
func TestVMCm(t *testing.T) {
	for _, variant := range []string{"best", "tracepoint"} {
		t.Run(variant, func(t *testing.T) {
			if variant == "tracepoint" {
				hideTypes(t, "rdma_cm")
			}
			trace := start(t, "cm:*")
			if variant == "tracepoint" && !strings.Contains(trace.messages(t), "cm:send_req tracepoint") {
				t.Errorf("without types of the module:\n%s", trace.messages(t))
			}
			ftrace := startCMFtrace(t)
			connectRping(t)
			lines := ftrace()
			events := trace.stop(t)
			compareCM(t, events, lines)
			checkCMStory(t, events)
		})
	}
}

// checkCMStory checks that the expected events are there.
func checkCMStory(t *testing.T, events []jsonEvent) {
	t.Helper()
	seen := map[string]int{}
	for _, e := range events {
		name := e.text("probe")
		if e.at("event") != nil {
			name += " " + e.text("event")
		}
		seen[name]++
		if e.text("event") == "REJECTED" && name == "cm:event_handler REJECTED" {
			if e.text("reason") != "INVALID_SERVICE_ID" || e.text("dst") != "10.9.0.1" || e.num(t, "dport") != 999 {
				t.Errorf("the rejection is %v", e)
			}
		}
	}
	for name, want := range map[string]int{
		"cm:send_req": 2, "cm:send_rep": 1, "cm:send_rtu": 1, "cm:disconnect": 2, "cm:sent_dreq": 1, "cm:sent_drep": 1,
		"cm:req_handler REQ_RECEIVED": 1, "cm:event_handler ESTABLISHED": 1, "cm:event_handler REJECTED": 1,
		"cm:event_handler DISCONNECTED": 2, "cm:event_done DISCONNECTED": 2,
	} {
		if seen[name] != want {
			t.Errorf("%s: %d events, want %d: %v", name, seen[name], want, seen)
		}
	}
}

// The QP numbers are those that the kernel lists for the processes; what a predicate rejects is counted.
func TestVMCmFilter(t *testing.T) {
	trace := start(t, `cm:send_req, cm:send_rep / src == "10.9.0.1" && (sport == 7174 || dport == 7174) /
		cm:send_rtu / dst == "10.9.0.2" /`)
	server := exec.Command("rping", "-s", "-a", "10.9.0.1", "-C", "100000")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill() })
	waitFor(t, "the server listens", func() bool {
		return strings.Contains(sh(t, "rdma res show cm_id"), fmt.Sprintf("pid %d ", server.Process.Pid))
	})
	client := exec.Command("rping", "-c", "-a", "10.9.0.1", "-C", "100000")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Process.Kill() })
	pids := map[string]int64{"cm:send_req": int64(client.Process.Pid), "cm:send_rep": int64(server.Process.Pid)}
	qps := connectedQPs(t, map[int64]string{pids["cm:send_req"]: "RTS", pids["cm:send_rep"]: "RTS"})
	client.Process.Kill()
	client.Wait()
	server.Process.Kill()
	server.Wait()
	events := trace.stop(t)
	if len(events) != 2 {
		t.Errorf("%d events, want a request and a reply: %v", len(events), events)
	}
	for _, e := range events {
		pid := pids[e.text("probe")]
		if e.num(t, "pid") != pid || fmt.Sprintf("%d RC RTS", e.num(t, "qp_num")) != qps[pid] {
			t.Errorf("%v, want process %d, whose QP is %s", e, pid, qps[pid])
		}
	}
	for probe, want := range map[string]string{
		"cm:send_req": "1 seen, 1 printed, 0 rejected, 0 lost", "cm:send_rep": "1 seen, 1 printed, 0 rejected, 0 lost",
		"cm:send_rtu": "1 seen, 0 printed, 1 rejected, 0 lost",
	} {
		if !strings.Contains(trace.messages(t), probe+": "+want) {
			t.Errorf("%s: want %q in:\n%s", probe, want, trace.messages(t))
		}
	}
}

// nvmeOverRDMA makes a target of NVMe over RDMA. What it returns runs a command while the target listens.
func nvmeOverRDMA(t *testing.T) (while func(command string)) {
	t.Helper()
	const target = "/sys/kernel/config/nvmet"
	sh(t, `modprobe nvmet-rdma; modprobe nvme-rdma
		[ -d %[1]s ] || mount -t configfs none /sys/kernel/config
		cd %[1]s; mkdir subsystems/tt subsystems/tt/namespaces/1 ports/1
		echo 1 >subsystems/tt/attr_allow_any_host
		echo -n /dev/nvme0n2 >subsystems/tt/namespaces/1/device_path; echo 1 >subsystems/tt/namespaces/1/enable
		cd ports/1; echo rdma >addr_trtype; echo ipv4 >addr_adrfam; echo 10.9.0.1 >addr_traddr; echo 4420 >addr_trsvcid`, target)
	t.Cleanup(func() {
		sh(t, `cd %s; rm -f ports/1/subsystems/tt; rmdir ports/1 subsystems/tt/namespaces/1 subsystems/tt`, target)
	})
	return func(command string) {
		sh(t, `cd %s; ln -s $PWD/subsystems/tt ports/1/subsystems/tt
			%s; rm ports/1/subsystems/tt; sleep 1`, target, command)
	}
}

const connectKernel = "nvme connect -t rdma -n tt -a 10.9.0.1 -s 4420 -i 1; nvme disconnect -n tt"

// The kernel's own connections have their QPs by the connection manager: an NVMe host and its target, both here.
func TestVMCmKernel(t *testing.T) {
	while := nvmeOverRDMA(t)
	var lines []string
	events := untilWhole(t, "cm:*", func() {
		ftrace := startCMFtrace(t)
		while(connectKernel)
		lines = ftrace()
	})
	compareCM(t, events, lines)
	created := map[string]bool{}
	for _, e := range events {
		if e.text("probe") != "cm:qp_create" {
			continue
		}
		created[e.text("qp_num")] = true
		if e.text("qp_type") != "RC" || e.num(t, "ret") != 0 {
			t.Errorf("%v, want an RC QP", e)
		}
	}
	if len(created) != 4 {
		t.Errorf("QPs created %v, want two of the host and two of the target", created)
	}
}
