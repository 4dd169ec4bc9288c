//go:build vm

package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// listedQPs returns "dev lqpn type state rqpn pid" of each QP that rdma res shows; what it does not show is "-".
func listedQPs(t *testing.T) map[string]int {
	t.Helper()
	var qps []map[string]any
	decodeText(t, sh(t, "rdma -j res show qp"), &qps)
	listed := make(map[string]int)
	for _, qp := range qps {
		line := make([]string, 0, 6)
		for _, key := range []string{"ifname", "lqpn", "type", "state", "rqpn", "pid"} {
			if qp[key] == nil {
				line = append(line, "-")
			} else {
				line = append(line, fmt.Sprint(qp[key]))
			}
		}
		listed[strings.Join(line, " ")]++
	}
	return listed
}

// queried returns the event as a line of listedQPs.
func (e jsonEvent) queried() string {
	line := []string{e.text("dev"), e.text("qp.num"), e.text("qp.type"), e.text("qp.state"), "-", "-"}
	if e.at("dest_qpn") != nil {
		line[4] = e.text("dest_qpn")
	}
	if e.at("owner.pid") != nil {
		line[5] = e.text("owner.pid")
	}
	return strings.Join(line, " ")
}

// QPs that were there before have their flow: once each, as rdma res shows them. The common fields are their maker's.
func TestVMRdmaQPsFromBefore(t *testing.T) {
	path := buildDatapath(t)
	connected := startDatapath(t, path, "qps=2").cmd.Process.Pid
	datagrams := startDatapath(t, path, "type=ud").cmd.Process.Pid
	want := listedQPs(t)
	if len(want) != 4+2+1 { // both sides, and GSI
		t.Fatalf("rdma res shows %v", want)
	}
	for _, engine := range [][]string{nil, {"--no-kernel"}} {
		t.Run(fmt.Sprint(engine), func(t *testing.T) {
			all := start(t, append(engine, "rdma:qp")...)
			client := start(t, append(engine, "-p", fmt.Sprint(datagrams), "rdma:qp { @[qp.num, comm, seeded] = count() }")...)
			sh(t, "rdma res show qp")
			got, asked := make(map[string]int), make(map[string]int)
			for _, e := range all.stop(t) {
				switch {
				case e.text("comm") == "rdma":
					asked[e.queried()]++
				case e.at("seeded") == true:
					got[e.queried()]++
					checkFlow(t, e, int64(connected))
				case e.text("comm") != "trace": // of the other run
					t.Errorf("asked by %s: %v", e.text("comm"), e)
				}
			}
			total := len(want)
			for qp, times := range asked { // rdma lists some tables twice
				total += times
				asked[qp] = 1
			}
			if !maps.Equal(got, want) || !maps.Equal(asked, want) {
				t.Errorf("at the start %v,\nfor rdma res %v,\nwhich shows %v", got, asked, want)
			}
			client.interrupt(t)
			text := sh(t, "cat %s", client.events)
			if strings.Count(text, `"datapath",true],"value":1`) != 2 || strings.Contains(text, `"rdma"`) {
				t.Errorf("-p %d: %s", datagrams, text)
			}
			rejected := fmt.Sprintf("%d rejected, 0 lost", total-2)
			if !strings.Contains(client.messages(t), rejected) {
				t.Errorf("no %q in:\n%s", rejected, client.messages(t))
			}
		})
	}
}

// checkFlow compares what rdma res does not show with what datapath.c sets.
func checkFlow(t *testing.T, e jsonEvent, connected int64) {
	t.Helper()
	if e.num(t, "ret") != 0 {
		t.Errorf("the driver does not answer: %v", e)
	}
	if e.at("owner.pid") != nil && (e.text("pid") != e.text("owner.pid") || e.text("comm") != "datapath") {
		t.Errorf("the common fields are not the maker's: %v", e)
	}
	flow := map[string]string{"sgid": "::ffff:10.9.0.1", "dgid": "::ffff:10.9.0.1", "path_mtu": "1024", "timeout": "14", "retry_cnt": "7", "rnr_retry": "7"}
	for field, want := range flow {
		if e.at("owner.pid") == nil || e.num(t, "owner.pid") != connected {
			if e.at(field) != nil {
				t.Errorf("a QP that is not connected has %s: %v", field, e)
			}
		} else if got := e.text(field); got != want {
			t.Errorf("%s is %s, want %s: %v", field, got, want, e)
		}
	}
}
