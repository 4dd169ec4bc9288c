package run

import (
	"os"
	"time"
)

// Note is something that happens while a program runs: one of the types of this file.
type Note any

// CgroupsUnwatched says that cgroups which end before they are printed may show as numbers.
type CgroupsUnwatched struct{ Err error }

// Attaching is how many probes of all are attached so far.
type Attaching struct{ Done, All int }

// AttachedProbe is a probe, and how it is attached, like fexit.
type AttachedProbe struct{ Name, Variant string }

// Attached says that the probes are attached.
type Attached struct {
	Probes []AttachedProbe
	Took   time.Duration
	// LeftOut are those that this machine does not have.
	LeftOut []LeftOut
	// StacksUnwatched is why stacks of processes that end are printed without names, if they are.
	StacksUnwatched error
	// Missing is what is missing of the attached probes.
	Missing []string
	// Refused are better ways of attaching that were not possible.
	Refused []error
}

// LeftOut are probes that are not attached.
type LeftOut struct{ Probes, Why string }

// Rejected says that the kernel took the code of some clauses for none: they run in user space.
type Rejected struct {
	Probe   string
	Clauses []string
	Err     error
	// Large says that the code has too many paths for the kernel. Otherwise it is wrong.
	Large bool
}

// Counts are the counts of the probes so far, and what has become known to be missing.
type Counts struct {
	Probes  []Probe
	Missing []string
}

// CommandEnded says that the command has ended.
type CommandEnded struct {
	Name  string
	State *os.ProcessState
	// Failed says that it ended by itself, and with a status other than 0.
	Failed bool
}

// Playing is how much of the recordings was read: events, and bytes of all.
type Playing struct {
	Events    int
	Read, All int64
}

// Trouble is an error that does not end the run.
type Trouble struct{ Err error }
