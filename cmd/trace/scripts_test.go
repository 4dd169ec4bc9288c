package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"trace/lang/syntax"
	"trace/scripts"
)

// Of each script that comes with trace scripts/testdata has a recording of real events, made by TestVMScriptReplay (make recordings). What
// the script prints of it is the example in its help, and docs/scripts.md is made of the helps.
//
//	go test ./cmd/trace -run TestScript -scripts.update     # writes both anew
var scriptsUpdate = flag.Bool("scripts.update", false, "write the examples in scripts anew")

// TestScriptExamples replays the recordings, which takes neither privileges nor devices, and compares with the helps. So it is a test, too,
// that recordings of older versions of trace stay readable, and mean the same: they are made anew only if a script wants other events.
func TestScriptExamples(t *testing.T) {
	for _, s := range scripts.All() {
		t.Run(s.Name, func(t *testing.T) {
			if !strings.HasPrefix(s.Text, fmt.Sprintf("# %s: %s\n#\n", s.Name, s.Summary)) || s.Summary == "" {
				t.Fatalf("the script does not begin with a line like # %s: what it is for", s.Name)
			}
			args := exampleArgs(t, s.Name)
			example := "# $ trace " + strings.Join(args, " ") + "\n"
			for line := range strings.Lines(replay(t, append([]string{"-r", "scripts/testdata/" + s.Name + ".rec"}, args...)...)) {
				example += strings.TrimRight("# "+strings.TrimRight(line, "\n"), " ") + "\n"
			}
			// The example is the last of the header.
			header, program, _ := strings.Cut(s.Text, "\n\n")
			before, shown, _ := strings.Cut(header+"\n", "# $ ")
			if shown = "# $ " + shown; shown == example {
				return
			}
			t.Errorf("it prints\n%s\nits help shows\n%s", example, shown)
			if *scriptsUpdate {
				writeDoc(t, "scripts/"+s.Name+".trace", before+example+"\n"+program)
			}
		})
	}
}

// TestScriptsAreCanonical formats the scripts.
func TestScriptsAreCanonical(t *testing.T) {
	for _, s := range scripts.All() {
		if formatted, err := syntax.Format(s.Name, s.Text); err != nil || formatted != s.Text {
			t.Errorf("%s is not canonical: trace --fmt prints %v\n%s", s.Name, err, formatted)
		}
	}
}

// TestScriptFlags runs scripts with flags on their recordings, and on other scripts' recordings: what they let pass, and what they reject.
func TestScriptFlags(t *testing.T) {
	for _, test := range []struct {
		recording, command string
		with               string // stands in so many lines
		lines              int
	}{
		{"counters", "counters --period 200ms --all", "sent_pkts +", 1},
		{"counters", "counters --period 200ms --device rxe7", "", 0},
		{"nvme_trace", "nvme_trace", "", 6},
		{"nvme_trace", "nvme_trace --errors", "(lba_range)", 1},
		{"nvme_trace", "nvme_trace --errors", "", 1},
		{"nvme_trace", "nvme_trace --qid 0", "", 2},
		{"nvme_trace", "nvme_trace --opcode read", "(read)", 4},
		{"nvme_trace", "nvme_trace --opcode read", "", 4},
		{"nvme_trace", "nvme_trace --nsid 2", "", 0},
		{"nvme_latency", "nvme_latency -i 60 --split_size", ", <= 16KiB]: { .count = ", 2},
		{"nvme_latency", "nvme_latency -i 60 --nsid 2", "@", 0},
		{"nvme_stuck", "nvme_stuck --longer 2s", "dd/", 2},
		{"nvme_stuck", "nvme_stuck -i 2", "dd/", 1},
		{"nvme_stuck", "nvme_latency -i 60", "]: { .count = 10,", 1},
		{"hung", "hung --stacks=false", "", 3},
		{"offcpu", "offcpu --longer 500ms --stacks=false", "dd/", 1},
		{"offcpu", "offcpu --longer 1m", "", 0},
		{"runqlat", "runqlat -i 60 --longer 1m", " after ", 0},
		{"rdma_monitor", "rdma_flows", " ready ", 2},
		{"rdma_monitor", "rdma_flows", "@failed[ib:modify_qp, -EINVAL]: 1", 1},
		{"rdma_monitor", "rdma_flows --device rxe7", "", 2},
		{"rdma_stuck", "rdma_flows --table", " datapath ", 16},
		{"rdma_flows", "rdma_flows --table", " ready ", 0},
		{"rdma_errors", "rdma_errors --lines=false", "failed with", 0},
		{"rdma_errors", "rdma_errors", "failed with RETRY_EXC_ERR", 1},
		{"rdma_errors", "rdma_errors --completions=false", "RETRY_EXC_ERR", 0},
		{"rdma_latency", "rdma_latency --lines", " RDMA_WRITE SUCCESS ", 6},
		{"rdma_latency", "rdma_latency --device rxe7", "@", 0},
		{"rdma_stuck", "rdma_stuck", ": 3 requests wait for ", 3},
		{"rdma_stuck", "rdma_stuck --longer 2500ms", "", 2},
		{"rdma_stuck", "rdma_stuck --longer 1m", "", 0},
		{"rdma_stuck", "rdma_stuck --device rxe7", "", 0},
		{"rdma_top", "rdma_top -i 10", "datapath/", 4},
		{"rdma_top", "rdma_top -i 10 --n 1", "3 more QPs", 1},
		{"rdma_top", "rdma_top -i 10 --device rxe7", "datapath/", 0},
		{"rdma_latency", "rdma_top", "ib_write_bw/", 2},
		{"rdma_monitor", "rdma_monitor -i 10 --device rxe7", "CGROUP: ", 0},
		{"counters", "counters --all", "sent_pkts +", 1}, // with the period of the recording
		{"triage", "triage", ": trace ", 9},              // all of it
		{"triage", "triage 5", "nothing unusual", 1},
	} {
		lines := 0
		for line := range strings.Lines(replay(t, append([]string{"-r", "scripts/testdata/" + test.recording + ".rec"}, strings.Fields(test.command)...)...)) {
			if strings.Contains(line, test.with) {
				lines++
			}
		}
		if lines != test.lines {
			t.Errorf("%s on the recording of %s: %d lines with %q, want %d", test.command, test.recording, lines, test.with, test.lines)
		}
	}
}

// replay is what trace prints, called in the folder of the repository.
func replay(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("trace", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "TZ=UTC")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// exampleArgs returns the arguments of the command in the help of a script: its name and flags.
func exampleArgs(t *testing.T, name string) []string {
	t.Helper()
	s, ok := scripts.Find(name)
	if !ok {
		t.Fatalf("no script %s", name)
	}
	_, example, _ := strings.Cut(s.Text, "\n# $ trace ")
	command, _, _ := strings.Cut(example, "\n")
	args := strings.Fields(command)
	if len(args) == 0 || args[0] != name {
		t.Fatalf("the help of %s has no line # $ trace %[1]s", name)
	}
	return args
}
