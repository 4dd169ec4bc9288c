package probes

import (
	"fmt"
	"time"

	"trace/probes/event"
)

// Request asks for the events of a probe.
type Request struct {
	Probe *event.Probe
	// Code is what happens to them.
	Code *Code
	// Arg is what the probe needs besides the code: the [Rate] of a sampled probe, or the period [Every] of readings, which may be nil; nil for
	// any other.
	Arg Arg
	// Counted makes the programs count the events that pass and that are rejected. Each event costs some ns more.
	Counted bool
	// CountsFailures makes the programs count the reads of a process's memory that fail: what they would show is absent or 0.
	CountsFailures bool
	// IfAvailable makes Attach continue without the probe on a host that does not have it, or whose kernel refuses it; Session.Skipped returns why.
	IfAvailable bool
	// Reduced means that the code has been reduced since the verifier rejected it, see [RejectedError]: if it rejects this, too, it refuses the probe.
	Reduced bool
	// OrNone makes Attach continue even if the host has none of the probes.
	OrNone bool
}

// DefaultRingBytes is the size of the ring buffer: about 40,000 events.
const DefaultRingBytes = 4 << 20

// An Arg is what a request asks from the place where its probe is attached. Args can be compared.
type Arg interface{ arg() }

// A Rate is how often a clock ticks on each CPU, per second.
type Rate int

func (Rate) arg() {}

// Every is the period of readings.
type Every time.Duration

func (Every) arg() {}

// acceptsNone returns the error of a place that takes no argument.
func acceptsNone(a Arg) error {
	if a != nil {
		return fmt.Errorf("the argument %v, expected none", a)
	}
	return nil
}

// Kept is how the beginnings of a request's events are kept.
type Kept struct {
	By string // thread, task or request
	// Slots are how many the table has. What finds no room there is in a hash with so many keys; without one it is counted as lost.
	Slots, Hash uint32
}

func (k Kept) String() string {
	rest := "what finds no room is counted"
	if k.Hash > 0 {
		rest = fmt.Sprintf("what finds no room, in a hash of %d keys", k.Hash)
	}
	return fmt.Sprintf("in a table of %d slots, which costs less than a hash; %s", k.Slots, rest)
}
