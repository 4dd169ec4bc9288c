package words_test

import (
	"strings"
	"testing"

	"trace/lang/words"
)

func TestMeant(t *testing.T) {
	commands, flags := []string{"record", "repl", "doctor"}, []string{"explain", "read"}
	for _, test := range []struct{ word, exact, near string }{
		{"list", "trace -l lists the probes, and trace scripts the scripts", ""},
		{"ls", "trace -l lists the probes, and trace scripts the scripts", ""},
		{"run", "leave it out: trace PROGRAM, or trace SCRIPT", ""},
		{"replay", "trace -r FILE PROGRAM runs a program on a recording", ""},
		{"nvme", "nvme is a group of probes: 'nvme:*' prints their events, and trace -l 'nvme:*' lists them; scripts are nvme_latency, nvme_stuck, nvme_trace", ""},
		{"NVMe", "nvme is a group of probes: 'nvme:*' prints their events, and trace -l 'nvme:*' lists them; scripts are nvme_latency, nvme_stuck, nvme_trace", ""},
		{"syscal", "", "syscall is a group of probes: 'syscall:*' prints their events, and trace -l 'syscall:*' lists them"},
		{"profile", "profile is a group of probes: 'profile:99hz' prints their events", ""},
		{"tutorial", "trace help tutorial explains it", ""},
		{"nvme-latency", "it is a script: trace nvme_latency runs it, and with --record FILE records its events", ""},
		{"top", "", `did you mean "rdma_top"?`},
		{"stuck", "", `did you mean "nvme_stuck" or "rdma_stuck"?`},
		{"explain", "", "it is a flag: trace --explain"},
		{"nvme-latncy", "", `did you mean "nvme_latency"?`},
		{"Doctr", "", `did you mean "doctor"?`},
		{"tutorail", "", `did you mean "help tutorial"?`},
		{"furlongs", "", ""},
		{"xy", "", ""},
		{"record", "", ""}, // trace -- record
	} {
		exact, near := words.Meant(test.word, commands, flags)
		if exact != test.exact || near != test.near {
			t.Errorf("%s: %q, %q\nwant %q, %q", test.word, exact, near, test.exact, test.near)
		}
	}
}

// A word that may begin a program has no other meaning.
func TestInstead(t *testing.T) {
	for word, want := range map[string]string{
		"top": `did you mean "rdma_top"?`, "recrod": `did you mean "record"?`, "latency": "", "nvme_latency": "", "nvme:*": "", "qp.state": "", "furlongs": "",
	} {
		if got := words.Instead(word, []string{"record"}, nil); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	var out strings.Builder
	if err := words.Explain(&out, "rdma-flows", nil); err != nil || !strings.HasPrefix(out.String(), "rdma_flows is a script: RDMA connections") {
		t.Errorf("%v\n%s", err, &out)
	}
}
