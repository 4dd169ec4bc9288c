package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestFields chooses what is printed of recorded events, in each format.
func TestFields(t *testing.T) {
	t.Setenv("TZ", "UTC")
	const nvme, flows = "../../scripts/testdata/nvme_trace.rec", "../../scripts/testdata/rdma_flows.rec"
	for _, test := range []struct {
		args string
		out  string
		err  string // all of standard error, of one that fails
	}{
		{"-r " + nvme + " -n 2 --fields latency,comm,probe,queue_depth nvme:*",
			"latency=- comm=dd probe=nvme:setup_cmd queue_depth=1\nlatency=4.86ms comm=dd probe=nvme:complete_rq queue_depth=-\n", ""},
		{"-f csv -r " + nvme + " --fields comm,latency nvme:complete_rq", "comm,latency\ndd,4861220\nnvme,3434115\nnvme,1610773\n", ""},
		{"-f json -n 1 -r " + flows + " --fields qp.num,ret,qp.state ib:create_qp",
			`{"type":"event","probe":"ib:create_qp","time":"2026-11-23T22:45:17.697868399Z","data":{"qp":{"num":17,"state":"RESET"},"ret":0}}` + "\n", ""},
		{"-r " + nvme + " --fields latncy nvme:*", "",
			"trace: --fields: no field latncy in nvme:complete_rq, nvme:setup_cmd: did you mean \"latency\"?\n"},
		{"-r " + nvme + " --fields latency nvme:*{@=count()}", "",
			"trace: --fields: no clause prints events: only a clause without a body does\n"},
		{"-r " + nvme + " --fields= nvme:*", "", "trace: --fields needs names of fields, like latency,status\n"},
		{"-r " + nvme + " --pgid 7 nvme:complete_rq", "",
			"trace: --pgid 7: the recording has no field pgid of nvme:complete_rq: record again with this version of trace\n"},
		{"-r " + nvme + " -n 1 --comm nvme --fields comm,qid nvme:complete_rq", "comm=nvme qid=0\n", ""},
		{"record -o f --fields latency nvme:*", "", "trace: unknown flag: --fields (trace record --help lists the flags)\n"},
	} {
		var out, err bytes.Buffer
		status := runCommand(context.Background(), strings.Fields(test.args), nil, &out, &err)
		if out.String() != test.out || err.String() != test.err || (status == exitUsage) != (test.err != "") {
			t.Errorf("%s: status %d\n%s%s\nwant\n%s%s", test.args, status, &out, &err, test.out, test.err)
		}
	}
}

// With -v the line has all fields, after the usual ones.
func TestEverythingShown(t *testing.T) {
	lines := strings.Split(replay(t, "-r", "scripts/testdata/nvme_trace.rec", "nvme:complete_rq"), "\n")
	all := strings.Split(replay(t, "-v", "-r", "scripts/testdata/nvme_trace.rec", "nvme:complete_rq"), "\n")
	if !strings.HasPrefix(all[0], lines[0]) || len(all) != len(lines) {
		t.Errorf("with -v\n%s\nwithout\n%s", all[0], lines[0])
	}
	for _, want := range []string{" tid=268 ", " rq=0xff110000059a0000 ", " cdw10=0x800 ", " retries=0 ", " fua=false ", " psdt=prp ", " cgroup="} {
		if !strings.Contains(all[0]+" ", want) {
			t.Errorf("no%sin %s", want, all[0])
		}
	}
}
