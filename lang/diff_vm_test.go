//go:build vm

package lang

import "testing"

// TestVMDifferential runs the differential test on the kernel of a virtual machine.
func TestVMDifferential(t *testing.T) {
	*diffPrograms = 2000
	TestDifferential(t)
}
