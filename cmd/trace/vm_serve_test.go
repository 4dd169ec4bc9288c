//go:build vm

package main

import (
	"strings"
	"syscall"
	"testing"
)

// What Prometheus and VictoriaMetrics know of NVMe, verbs and system calls is what fio, a ping-pong and dd did: also after a reload and a
// restart, and for ten times as many keys as there is room for.
func TestVMServePrometheus(t *testing.T) {
	j := findJudges(t)
	small, _ := namespaces(t)
	programs := `programs:
  - name: nvme
    script: nvme_latency
    params: {interval: 10}
    maps: {us: {metric: nvme_latency}}
  - name: verbs
    program: 'verbs:post_send / comm == "ibv_rc_pingpong" / { @posts[opcode] = count() }'
  - name: writes
    series: 3
    program: 'syscall:enter / comm == "dd" && nr == write / { @[key = nsecs % 30] = count() }'
  - name: changed
    program: 'syscall:enter / comm == "dd" && nr == write / { @ = count() }'
`
	s := newService(t, j.sending(programs))
	j.start(t, s.address)
	reads, writes, sent, written := 0, 0, 0, 0
	work := func() {
		t.Helper()
		fio(t, small, 60, 40)
		reads, writes = reads+60, writes+40
		sent += 2 * 20
		server := onCPU(0, strings.Fields("ibv_rc_pingpong -d rxe0 -g 1 -n 20")...)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		waitForListener(t)
		sh(t, "ibv_rc_pingpong -d rxe0 -g 1 -n 20 10.9.0.1")
		if err := server.Wait(); err != nil {
			t.Fatal(err)
		}
		sh(t, "dd if=/dev/zero of=/dev/null bs=1 count=300 status=none")
		written += 300
	}
	seen := func() {
		t.Helper()
		j.become(t, `sum(COUNT(trace_nvme_percentiles_seconds{opcode="read"}))`, reads)
		j.become(t, `sum(COUNT(trace_nvme_percentiles_seconds{opcode="write"}))`, writes)
		j.become(t, `sum(trace_nvme_all_seconds_count)`, reads+writes)
		j.become(t, "sum(trace_verbs_posts_total)", sent)
		j.become(t, "sum("+recent("trace_writes_total")+")", written)
	}
	work()
	seen()
	j.become(t, "count("+recent("trace_writes_total")+")", 4)
	j.checkMetrics(t, s.address)

	s.configure(t, j.sending(strings.Replace(programs, "{ @ = count() }", "{ @ = count(); @size = sum(8) }", 1)))
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	work() // while the configuration is read
	seen()
	j.become(t, "trace_changed_size_total >= bool 0", 1)

	before := map[database]float64{}
	for _, d := range []database{j.scraped, j.sent} {
		before[d], _ = d.counted(t, "trace_verbs_posts_total")
	}
	s.stop(t)
	s.start(t)
	reads, writes, sent, written = 0, 0, 0, 0
	work()
	seen()
	for d, before := range before {
		if sum, resets := d.counted(t, "trace_verbs_posts_total"); sum != before+float64(sent) || resets != 1 {
			t.Errorf("%s: %v posts and %d resets, want %v and a reset", d.name, sum, resets, before+float64(sent))
		}
	}
}
