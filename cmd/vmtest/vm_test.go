package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestInsmodPaths(t *testing.T) {
	text := "insmod /m/virtio.ko \nbuiltin virtio_pci\ninsmod /m/9p.ko debug=1\ninsmod /m/virtio.ko \n"
	if got, want := insmodPaths(text), []string{"/m/virtio.ko", "/m/9p.ko"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestQEMU(t *testing.T) {
	s := testSession(t)
	s.dir, s.share, s.opt.append = "/tmp/a,b", "/tmp/a,b/share", "lsm=bpf"
	program, args := s.qemu("tcg")
	line := strings.Join(args, " ")
	if program != "qemu-system-x86_64" || !strings.Contains(line, "console=ttyS0 ") || !strings.Contains(line, "tsc=reliable no_timer_check") ||
		strings.Contains(line, "tsc_early_khz=") != (runtime.GOARCH == "amd64") {
		t.Errorf("%s %s", program, line)
	}
	for _, want := range []string{"path=/tmp/a,,b/share,", " lsm=bpf ", "file=/tmp/a,,b/disk2",
		"nsid=1,logical_block_size=512,physical_block_size=512", "nsid=2,logical_block_size=4096,physical_block_size=4096"} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	s.opt.kernel.arch = "arm64"
	if program, args := s.qemu("tcg"); program != "qemu-system-aarch64" || strings.Contains(strings.Join(args, " "), "tsc=") {
		t.Errorf("arm64: %s %q", program, args)
	}
}

func TestAccelerator(t *testing.T) {
	if got := accelerator(func(string) string { return "" }); got != "tcg,thread=single" {
		t.Errorf("default %q", got)
	}
	if got := accelerator(func(string) string { return "kvm" }); got != "kvm" {
		t.Errorf("override %q", got)
	}
}

func TestConsole(t *testing.T) {
	starts := 0
	var copied bytes.Buffer
	c := &console{copy: &copied, onStart: func() { starts++ }}
	for _, part := range []string{"boot\r\nvmtest: running", " the command\r\n", "later\r\n"} {
		fmt.Fprint(c, part)
	}
	if starts != 1 {
		t.Errorf("onStart called %d times", starts)
	}
	if want := "\nend of the console:\nboot\nvmtest: running the command\nlater"; c.tail() != want {
		t.Errorf("tail %q", c.tail())
	}
	if !strings.HasSuffix(copied.String(), "later\r\n") {
		t.Errorf("copy %q", &copied)
	}
}

func TestConsoleIsBounded(t *testing.T) {
	c := &console{onStart: func() {}}
	line := bytes.Repeat([]byte("x"), 1<<16)
	for range 100 {
		c.Write(line)
	}
	if c.text.Len() > 3<<20 {
		t.Errorf("keeps %d bytes", c.text.Len())
	}
}

// Output which is written through the inherited descriptor reaches stdout, and
// an exit status other than 0 is an error.
func TestRunWithOutput(t *testing.T) {
	for _, tt := range []struct {
		script, want string
		fails        bool
	}{
		{"echo hello >/dev/fd/3", "hello\n", false},
		{"echo bye >&3; exit 4", "bye\n", true},
	} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", tt.script)
		cmd.ExtraFiles = []*os.File{write}
		var stdout bytes.Buffer
		err = runWithOutput(t.Context(), cmd, write, read, &stdout)
		if stdout.String() != tt.want || (err != nil) != tt.fails {
			t.Errorf("%q: got %q, %v", tt.script, &stdout, err)
		}
		read.Close()
	}
}
