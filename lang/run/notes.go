package run

import (
	"os"
	"time"

	"trace/probes/recording"
)

// Note is something that happens while a program runs: one of the types of this file.
type Note any

// CgroupsUnwatched means that cgroups which are removed before they are printed may show as numbers.
type CgroupsUnwatched struct{ Err error }

// Attaching is how many of all probes are attached so far.
type Attaching struct{ Done, All int }

// AttachedProbe is a probe, and how it is attached, like fexit.
type AttachedProbe struct{ Name, Variant string }

// Attached means that the probes are attached.
type Attached struct {
	Probes []AttachedProbe
	// Clauses are the clauses that need no probe, of a program without probes.
	Clauses int
	Took    time.Duration
	// LeftOut are probes that this machine does not have, or that the plan left out.
	LeftOut []recording.LeftOut
	// StacksUnwatched is why stacks of ended processes are printed without names; nil: they have names.
	StacksUnwatched error
	// Missing describes what the attached probes lack.
	Missing []string
	// Refused are better ways of attaching that failed.
	Refused []error
	// Read is how many bytes of processes were read to find what is attached to.
	Read int64
}

// Rejected means that the kernel rejected the code of some clauses. They run in user space.
type Rejected struct {
	Probe   string
	Clauses []string
	Err     error
	// Large reports that the code has too many paths for the kernel. Otherwise it is wrong.
	Large bool
}

// Counts are the counts of the probes so far, and what they turned out to lack.
type Counts struct {
	Probes  []Probe
	Missing []string
}

// CommandEnded means that the command has ended.
type CommandEnded struct {
	Name  string
	State *os.ProcessState
	// Failed reports that it ended by itself with a status other than 0.
	Failed bool
}

// Playing is how much of the recordings was read: events, and bytes of all bytes.
type Playing struct {
	Events    int
	Read, All int64
}

// Message is what the program reports to the user.
type Message struct {
	Text    string
	Warning bool // otherwise it is an error
}

// Trouble is an error that does not end the run.
type Trouble struct{ Err error }
