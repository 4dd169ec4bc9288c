package run

import (
	"time"

	"trace/lang/exec"
)

// Running is a program that runs. Its methods may be called from any goroutine, until [Ended.Close].
type Running struct {
	*exec.Run
	// Began is when the probes were attached, or when the recording began.
	Began  time.Time
	report func() (Report, error)
}

// Report describes the run up to now. It lacks what is known only at the end.
func (r Running) Report() (Report, error) { return r.report() }
