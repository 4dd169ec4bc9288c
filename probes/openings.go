package probes

import "time"

// openings is where processes open RDMA devices, or have them open. User space sees that, and makes the events.
type openings struct{}

func (openings) targets() []string { return nil }

// stack returns nothing: the events have no stack of the process.
func (openings) stack() (functions []string, through bool) { return nil, false }

func (openings) sampled() bool { return false }

func (openings) period() (usual, least time.Duration) { return 0, 0 }

func (openings) among(_ *chosen, own Arg) Arg { return own }
