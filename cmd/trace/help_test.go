//go:build !vm

package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The manual page tells of all flags, commands, probes and topics, and is good for man.
func TestManPage(t *testing.T) {
	var page bytes.Buffer
	root := rootCommand(streams{out: &page}, nil, nil)
	if err := writeMan(&page, root); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(page.String(), `\-`, "-")
	root.Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(text, "--"+f.Name) {
			t.Errorf("no --%s", f.Name)
		}
	})
	for _, c := range root.Commands() {
		if isListed(c) && !strings.Contains(text, ".B "+c.Name()) {
			t.Errorf("no command %s", c.Name())
		}
	}
	for _, p := range loadCatalog(t) {
		if !strings.Contains(text, p.String()+": "+p.Doc) {
			t.Errorf("no %s", p)
		}
	}
	for _, name := range topicNames() {
		if !strings.Contains(text, ".SH "+strings.ToUpper(name)) {
			t.Errorf("no topic %s", name)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("needs groff, to read the page")
	}
	cmd := exec.Command(groff, "-man", "-Tutf8", "-ww", "-Kutf8")
	cmd.Stdin = &page
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		t.Errorf("groff: %v\n%s", err, &complaints)
	}
}
