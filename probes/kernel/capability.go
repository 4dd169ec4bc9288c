//go:build linux

package kernel

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Capabilities by their names in capabilities(7).
const (
	CapBPF        = "CAP_BPF"
	CapPerfmon    = "CAP_PERFMON"
	CapSysAdmin   = "CAP_SYS_ADMIN"
	CapPtrace     = "CAP_SYS_PTRACE"
	CapReadSearch = "CAP_DAC_READ_SEARCH"
)

var capabilityBits = map[string]uint64{
	CapBPF: 1 << unix.CAP_BPF, CapPerfmon: 1 << unix.CAP_PERFMON, CapSysAdmin: 1 << unix.CAP_SYS_ADMIN, CapPtrace: 1 << unix.CAP_SYS_PTRACE,
	CapReadSearch: 1 << unix.CAP_DAC_READ_SEARCH,
}

// impliedBy are the bits of capabilities that imply another one.
var impliedBy = map[string]uint64{
	CapBPF: 1 << unix.CAP_SYS_ADMIN, CapPerfmon: 1 << unix.CAP_SYS_ADMIN, CapReadSearch: 1 << unix.CAP_DAC_OVERRIDE,
}

func effectiveCapabilities() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	return capEffOf(string(status))
}

// capEffOf finds the effective capabilities in the status of a process.
func capEffOf(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		var caps uint64
		if n, _ := fmt.Sscanf(line, "CapEff:\t%x", &caps); n == 1 {
			return caps, nil
		}
	}
	return 0, fmt.Errorf("/proc/self/status: no CapEff")
}

// Lacking returns the wanted capabilities that this process does not have, nor another one that implies them.
func (k *Kernel) Lacking(wanted []string) []string {
	held, err := k.capability()
	if err != nil {
		return nil
	}
	var missing []string
	for _, name := range wanted {
		if held&(capabilityBits[name]|impliedBy[name]) == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

// Permits returns nil if this process has the wanted capabilities, otherwise a [*PermissionError].
func (k *Kernel) Permits(wanted []string) error {
	if missing := k.Lacking(wanted); len(missing) > 0 {
		return &PermissionError{Missing: missing}
	}
	return nil
}

// PermissionError reports missing capabilities.
type PermissionError struct {
	Missing []string
}

func (e *PermissionError) Error() string {
	return "permission denied: needs " + strings.Join(e.Missing, " and ") + " (run as root, or grant with setcap or --cap-add)"
}

// Unwrap returns the error that the kernel would return.
func (e *PermissionError) Unwrap() error { return unix.EPERM }

// PerfCaps returns the capabilities for programs on perf events: Debian's kernels have a level 3 of perf_event_paranoid, which requires
// CAP_SYS_ADMIN.
func PerfCaps() []string {
	if perfParanoid() > 2 {
		return []string{CapSysAdmin}
	}
	return []string{CapBPF, CapPerfmon}
}
