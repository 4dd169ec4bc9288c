//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killDelay is how long the command of -c may take to end after it got a signal to.
const killDelay = 500 * time.Millisecond

// heldArgument makes trace a process that waits until it may become the command of -c. So the process exists, with its id, before
// the probes are attached, and everything that the command does is seen.
const heldArgument = "__command"

// The descriptors on which such a process waits, and reports why it could not become the command. They follow standard error.
const (
	gateFD   = 3
	reportFD = 4
)

// waitingName is what the threads of such a process are called. No command is, so its events can be told from the command's.
const waitingName = "trace:exec"

// BecomeCommand waits until it may start the command, whose path and words follow heldArgument in the arguments, and executes it. It returns
// false if the argument is missing, and true if the process must end: nobody needs its status, because trace has ended, or knows.
func BecomeCommand(args []string) bool {
	if len(args) < 3 || args[1] != heldArgument {
		return false
	}
	runtime.LockOSThread() // the command keeps the process's first thread
	unix.CloseOnExec(gateFD)
	unix.CloseOnExec(reportFD)
	nameThreads(waitingName)
	open := make([]byte, 1)
	_, _ = unix.Write(reportFD, open)
	n, err := unix.Read(gateFD, open)
	for err == unix.EINTR {
		n, err = unix.Read(gateFD, open)
	}
	if n == 1 {
		err = unix.Exec(args[2], args[3:], os.Environ())
		_, _ = io.WriteString(os.NewFile(reportFD, "report"), err.Error())
	}
	return true
}

// nameThreads gives all threads of this process a name. A thread that starts meanwhile has the name of the thread that made it, so a pass that
// finds no other names is the last one.
func nameThreads(name string) {
	for renamed := true; renamed; {
		renamed = false
		names, _ := filepath.Glob("/proc/self/task/*/comm") // the pattern is right
		for _, file := range names {
			if was, err := os.ReadFile(file); err == nil && string(was) != name+"\n" {
				renamed = os.WriteFile(file, []byte(name), 0) == nil || renamed
			}
		}
	}
}

// child is the command of -c. It shares the terminal: its output is not data. The nil child never ends.
type child struct {
	name string
	cmd  *exec.Cmd
	note func(Note)
	// interrupted ends when the user interrupts trace.
	interrupted context.Context
	// gate opens when a byte is written to it. report returns why the command could not be executed.
	gate, report *os.File
	// asked reports that trace has signalled the command to end.
	asked atomic.Bool
	// failed reports that it ended by itself with a status other than 0.
	failed atomic.Bool
}

// holdCommand returns the command. It has its process but does not run yet. It returns nil if there is no command. The command is
// signalled to end when ctx ends. interrupted ends when the user interrupts the run.
func holdCommand(ctx, interrupted context.Context, command []string, out Outputs) (_ *child, err error) {
	if len(command) == 0 {
		return nil, nil
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("-c: %w", err)
	}
	c := &child{name: command[0], note: out.Note, interrupted: interrupted}
	waiting, gate, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("-c: %w", err)
	}
	defer waiting.Close()
	report, reporting, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("-c: %w", err), gate.Close())
	}
	defer reporting.Close()
	c.gate, c.report = gate, report
	c.cmd = exec.CommandContext(ctx, "/proc/self/exe", append([]string{heldArgument, path}, command...)...)
	c.cmd.Args[0] = os.Args[0]
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = out.Stdin, out.Stdout, out.Stderr
	c.cmd.ExtraFiles = []*os.File{waiting, reporting} // gateFD, reportFD
	c.cmd.Cancel = func() error {
		c.asked.Store(true)
		return c.cmd.Process.Signal(unix.SIGTERM)
	}
	c.cmd.WaitDelay = killDelay
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("-c: %w", err), gate.Close(), report.Close())
	}
	return c, nil
}

// pid returns the process id of the command, or 0 without one.
func (c *child) pid() int {
	if c == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// waitNamed waits until the threads of the process have their name.
func (c *child) waitNamed(ctx context.Context) {
	if c == nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.report.SetReadDeadline(time.Now()) })()
	_, _ = c.report.Read(make([]byte, 1)) // start learns that the process has ended
}

// start lets the command run.
func (c *child) start(ctx context.Context) error {
	if c == nil {
		return nil
	}
	if _, err := c.gate.Write([]byte{1}); err != nil {
		return fmt.Errorf("-c: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.report.SetReadDeadline(time.Now()) })()
	why, err := io.ReadAll(c.report) // the command closes it when it begins
	if len(why) > 0 {
		c.asked.Store(true) // the error has the reason
		return fmt.Errorf("-c: %s: %s", c.name, why)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("-c: %w", err)
	}
	return nil
}

// wait waits until the command has ended. The command ends soon after its context at the latest.
func (c *child) wait(context.Context) bool {
	if c == nil {
		return false
	}
	_ = c.cmd.Wait() // its state has the result
	state := c.cmd.ProcessState
	c.failed.Store(!state.Success() && !c.endedForTrace())
	c.note(CommandEnded{c.name, state, c.failed.Load()})
	return true
}

// signalDelay is how much sooner the command may end by Ctrl-C than trace gets the signal, which the terminal sends to both: on a
// busy machine it took 100 ms. Other ends wait less.
const (
	signalDelay = 500 * time.Millisecond
	otherDelay  = 50 * time.Millisecond
)

// endedForTrace reports whether the command ended because trace does.
func (c *child) endedForTrace() bool {
	delay := otherDelay
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		delay = signalDelay
	}
	select {
	case <-c.interrupted.Done():
		return true
	case <-time.After(delay):
		return c.asked.Load()
	}
}

// hasFailed reports whether the command ended by itself with a status other than 0.
func (c *child) hasFailed() bool { return c != nil && c.failed.Load() }

// close ends a command that was never started, and closes the pipes.
func (c *child) close() error {
	if c == nil {
		return nil
	}
	err := errors.Join(c.gate.Close(), c.report.Close())
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Wait() // it ended at the closed gate, or because it could not be executed
	}
	return err
}
