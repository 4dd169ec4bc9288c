package trace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A program of another module imports the library by a replace. It runs on a recording without privileges, and on this machine.
func TestImporter(t *testing.T) {
	folder, err := os.MkdirTemp("", "importer") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	program, recording := filepath.Join(folder, "importer"), filepath.Join(folder, "nvme.rec")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "cmd/vmtest/importer"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v (after a change of go.mod: go mod tidy in cmd/vmtest/importer)\n%s", err, out)
	}
	data, err := os.ReadFile(nvmeRecording)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recording, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	unprivileged := exec.Command(program, recording)
	if os.Getuid() == 0 {
		unprivileged.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := unprivileged.CombinedOutput()
	if want := "read 300\nwrite 200\nslowest: nvme0n1 read 49.710493ms\n"; err != nil || string(out) != want {
		t.Errorf("%v: got %s, want %s", err, out, want)
	}
	live(t)
	out, err = exec.Command(program).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "importer 100" {
		t.Errorf("%v: got %s, want importer 100", err, out)
	}
}
