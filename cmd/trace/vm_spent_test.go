//go:build vm

package main

import (
	"strings"
	"testing"
)

// What a verb waits for a CPU, its page faults and switches equal what schedstat and getrusage show around it.
func TestVMIbSpent(t *testing.T) {
	read, events := recordSpent(t, buildSpent(t, "-DVERBS", "-libverbs"), "20", "ib:reg_mr, ib:dereg_mr, ib:create_cq, ib:destroy_cq / pid == cpid /",
		func(e spentEvent) string { return strings.TrimPrefix(e.Probe, "ib:") })
	compareSpent(t, read, events)
}

// TestVMSpent is TestSpent on the kernel of the virtual machine.
func TestVMSpent(t *testing.T) { TestSpent(t) }
