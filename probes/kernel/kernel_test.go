package kernel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"trace/bpf"
)

// --btf takes a file or a folder of them; the compiled objects are ELF files with types.
func TestReadTypes(t *testing.T) {
	folder := filepath.Join("..", "..", "bpf", runtime.GOARCH)
	for path, want := range map[string]int{folder: len(bpf.Objects()), filepath.Join(folder, "ib.bpf.o"): 1} {
		specs, err := readTypes(path)
		if err != nil || len(specs) != want {
			t.Errorf("%s: %d specs, want %d: %v", path, len(specs), want, err)
		}
	}
	empty, garbage := t.TempDir(), filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("this is no BTF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{empty: "no files in", garbage: "pahole --btf_encode_detached", garbage + "s": "no such file"} {
		if _, err := readTypes(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", path, err, want)
		}
	}
}

// Names are found whole, among the kernel's types and among its functions.
func TestDescribesName(t *testing.T) {
	for name, want := range map[string]bool{"task_struct": true, "task_struc": false, "ask_struct": false, "tcp_sendmsg": true} {
		got, err := describesName(name)
		if errors.Is(err, fs.ErrNotExist) {
			t.Skip("this kernel shows no BTF")
		}
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
