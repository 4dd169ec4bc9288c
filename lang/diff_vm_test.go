//go:build vm

package lang

import (
	stdflag "flag"
	"testing"
	"time"
)

var diffFull = stdflag.Bool("full", false, "run the differential test on 2000 programs, which takes minutes")

// TestVMDifferential runs the differential test on the kernel of a virtual machine.
func TestVMDifferential(t *testing.T) {
	diffEmulated = true
	*diffTime = 20 * time.Second
	if *diffFull {
		*diffPrograms = 2000
	}
	TestDifferential(t)
}
