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
)

// outcome is how a run ended that did its work: an error in form, of which the user needs no message. Of several the first in the order
// of the ranks decides.
type outcome struct {
	rank   int
	status int
}

// The ranks of outcomes.
const (
	byProgram = iota // exit(n), 0 too: the program knows best
	byLoss           // --strict, and the report has said what was lost
	byCommand        // --strict, and the status of the command was printed
)

func (o outcome) Error() string { return fmt.Sprintf("exit status %d", o.status) }

// errLost is the outcome of --strict when events were lost.
var errLost error = outcome{byLoss, exitLost}

// errCommandFailed is the outcome of --strict when the command of -c failed.
var errCommandFailed error = outcome{byCommand, exitFailedCommand}

// asked is the outcome of exit(n), or nil.
func asked(run *exec.Run) error {
	if status, ok := run.ExitStatus(); ok {
		return outcome{byProgram, status}
	}
	return nil
}

// errHelpShown is what comes of a command line without any argument.
var errHelpShown = errors.New("help was shown instead")

// exitStatus prints err and returns the exit status that stands for it. Whatever failed is worse than any outcome.
func exitStatus(s streams, err error) int {
	failure, outcomes := parted(err)
	var program programError
	var usage usageError
	switch {
	case failure == nil:
		return decided(outcomes)
	case errors.Is(failure, errHelpShown):
		return exitUsage
	case errors.As(failure, &program):
		fmt.Fprintln(s.err, program.Error())
		return exitUsage
	case errors.As(failure, &usage):
		s.note("%v", usage)
		return exitUsage
	default:
		s.note("%v", failure)
		return exitFailed
	}
}

// parted takes the outcomes out of err. What is left failed.
func parted(err error) (failure error, outcomes []outcome) {
	var o outcome
	if !errors.As(err, &o) {
		return err, nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil, []outcome{o}
	}
	var failures []error
	for _, e := range joined.Unwrap() {
		failed, more := parted(e)
		failures, outcomes = append(failures, failed), append(outcomes, more...)
	}
	return errors.Join(failures...), outcomes
}

// decided is the status of the outcome that counts.
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

// unlessLost makes of a damaged file what --strict makes of lost events, and reports it.
func unlessLost(c *console.Console, err error) error {
	var damaged *recording.CorruptError
	if !c.Strict || !errors.As(err, &damaged) {
		return err
	}
	c.Note("%v", err)
	return errLost
}
