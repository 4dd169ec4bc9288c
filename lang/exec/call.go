package exec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/result"
)

// This file runs the statements that are calls.

func (c *bodyCompiler) call(s *ir.CallStmt) step {
	run := c.callOf(s)
	if !s.Prints() {
		return run
	}
	return func(sc *scope) (flow, error) {
		sc.machine.printed = sc.machine.printed || !sc.muted
		return run(sc)
	}
}

func (c *bodyCompiler) callOf(s *ir.CallStmt) step {
	key, args := c.row(s.Key), c.row(s.Args)
	switch {
	case s.Fn == "exit":
		return func(sc *scope) (flow, error) {
			values, err := args.eval(sc)
			sc.machine.exit(values, sc.event != nil)
			return ends, err
		}
	case s.Fn == "clear":
		return func(sc *scope) (flow, error) { return goesOn, sc.machine.clear(s.Map, sc.now()) }
	case s.Fn == "zero":
		return func(sc *scope) (flow, error) { return goesOn, sc.machine.zero(s.Map, sc.now()) }
	case s.Fn == "time":
		return func(sc *scope) (flow, error) {
			return goesOn, sc.sink.Time(sc, format.AppendTime(nil, s.Format, sc.sink.Clock(sc.now())))
		}
	case s.Fn == "print" && s.Map != nil && s.Key == nil:
		o := ir.MapOptions{Top: s.Top, Div: s.Div, By: result.Order(s.By)}
		return func(sc *scope) (flow, error) { return goesOn, sc.printMap(s.Map, o) }
	}
	return func(sc *scope) (flow, error) {
		k, err := key.eval(sc)
		if err != nil {
			return goesOn, err
		}
		values, err := args.eval(sc)
		if err != nil {
			return goesOn, err
		}
		switch {
		case s.Fn == ir.ToProcess, s.Fn == ir.ToThread:
			sc.machine.acts.signal(values[0])
			return goesOn, nil
		case s.Fn == "delete":
			return goesOn, sc.machine.stores[s.Map].remove(k)
		case s.Format != nil:
			append := s.Format.Append
			if s.Fn == "system" {
				append = s.Format.AppendCommand
			}
			sc.text = append(sc.text[:0], sc.printfArgs(s.Args, values))
			return goesOn, sc.write(s, sc.text)
		case s.Map != nil:
			return goesOn, sc.printElement(s.Map, k)
		}
		e := s.Args[0]
		v := format.Shaped(e.Form, sc.machine.named(e.Type, e.Elems, values[0]))
		return goesOn, sc.sink.Value(sc, e.Type, e.Elems, v, ir.Own(e))
	}
}

// levels are the words before the texts of errorf() and warnf().
var levels = map[string]string{"errorf": "ERROR: ", "warnf": "WARNING: "}

// write writes the text of a statement with a format where it belongs.
func (sc *scope) write(s *ir.CallStmt, text []byte) error {
	if level, is := levels[s.Fn]; is {
		sc.warn(s.Fn == "warnf", s.Place+": "+level+string(text))
		return nil
	}
	switch s.Fn {
	case "cat":
		return sc.cat(string(text))
	case "system":
		if sc.muted { // what it prints cannot be told from what it does
			return nil
		}
		return sc.system(string(text))
	}
	return sc.sink.Text(sc, text)
}

// maxCat is how many bytes of a file cat() writes.
const maxCat = 10240

// cat writes what a file holds.
func (sc *scope) cat(name string) error {
	text, err := readStart(name)
	var cause syscall.Errno
	if errors.As(err, &cause) {
		sc.warn(false, fmt.Sprintf("ERROR: failed to open file '%s' (%s)", name, format.ErrorText(int64(cause))))
		return nil
	}
	return errors.Join(err, sc.foreign(text))
}

// foreign writes a text that anyone may have written.
func (sc *scope) foreign(text []byte) error {
	if !sc.sink.Raw() {
		text = []byte(format.Visible(string(text)))
	}
	return sc.sink.Text(sc, text)
}

// catPatience is how long a pipe may take for the next bytes: a writer may have it open, and write nothing.
const catPatience = 10 * time.Millisecond

// readStart returns the first bytes of a file. It waits neither for a writer of a pipe, nor for what it writes.
func readStart(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(catPatience)) // other files have none
	text, err := io.ReadAll(io.LimitReader(f, maxCat))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return text, err
}

// Acts count what the program did to this machine.
type Acts struct {
	// Commands were run by system().
	Commands uint64
	// Signals were sent by signal(), and Unsent were not: the process of the event was not running, or the kernel refused.
	Signals, Unsent uint64
}

// signal counts a signal by what the kernel returned.
func (a *Acts) signal(result any) {
	if result == int64(0) {
		a.Signals++
	} else {
		a.Unsent++
	}
}

// killDelay is how long what a command has started may keep its output open after the end of the command, or of the run.
const killDelay = 100 * time.Millisecond

// maxPiece is how much of what a command prints waits until a line ends.
const maxPiece = 64 << 10

// byLine passes on a text as it comes, line by line if its lines are not too long.
type byLine struct {
	write func([]byte) error
	left  []byte
}

func (p *byLine) Write(text []byte) (int, error) {
	p.left = append(p.left, text...)
	whole := bytes.LastIndexByte(p.left, '\n') + 1
	if whole == 0 && len(p.left) >= maxPiece {
		whole = len(p.left)
	}
	if whole == 0 {
		return len(text), nil
	}
	err := p.write(p.left[:whole])
	p.left = append(p.left[:0], p.left[whole:]...)
	return len(text), err
}

// end passes on the rest.
func (p *byLine) end() error {
	if len(p.left) == 0 {
		return nil
	}
	return p.write(p.left)
}

// system runs a command in a shell and prints its output. The run waits for it, and counts it.
func (sc *scope) system(command string) error {
	sc.machine.acts.Commands++
	cmd := exec.CommandContext(sc.ctx, "/bin/sh", "-c", command)
	printed := &byLine{write: sc.foreign}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = printed, os.Stderr, killDelay
	err := cmd.Run()
	var failed *exec.ExitError
	switch {
	case err != nil && sc.cut() != nil:
		return errors.Join(printed.end(), ErrCut)
	case errors.As(err, &failed):
		sc.warn(false, fmt.Sprintf("ERROR: command exited with code %d", failed.ExitCode()))
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // what has come by then counts
		sc.warn(false, fmt.Sprintf("ERROR: system(): %v", err))
	}
	return printed.end()
}
