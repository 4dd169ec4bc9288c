package run

import (
	"context"
	"time"

	"trace/lang/exec"
)

// Running is a program that runs. Its methods may be called from any goroutine, until [Ended.Close].
type Running struct {
	*exec.Run
	// Began is when the probes were attached, or when the recording began.
	Began  time.Time
	report func() (Report, error)
	rest   interface {
		all() []Unavailable
		attach(context.Context) error
	} // nil for recordings
}

// Report describes the run up to now. It lacks what is known only at the end.
func (r Running) Report() (Report, error) { return r.report() }

// Unavailable is why a probe is not attached: the module or the support that the machine lacks, or that its kernel refuses it.
type Unavailable struct {
	Probe string
	Err   error
}

// LeftOut returns the probes that the run goes on without.
func (r Running) LeftOut() []Unavailable {
	if r.rest == nil {
		return nil
	}
	return r.rest.all()
}

// Retry attaches what was left out, as far as that is possible now. What is attached loses nothing.
func (r Running) Retry(ctx context.Context) error {
	if r.rest == nil {
		return nil
	}
	return r.rest.attach(ctx)
}
