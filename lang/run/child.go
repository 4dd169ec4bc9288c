//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killDelay is how long the command of -c may take to end after it was asked to.
const killDelay = 500 * time.Millisecond

// heldArgument makes trace a process that waits until it may become the command of -c: so the process is there, and has its id, before
// the probes are attached, and all that the command does is seen.
const heldArgument = "__command"

// What such a process waits for, and where it says why it could not become the command; the numbers follow standard error.
const (
	gateFD   = 3
	reportFD = 4
)

// BecomeCommand executes the command whose path and words follow heldArgument among the arguments, once it may. It does nothing if the
// argument is not there.
func BecomeCommand(args []string) {
	if len(args) < 3 || args[1] != heldArgument {
		return
	}
	runtime.LockOSThread()                                  // the first thread of the process: to the kernel the command goes on with its calls
	_ = os.WriteFile("/proc/self/comm", []byte("trace"), 0) // not exe, as the file is called that it runs
	unix.CloseOnExec(gateFD)
	unix.CloseOnExec(reportFD)
	open := make([]byte, 1)
	n, err := unix.Read(gateFD, open)
	for err == unix.EINTR {
		n, err = unix.Read(gateFD, open)
	}
	if n == 1 {
		err = unix.Exec(args[2], args[3:], os.Environ())
		_, _ = io.WriteString(os.NewFile(reportFD, "report"), err.Error())
	}
	os.Exit(1) // nobody asks: trace has ended, or knows
}

// child is the command of -c. It shares the terminal: what it prints is not data. The nil child never ends.
type child struct {
	name string
	cmd  *exec.Cmd
	note func(Note)
	// interrupted ends when the user wants trace to end.
	interrupted context.Context
	// gate opens when a byte is written to it; report says why the command could not be executed.
	gate, report *os.File
	// asked says that trace wanted the command to end.
	asked atomic.Bool
	// failed says that it ended by itself, and with a status other than 0.
	failed atomic.Bool
}

// holdCommand returns the command, which does not run yet but has its process, or nil if there is none. It is asked to end when ctx ends,
// which it does when the run is interrupted.
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

// pid is the process of the command, 0 without one.
func (c *child) pid() int {
	if c == nil {
		return 0
	}
	return c.cmd.Process.Pid
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
		c.asked.Store(true) // the error says all
		return fmt.Errorf("-c: %s: %s", c.name, why)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("-c: %w", err)
	}
	return nil
}

// wait waits until the command has ended, which it does at the latest soon after its context.
func (c *child) wait(context.Context) bool {
	if c == nil {
		return false
	}
	_ = c.cmd.Wait() // its state says more
	state := c.cmd.ProcessState
	c.failed.Store(!state.Success() && !c.endedForTrace())
	c.note(CommandEnded{c.name, state, c.failed.Load()})
	return true
}

// signalDelay is how much sooner a command may end by Ctrl-C, which the terminal sends to both, than trace knows of it: on a busy machine
// it was 100 ms. Other ends are not held up that long.
const (
	signalDelay = 500 * time.Millisecond
	otherDelay  = 50 * time.Millisecond
)

// endedForTrace tells whether the command, which has ended, was to end because trace does.
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

// hasFailed returns whether the command has ended by itself, and with a status other than 0.
func (c *child) hasFailed() bool { return c != nil && c.failed.Load() }

// close ends a command that was never started, and lets go of the pipes.
func (c *child) close() error {
	if c == nil {
		return nil
	}
	err := errors.Join(c.gate.Close(), c.report.Close())
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Wait() // the closed gate, or that it could not be executed, has ended it
	}
	return err
}
