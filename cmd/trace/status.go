package main

import (
	"errors"
	"fmt"

	"trace/lang/exec"
	"trace/lang/run/console"
	"trace/probes/recording"
)

// This file decides the exit status of the command.

const (
	exitOK            = 0
	exitFailed        = 1
	exitUsage         = 2
	exitLost          = 3
	exitFailedCommand = 4
	exitInterrupted   = 130 // as a shell has it of a process that SIGINT ended
)

// outcome is how a successful run ended: an error in form, without a message for the user. Of several outcomes the first in the order of
// the ranks decides.
type outcome struct {
	rank   int
	status int
}

// The ranks of outcomes.
const (
	byProgram   = iota // exit(n), 0 too: the program knows best
	byLoss             // --strict, and the report shows what was lost
	byCommand          // --strict, and the status of the command was printed
	byInterrupt        // and a note was printed
)

func (o outcome) Error() string { return fmt.Sprintf("exit status %d", o.status) }

// errLost is the outcome of --strict when events were lost.
var errLost error = outcome{byLoss, exitLost}

// errCommandFailed is the outcome of --strict when the command of -c failed.
var errCommandFailed error = outcome{byCommand, exitFailedCommand}

// errInterrupted is the outcome of a run that the user ended before it had seen anything.
var errInterrupted error = outcome{byInterrupt, exitInterrupted}

// errTrialsFailed is the outcome of a failed test or benchmark.
var errTrialsFailed error = outcome{byProgram, exitFailed}

// exitOf returns the outcome of exit(n), or nil.
func exitOf(run *exec.Run) error {
	if status, ok := run.ExitStatus(); ok {
		return outcome{byProgram, status}
	}
	return nil
}

// errHelpShown is the result of a command line without arguments.
var errHelpShown = errors.New("help was shown instead")

// exitStatus prints err and returns the exit status for it. A failure is worse than any outcome.
func exitStatus(s streams, err error) int {
	outcomes, failure := parted(err)
	var program programError
	var usage usageError
	switch {
	case failure == nil:
		return decided(outcomes)
	case errors.Is(failure, errHelpShown):
		return exitUsage
	case errors.As(failure, &program):
		console.Mistakes(s.err, program)
		return exitUsage
	case errors.As(failure, &usage):
		s.note("%v", usage)
		return exitUsage
	default:
		s.note("%v", failure)
		return exitFailed
	}
}

// parted splits err into outcomes and failures.
func parted(err error) (outcomes []outcome, failure error) {
	var o outcome
	if !errors.As(err, &o) {
		return nil, err
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []outcome{o}, nil
	}
	var failures []error
	for _, e := range joined.Unwrap() {
		more, failed := parted(e)
		failures, outcomes = append(failures, failed), append(outcomes, more...)
	}
	return outcomes, errors.Join(failures...)
}

// decided returns the status of the outcome that decides.
func decided(outcomes []outcome) int {
	if len(outcomes) == 0 {
		return exitOK
	}
	first := outcomes[0]
	for _, o := range outcomes[1:] {
		if o.rank < first.rank {
			first = o
		}
	}
	return first.status
}

// unlessLost turns the error of a damaged file into lost events under --strict, and reports it.
func unlessLost(c *console.Console, err error) error {
	var damaged *recording.CorruptError
	if !c.Strict || !errors.As(err, &damaged) {
		return err
	}
	c.Note("%v", err)
	return errLost
}
