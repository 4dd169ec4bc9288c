package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseArgs(t *testing.T) {
	// go test -exec uses the second form.
	for _, args := range [][]string{
		{"-kernel", "6.12", "-timeout", "30s", "-bare", "-mlx5", "--", "prog", "-v", "--"},
		{"-kernel", "6.12", "-timeout", "30s", "-bare", "-mlx5", "prog", "-v", "--"},
	} {
		opt, err := parseArgs(args, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if opt.kernel.suite != "trixie" || opt.timeout != 30*time.Second || !opt.bare || !opt.mlx5 || opt.verbose {
			t.Errorf("%q: got %+v", args, opt)
		}
		if want := []string{"prog", "-v", "--"}; !slices.Equal(opt.command, want) {
			t.Errorf("%q: command %q, want %q", args, opt.command, want)
		}
	}
}

func TestParseArgsErrors(t *testing.T) {
	tests := []struct{ args, want string }{
		{"", "-kernel: missing"},
		{"-kernel 4.4 true", "choose one of 5.10, 6.1"},
		{"-kernel 6.1", "no command"},
		{"-kernel 6.1 -prepare true", "takes no command"},
		{"-kernel arm64 -mlx5 true", "not available for arm64"},
		{"-kernel 6.1 -timeout 0s true", "must be positive"},
		{"-kernel arm64 -nvme true", "-nvme: not available for arm64"},
		{"-wrong", "not defined"},
	}
	for _, tt := range tests {
		_, err := parseArgs(strings.Fields(tt.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got error %v, want %q in it", tt.args, err, tt.want)
		}
	}
}

func TestRunWithoutMachine(t *testing.T) {
	tests := []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"-h", 0, "", "usage: vmtest"},
		{"-list", 0, "arm64", ""},
		{"-kernel x y", exitFailed, "", `vmtest: -kernel: unknown kernel "x"`},
	}
	for _, tt := range tests {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tt.args), &stdout, &stderr)
		if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
			t.Errorf("%q: got %d, stdout %q, stderr %q", tt.args, code, &stdout, &stderr)
		}
	}
}

func TestCacheDir(t *testing.T) {
	env := func(string) string { return "/var/cache/vm" }
	got, err := cacheDir(env, kernel{name: "6.1"})
	if err != nil || got != "/var/cache/vm/6.1" {
		t.Errorf("got %q, %v", got, err)
	}
}
