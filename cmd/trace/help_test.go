//go:build !vm

package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/pflag"

	"trace/docs"
)

// The manual has all flags, commands, probes and topics, and groff reads the page that is made of it.
func TestManPage(t *testing.T) {
	var manual bytes.Buffer
	root := rootCommand(streams{out: &manual}, nil, nil)
	if err := writeManual(&manual, root); err != nil {
		t.Fatal(err)
	}
	text := manual.String()
	root.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
			t.Errorf("no --%s", f.Name)
		}
	})
	for _, c := range root.Commands() {
		if isListed(c) && !strings.Contains(text, "\n## trace "+c.Use+"\n") {
			t.Errorf("no command %s", c.Name())
		}
	}
	for _, p := range loadCatalog(t) {
		if !strings.Contains(text, "- `"+p.String()+"`: "+p.Doc) {
			t.Errorf("no %s", p)
		}
	}
	for _, name := range docs.Names() {
		if !strings.Contains(text, "\n# "+strings.ToUpper(name)+"\n") {
			t.Errorf("no topic %s", name)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("needs groff, to read the page")
	}
	cmd := exec.Command(groff, "-t", "-man", "-Tutf8", "-ww", "-Kutf8")
	cmd.Stdin = bytes.NewReader(md2man.Render(manual.Bytes()))
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		t.Errorf("groff: %v\n%s", err, &complaints)
	}
}

// TestHelpWord asks for what has a name: a function, a field, a probe, an enum and its value, a script, and a message.
func TestHelpWord(t *testing.T) {
	for word, want := range map[string]string{
		"quantile":         "quantile is a function: trace help functions",
		"device_latency":   "device_latency is a field: from nvme:setup_cmd until the driver saw the completion",
		"nvme:setup_cmd":   "nvme:setup_cmd is a probe: a command is handed to the NVMe driver",
		"ib_qp_state":      "ib_qp_state is an enum, of fields like qp.state: RESET INIT RTR RTS SQD SQE ERR",
		"RTR":              "RTR is a value of the enum ib_qp_state, of fields like qp.state",
		"rtr":              "RTR is a value of the enum ib_qp_state, of fields like qp.state",
		"rdma_flows":       "rdma_flows is a script: RDMA connections",
		"ring buffer full": "trace help lost-events, Lost events: `ring buffer full`",
	} {
		out, err := exec.Command("trace", "help", word).Output()
		if err != nil || !strings.Contains("\n"+string(out), "\n"+want) {
			t.Errorf("trace help %s: %v\n%swant a line that begins with\n%s", word, err, out, want)
		}
	}
	out, err := exec.Command("trace", "help", "recordngs").CombinedOutput()
	if want := "trace: nothing is called \"recordngs\": did you mean \"recordings\"?\n"; err == nil || string(out) != want {
		t.Errorf("%v: %swant %s", err, out, want)
	}
}
