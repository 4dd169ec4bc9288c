package bpf

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// Where threads compete for the slots of a table, each has its own or none, nothing is mixed up, and no slot stays taken. The same C code runs
// in user space, on all CPUs.
func TestByThread(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("it needs gcc: .ci/setup race")
	}
	program := filepath.Join(t.TempDir(), "threads")
	// The attributes of BPF programs mean nothing to gcc.
	if out, err := exec.Command(gcc, "-O2", "-w", "-pthread", "-I", "testdata", "-o", program, "testdata/threads.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var room, none, mixed, left, slots uint64
	if _, err := fmt.Sscan(string(out), &room, &none, &mixed, &left, &slots); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if room == 0 || none == 0 || mixed != 0 || left != slots {
		t.Errorf("%d turns had room and %d had none; in %d what was kept was another thread's; afterwards %d of %d slots are free", room, none, mixed, left, slots)
	}
}
