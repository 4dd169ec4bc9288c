package format

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trace/probes/event"
)

// What an event brings runs no command of a shell, wherever the program puts it.
func TestAppendCommand(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	made := filepath.Join(dir, "made")
	text := Operand{Type: event.Type{Kind: event.String}}
	for _, hostile := range []string{
		";>made", "`>made`", "$(>made)", "a|>made", "&>made", "' >made '", "\" >made \"", "\\' >made '", "\\\" >made \"", ">made", "a\n>made", "${x:=`>made`}", "# '\n>made",
	} {
		for _, program := range []string{"echo %s", "echo \"%s\"", "echo '%s'", "echo a%sb", "x=%s", "x=\"$(echo %s)\""} {
			f, err := NewPattern(program, []Operand{text}, true)
			if err != nil {
				t.Fatal(err)
			}
			command := string(f.AppendCommand(nil, []any{Verbatim(hostile)}))
			cmd := exec.Command("/bin/sh", "-c", command)
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput() // a quote without a partner is an error of the shell
			if _, err := os.Stat(made); err == nil {
				t.Errorf("%s with %q runs a command: %q", program, hostile, command)
				os.Remove(made)
			}
			if want := strings.ReplaceAll(hostile, "\n", ""); program == "echo %s" && !strings.Contains(hostile, "\\") && string(out) != want+"\n" {
				t.Errorf("%q gives %q, want %q", command, out, want)
			}
		}
	}
	f, err := NewPattern("echo %s%s", []Operand{text, {Type: text.Type, Own: true}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.AppendCommand(nil, []any{Verbatim("nvme0n1p1-x.y"), Verbatim("; date")})); got != "echo nvme0n1p1-x.y; date" {
		t.Errorf("%q", got)
	}
}
