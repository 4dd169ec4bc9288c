package family

import (
	"time"

	"trace/lang/result"
)

// Snapshot is what a run holds at a moment.
type Snapshot struct {
	// Started is when it began to count.
	Started time.Time
	Tables  []result.Table
	Probes  []Probe
	// LeftOut are the names of probes that the run goes on without.
	LeftOut []string
	Maps    []MapLoss
	// StacksLost are absent, or without their frames.
	StacksLost uint64
}

// Probe counts what happened to the events of a probe.
type Probe struct {
	// Name is the probe, and Variant how it is attached; "": it is not.
	Name, Variant  string
	Seen, Rejected uint64
	// Lost events by reason.
	Lost []Loss
	// Runs of the BPF programs and their RunTime; 0 if the kernel does not measure them.
	Runs    uint64
	RunTime time.Duration
}

// MapLoss counts updates of a map that were lost, by reason.
type MapLoss struct {
	Map  string // with its @
	Lost []Loss
}

// Loss is how many were lost for a reason.
type Loss struct {
	Reason string
	Count  uint64
}

// lostOf returns how many updates of a map were lost.
func (s Snapshot) lostOf(name string) (n uint64) {
	for _, m := range s.Maps {
		if m.Map == name {
			for _, l := range m.Lost {
				n += l.Count
			}
		}
	}
	return n
}
