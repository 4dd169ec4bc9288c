package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What is counted of each device of a network namespace is what /proc/net/dev shows; a filter counts what it rejects; a device that is made
// again has counters that are lower than before.
func TestNetCounters(t *testing.T) {
	requireLive(t)
	checkNetCounters(t)
}

// datagrams sends datagrams to a port that nobody listens at.
const datagrams = `send() { for i in $(seq $2); do echo hello >/dev/udp/$1/9; done; }
`

// inNamespace runs a script before trace and a command in trace, in a network namespace of their own whose devices send nothing by themselves.
func inNamespace(t *testing.T, setup, command, program string) (stdout, stderr string) {
	t.Helper()
	const quiet = "set -e; echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; ip link set lo up\n"
	cmd := exec.Command("unshare", "-n", "bash", "-c", quiet+datagrams+setup+"\nexport -f send\nexec trace -v -f json -c \"bash -c '"+command+"'\" '"+program+"'")
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, out.String(), messages.String())
	}
	return out.String(), messages.String()
}

func checkNetCounters(t *testing.T) {
	t.Helper()
	// Many readings add up to what the kernel counts, also if some are left out, as trace is stopped.
	out, messages := inNamespace(t, "send 127.0.0.1 3",
		`cat /proc/net/dev; for n in 1 2 3 4 5; do send 127.0.0.1 4; sleep 0.1; done; kill -STOP \$PPID; sleep 0.3; kill -CONT \$PPID; cat /proc/net/dev`,
		`net:counters:20ms / dev == "lo" && source == DEVICE / { @[name] = sum(delta) }`)
	shown := loopbackOf(t, out)
	want := map[string]uint64{}
	for name := range shown[0] {
		if grown := shown[1][name] - shown[0][name]; grown != 0 {
			want[name] = grown
		}
	}
	lines := regexp.MustCompile(`(?m)^\{.*$`).FindAllString(out, -1)
	if got := sumsOf(t, strings.NewReader(strings.Join(lines, "\n")))["@"]; fmt.Sprint(got) != fmt.Sprint(want) || len(want) != 4 {
		t.Errorf("%v, /proc/net/dev has %v: %s", got, want, messages)
	}
	if !strings.Contains(messages, " or more of readings that were left out, as one failed or took longer than its period: the next one has what changed") {
		t.Error(messages)
	}

	const refused = "trace: net:counters has no process, and the filter (-p, --children, --comm, --cgroup, --pgid or --pidns) leaves only events of some: leave out one of them"
	if out, err := exec.Command("trace", "-p", "1", "net:counters").CombinedOutput(); err == nil || !strings.HasPrefix(string(out), refused) {
		t.Errorf("%v: %s", err, out)
	}

	// The last reading is at the end. Only then, bytes and packets in both directions have changed.
	out, messages = inNamespace(t, "", "send 127.0.0.1 7", `net:counters:1h / name == "tx_packets" /`)
	events := countersOf(t, out)
	if len(events) != 1 || !strings.Contains(messages, "net:counters: 4 seen, 1 printed, 3 rejected, 0 lost") {
		t.Fatalf("%v: %s", events, messages)
	}
	// Each datagram is answered: nobody listens.
	if e := events[0]; e.Dev != "lo" || e.Value != 14 || e.Delta == nil || *e.Delta != 14 || e.Period == 0 || e.PID != nil || e.CPU != nil || e.Comm != nil {
		t.Errorf("%+v", e)
	}

	// The same number, so that it looks like the same device.
	const pair = "ip link add v0 index 77 type veth peer name v1; ip link set v0 up; ip link set v1 up; ip addr add 10.77.0.1/24 dev v0; " +
		"ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev v0; "
	out, messages = inNamespace(t, pair+"send 10.77.0.2 5", "ip link del v0; "+pair+"send 10.77.0.2 2; grep v0 /proc/net/dev", `net:counters:1h / name == "tx_packets" /`)
	events = countersOf(t, out)
	if len(events) != 1 || events[0].Dev != "v0" || events[0].Value != 2 || events[0].Delta != nil {
		t.Errorf("%s: %s", out, messages)
	}
}

// A counterEvent has the fields of net:counters.
type counterEvent struct {
	Dev, Name, Source string
	Value, Period     uint64
	Delta             *uint64
	PID, CPU, Comm    any
}

func countersOf(t *testing.T, out string) (events []counterEvent) {
	t.Helper()
	for line := range strings.Lines(out) {
		var e struct {
			Type string
			Data counterEvent
		}
		if !strings.HasPrefix(line, "{") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type == "event" {
			events = append(events, e.Data)
		}
	}
	return events
}

// loopbackOf returns what /proc/net/dev shows of lo each time: proc_pid_net(5).
func loopbackOf(t *testing.T, text string) (all []map[string]uint64) {
	t.Helper()
	names := []string{"rx_bytes", "rx_packets", "", "", "", "", "", "", "tx_bytes", "tx_packets"}
	for _, line := range regexp.MustCompile(`(?m)^ *lo:.*$`).FindAllString(text, -1) {
		numbers := map[string]uint64{}
		for i, word := range strings.Fields(line)[1:] {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if i < len(names) && names[i] != "" {
				numbers[names[i]] = n
			}
		}
		all = append(all, numbers)
	}
	if len(all) != 2 {
		t.Fatal(text)
	}
	return all
}

// A recording of counters of the network card of a virtual machine, in which two packets were answered twice, and an address was looked up.
func TestCountersReplay(t *testing.T) {
	const program = `net:counters / source == DEVICE && name endsWith "_packets" / { @[dev, name] = sum(delta); @last[name] = value }`
	out, err := exec.Command("trace", "-r", "testdata/lines/net.rec", program).CombinedOutput()
	const want = "@[eth0, rx_packets]: 5\n@[eth0, tx_packets]: 5\n@last[rx_packets]: 5\n@last[tx_packets]: 5\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
	out, err = exec.Command("trace", "-r", "testdata/lines/net.rec", "net:counters:1s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "net:counters was recorded with a period of 100ms, not of 1s") {
		t.Errorf("%v: %s", err, out)
	}
}
