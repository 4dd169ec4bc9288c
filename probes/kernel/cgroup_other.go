//go:build !linux

package kernel

// Cgroups are those of a host with Linux. Elsewhere there are none.
type Cgroups struct{}

// NewCgroups knows none.
func NewCgroups() *Cgroups { return &Cgroups{} }

// ID knows no cgroup.
func (*Cgroups) ID(string) (uint64, bool) { return 0, false }

// Path knows no cgroup.
func (*Cgroups) Path(uint64) string { return "" }
