package probes

import "time"

// readings is where user space reads counters, and makes an event of each that has changed. It names what is read.
type readings string

// The usual period, and the least one: the kernel itself keeps what it has read of an RDMA device for about 10 ms
// (RDMA_HW_STATS_DEFAULT_LIFESPAN, include/rdma/ib_verbs.h).
const (
	usualPeriod = time.Second
	leastPeriod = 10 * time.Millisecond
)

func (readings) targets() []string { return nil }

// stack returns nothing: the events have no task.
func (readings) stack() (functions []string, through bool) { return nil, false }

func (readings) sampled() bool { return false }

func (readings) among(*chosen) Arg { return nil }
