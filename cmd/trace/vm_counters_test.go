//go:build vm

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// netUp loads the driver of the network card, and returns what makes some packets go through it.
func netUp(t *testing.T) (ping func()) {
	t.Helper()
	sh(t, "modprobe virtio_net")
	waitUntil(t, "the card is there", func() bool { return sh(t, "ls /sys/class/net | grep eth0 || true") != "" })
	sh(t, "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up")
	return func() { sh(t, "busybox ping -c 2 10.0.2.2") }
}

// A network card that comes after the start is read; what its driver counts is what ethtool shows. When it goes and comes again, nothing looks
// as if it had been reset.
func TestVMNetCounters(t *testing.T) {
	checkNetCounters(t)
	trace := start(t, `net:counters:100ms / dev == "eth0" && source == ETHTOOL /`)
	changed := map[string]uint64{}
	for range 2 {
		ping := netUp(t)
		events := func() int { return strings.Count(trace.wrote(t), `"net:counters"`) }
		seen := events()
		waitUntil(t, "the card is read", func() bool {
			ping()
			return events() > seen
		})
		before, from := ethtoolOf(t), len(trace.wrote(t))
		ping()
		changed = ethtoolOf(t)
		maps.DeleteFunc(changed, func(name string, value uint64) bool { return value == before[name] })
		for name, value := range changed {
			waitUntil(t, name+" is seen", func() bool {
				return strings.Contains(trace.wrote(t)[from:], fmt.Sprintf(`"name":%q,"value":%d,`, name, value))
			})
		}
		sh(t, "rmmod virtio_net")
	}
	events, _ := trace.stopAll(t) // a slow machine leaves out readings
	last, begun := map[string]int64{}, map[string]int{}
	for _, e := range events {
		name, value, delta := e.text("name"), e.num(t, "value"), e.num(t, "delta")
		if last[name] != value-delta {
			begun[name]++ // another device
		}
		if delta <= 0 || begun[name] > 2 {
			t.Errorf("after %s=%d: %v", name, last[name], e)
		}
		last[name] = value
	}
	for name, value := range changed {
		if uint64(last[name]) != value {
			t.Errorf("%s: the last value is %d, ethtool shows %d", name, last[name], value)
		}
	}
	if len(changed) == 0 {
		t.Error("ethtool shows no change")
	}
}

// ethtoolOf returns what ethtool shows of the card.
func ethtoolOf(t *testing.T) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^ +(\S+): (\d+)$`).FindAllStringSubmatch(sh(t, "ethtool -S eth0"), -1) {
		all[m[1]], _ = strconv.ParseUint(m[2], 10, 64)
	}
	return all
}

func TestVMNetLines(t *testing.T) {
	ping := netUp(t)
	recordLines(t, "net", "net:counters:100ms", func() {
		ping()
		ping()
	})
}

// What an RDMA device counts is what its files show before and after, and what rdma statistic shows; a filter counts what it rejects.
func TestVMRdmaCounters(t *testing.T) {
	before := rdmaFiles(t)
	trace := start(t, `rdma:counters:1h / name endsWith "_pkts" && source == HW_COUNTERS /`)
	many := start(t, "rdma:counters:50ms")
	pingPong(t, true)
	time.Sleep(100 * time.Millisecond) // the kernel keeps what it has read for 12 ms
	after := rdmaFiles(t)
	shown := rdmaStatistic(t)
	grown, changed := map[string]uint64{}, 0
	for path, value := range after {
		if value != before[path] {
			grown[path] = value - before[path]
			changed++
		}
	}
	events, sums := trace.stop(t), map[string]uint64{}
	readings, _ := many.stopAll(t) // a slow machine leaves out some
	for _, e := range readings {
		sums[rdmaPath(e)] += uint64(e.num(t, "delta"))
	}
	for path := range after {
		if sums[path] != grown[path] {
			t.Errorf("%s: the sum is %d, the file has grown by %d", path, sums[path], grown[path])
		}
	}
	if len(sums) != changed || changed < 2 {
		t.Errorf("%v, want %v", sums, grown)
	}
	if len(events) != 2 {
		t.Errorf("%d events: %v", len(events), events)
	}
	for _, e := range events {
		name, value := e.text("name"), uint64(e.num(t, "value"))
		if value != shown[name] || value != after[rdmaPath(e)] || uint64(e.num(t, "delta")) != grown[rdmaPath(e)] || e["pid"] != nil {
			t.Errorf("rdma statistic shows %d: %v", shown[name], e)
		}
	}
	if got, want := tallies(t, trace.messages(t))["rdma:counters"], [4]int{changed, 2, changed - 2, 0}; got != want {
		t.Errorf("report has %v, want %v: %s", got, want, trace.messages(t))
	}
	// A device that is made again under the same name and number is another one: its counters are not lower than before, but new.
	again := start(t, "rdma:counters:1h")
	sh(t, "rdma link delete rxe0; rdma link add rxe0 type rxe netdev dummy0")
	pingPong(t, true)
	if events := again.stop(t); len(events) > 0 {
		t.Errorf("of another device: %v", events)
	}
}

// rdmaFiles reads the counters of all ports.
func rdmaFiles(t *testing.T) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, folder := range []string{"counters", "hw_counters"} {
		text := sh(t, "cd /sys/class/infiniband; for f in $(ls */ports/*/%s/* | grep -v lifespan); do echo $f $(cat $f 2>/dev/null); done", folder)
		for _, m := range regexp.MustCompile(`(?m)^(\S+) (\d+)$`).FindAllStringSubmatch(text, -1) {
			all[m[1]], _ = strconv.ParseUint(m[2], 10, 64)
		}
	}
	return all
}

// rdmaPath returns the file of an event's counter.
func rdmaPath(e jsonEvent) string {
	return filepath.Join(e.text("dev"), "ports", e.text("port"), strings.ToLower(e.text("source")), e.text("name"))
}

func rdmaStatistic(t *testing.T) map[string]uint64 {
	t.Helper()
	var all []map[string]any
	if err := json.Unmarshal([]byte(sh(t, "rdma -j statistic show link rxe0/1")), &all); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	counters := map[string]uint64{}
	for name, value := range all[0] {
		if n, ok := value.(float64); ok {
			counters[name] = uint64(n)
		}
	}
	return counters
}

func TestVMRdmaCountersLines(t *testing.T) {
	recordLines(t, "rdma_counters", "rdma:counters:100ms", func() { pingPong(t, true) })
}
