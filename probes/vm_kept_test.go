//go:build vm

package probes_test

import (
	"flag"
	"testing"
)

// TestVMDifferentialKept runs the differential test of beginnings on the kernel of a virtual machine.
func TestVMDifferentialKept(t *testing.T) {
	*keptPrograms = 100
	if flag.Lookup("full").Value.String() == "true" {
		*keptPrograms = 2000
	}
	TestDifferentialKept(t)
}
