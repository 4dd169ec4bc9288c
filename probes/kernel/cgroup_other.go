//go:build !linux

package kernel

import "trace/probes/event"

// Cgroups are the cgroups of a host with Linux. Other systems have none.
type Cgroups struct{}

// NewCgroups returns an empty table.
func NewCgroups() *Cgroups { return &Cgroups{} }

// ID finds no cgroup.
func (*Cgroups) ID(string) (uint64, bool) { return 0, false }

// Path finds no cgroup.
func (*Cgroups) Path(uint64) string { return "" }

// Ended reports nothing.
func (*Cgroups) Ended(string) bool { return false }

// Workload finds no cgroup.
func (*Cgroups) Workload(uint64) event.Workload { return event.Workload{} }
