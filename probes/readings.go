package probes

import "time"

// readings is where user space reads counters, and makes an event of each that has changed.
type readings struct {
	// of names what is read.
	of string
	// usual is the time from one reading to the next, unless a program gives another one.
	usual time.Duration
}

// leastPeriod is the least period: the kernel itself keeps what it has read of an RDMA device for about 10 ms (RDMA_HW_STATS_DEFAULT_LIFESPAN,
// include/rdma/ib_verbs.h).
const leastPeriod = 10 * time.Millisecond

func (readings) targets() []string { return nil }

// stack returns nothing: no task makes the events.
func (readings) stack() (functions []string, through bool) { return nil, false }

func (readings) sampled() bool { return false }

func (r readings) period() (usual, least time.Duration) { return r.usual, leastPeriod }

func (readings) among(c *chosen, own Arg) Arg { return narrowed{own, c} }

// narrowed is the argument of a request that gets readings of some processes only.
type narrowed struct {
	Arg
	among *chosen
}
