//go:build linux

package probes

import "trace/probes/kernel"

// ftraceIsOff reports whether the kernel calls nothing by ftrace.
func ftraceIsOff() bool {
	n, err := openFtraceEnabled()
	if err != nil {
		return false
	}
	defer n.Close()
	enabled, err := n.Read()
	return err == nil && enabled == 0
}

func openFtraceEnabled() (*kernel.Number, error) { return kernel.OpenSysctl("kernel/ftrace_enabled") }

// What is wrong then, and what to do.
const ftraceOff, ftraceOn = "kernel.ftrace_enabled is 0", "sysctl kernel.ftrace_enabled=1"
