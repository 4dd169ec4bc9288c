package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func testSession(t *testing.T) *session {
	t.Helper()
	k, err := findKernel("6.12")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return &session{
		opt:   options{kernel: k},
		img:   image{dir: "/cache/boot", release: "6.12.1-amd64"},
		dir:   dir,
		share: filepath.Join(dir, "share"),
		cwd:   "/src/it's here/pkg",
		repo:  "/src/it's here",
	}
}

// shell evaluates text as the guest would.
func shell(t *testing.T, text string) string {
	t.Helper()
	out, err := exec.Command("sh", "-ec", text).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestConfig(t *testing.T) {
	s := testSession(t)
	s.opt.bare = true
	got := shell(t, s.config()+`printf '%s|' "$USERLAND" "$RELEASE" "$MODULES" "$REPO" "$KEEP" "$BARE" "$HIDE_BTF"`)
	want := "host|6.12.1-amd64|/cache/boot/lib/modules/6.12.1-amd64|/src/it's here||1||"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A tree below a folder that starts out empty must stay visible.
func TestConfigKeep(t *testing.T) {
	s := testSession(t)
	s.repo = "/tmp/tree"
	if got := shell(t, s.config()+`printf %s "$KEEP"`); got != "/tmp/tree" {
		t.Errorf("got %q", got)
	}
}

func TestScript(t *testing.T) {
	s := testSession(t)
	s.cwd = t.TempDir()
	t.Setenv("TRACE_SAMPLE", "a 'quoted' value")
	got := shell(t, s.script([]string{"sh", "-c", `echo "$PWD|$TRACE_SAMPLE|$1|$VMTEST_KERNEL"`, "sh", "it's $HOME"}))
	if want := s.cwd + "|a 'quoted' value|it's $HOME|6.12\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEnviron(t *testing.T) {
	s := testSession(t)
	s.img.mlx5 = "/cache/mlx5"
	env := s.environ([]string{"GODEBUG=x=1", "LC_ALL=C", "TRACE_A=1", "VMTEST_B=2", "VMTEST_CACHE=/c",
		"SECRET=s", "HOME=/home/me", "PATH=/home/me/bin", "VMTEST_KERNEL=wrong"})
	for _, want := range []string{"GODEBUG=x=1", "LC_ALL=C", "TRACE_A=1", "VMTEST_B=2", "HOME=/root",
		"VMTEST_DIR=/work-share", "VMTEST_MLX5_KO=/work-share/mlx5_ib.ko"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
	for _, kv := range env {
		if strings.HasPrefix(kv, "SECRET") || strings.HasPrefix(kv, "VMTEST_CACHE") || strings.Contains(kv, "/home/me") {
			t.Errorf("passes %s", kv)
		}
	}
	if last := slices.Index(env, "VMTEST_KERNEL=6.12"); last < slices.Index(env, "VMTEST_KERNEL=wrong") {
		t.Error("this machine's VMTEST_KERNEL wins")
	}
}

func TestBringProgram(t *testing.T) {
	s := testSession(t)
	tmp := t.TempDir()
	s.repo = filepath.Join(tmp, "repo")
	hiddenProgram := filepath.Join(tmp, "pkg.test")
	if err := os.WriteFile(hiddenProgram, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, want string }{
		{"fio", "fio"},
		{"/usr/bin/fio", "/usr/bin/fio"},
		{filepath.Join(s.repo, "x.test"), filepath.Join(s.repo, "x.test")},
	}
	if hidden(tmp) { // TMPDIR may be elsewhere
		tests = append(tests, struct{ name, want string }{hiddenProgram, "/run/vmtest/bin/pkg.test"})
	}
	for _, tt := range tests {
		if got, err := s.bringProgram(tt.name); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
	if hidden(tmp) && readText(filepath.Join(s.share, reportDir, "bin/pkg.test")) != "program" {
		t.Error("program was not copied")
	}
}

func TestTreeOf(t *testing.T) {
	root := t.TempDir()
	module := filepath.Join(root, "repo", "module", "pkg")
	if err := os.MkdirAll(filepath.Join(root, "repo", ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "repo", "module", "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := treeOf(module), filepath.Join(root, "repo"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStatus(t *testing.T) {
	tests := []struct {
		name, file, text, console string
		code                      int
		errText                   string
	}{
		{"status", "status", "3\n", "", 3, ""},
		{"setup failed", "failed", "modprobe nvme failed\n", "", 0, "setup of the virtual machine: modprobe nvme failed"},
		{"crash", "status", "0\n", "[ 1.0] Kernel panic - not syncing: x\r\n", 0, "the kernel crashed: [ 1.0] Kernel panic"},
		{"emulator", "other", "", "RSP: 0018:ffa0000003637ae0 EFLAGS: 15279382\r\nKernel panic - not syncing: x\r\n", 0, "the emulator failed"},
		{"flags of a CPU", "other", "", "RSP: 0018:ffa0000003637ae0 EFLAGS: 00210246\r\nKernel panic - not syncing: x\r\n", 0, "the kernel crashed"},
		{"stall", "status", "0\n", "watchdog: BUG: soft lockup - CPU#0 stuck\r\n", 0, ""},
		{"ended early", "other", "", "", 0, "ended before the command did"},
	}
	for _, tt := range tests {
		s := testSession(t)
		dir := filepath.Join(s.share, reportDir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		c := &console{}
		if _, err := c.Write([]byte(tt.console)); err != nil {
			t.Fatal(err)
		}
		code, err := s.status(c)
		if tt.errText == "" && (err != nil || code != tt.code) {
			t.Errorf("%s: got %d, %v", tt.name, code, err)
		}
		if tt.errText != "" && (err == nil || !strings.Contains(err.Error(), tt.errText)) {
			t.Errorf("%s: got error %v, want %q in it", tt.name, err, tt.errText)
		}
	}
}
