//go:build vm

package exec

import (
	stdflag "flag"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var vmFull = stdflag.Bool("full", false, "every probe with every construct, and 2000 programs in the differential test")

// TestVMDifferential runs the differential test on the kernel of a virtual machine.
func TestVMDifferential(t *testing.T) {
	populate(t)
	*diffTime = 20 * time.Second
	if *vmFull {
		*diffPrograms = 2000
	}
	TestDifferential(t)
	t.Run("load", TestDifferentialLoad)
}

// populate makes the kernel map all memory of this process at once, so that no instruction faults because it is the first to touch
// a page. QEMU 7.2 gets some instructions wrong when they run again after the fault: SETL, SETG and SETP to memory, because their
// translation turns the operands of the last comparison into flags before the store (gen_prepare_cc in
// target/i386/tcg/translate.c). Go compiles big.NewInt of a negative number to a SETL into a new object, so one of some hundred
// programs saw a positive number.
func populate(t *testing.T) {
	t.Helper()
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE); err != nil {
		t.Fatalf("mlockall: %v", err)
	}
	t.Cleanup(func() { _ = unix.Munlockall() })
}
