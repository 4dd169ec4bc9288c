package probes

// openings is where processes open RDMA devices, or have them open. User space sees that, and makes the events.
type openings struct{}

func (openings) targets() []string { return nil }

// stack returns nothing: the events have no stack of the process.
func (openings) stack() (functions []string, through bool) { return nil, false }

func (openings) sampled() bool { return false }

func (openings) among(*chosen) Arg { return nil }
