package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeignText shows a script that another user may have written: no control character reaches the terminal.
func TestForeignText(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a\x1b[1m.trace")
	const script = "# a: header \x1b[31m\u009b\n" + `param p = "x` + "\x1b[32m" + `" "help ` + "\x1b[33m\x07" + `"
syscall:exit / comm == "c` + "\x1b[34m\x7f" + `" && comm != $p / { @["k` + "\x1b[35m" + `"] = count() } // ` + "\x1b[36m"
	if err := os.WriteFile(name, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	const control = "\x1b\x07\x7f\u009b"
	for _, args := range [][]string{{"--explain"}, {"-d", "ast"}, {"-d", "plan"}, {"-d", "bpf"}, {"--help"}, {"elf"}, {"info"}, {"-r"}, {"--btf", name, "--explain"}, {"--explain", "--nosuch"}} {
		var out, err strings.Builder
		runCommand(context.Background(), append(args, name), nil, &out, &err)
		if all := out.String() + err.String(); all == "" || strings.ContainsAny(all, control) {
			t.Errorf("%q: got %q", args, all)
		}
	}
	var out, err strings.Builder
	if runCommand(context.Background(), []string{"--fmt", name}, nil, &out, &err); !strings.Contains(out.String(), "\x1b[35m") {
		t.Errorf("--fmt into a file changes the script: %q, %s", out.String(), err.String())
	}
}
