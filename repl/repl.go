// Package repl is the interactive mode of trace: a line is a program or a command.
//
// It edits lines with liner, asks the parser whether a program is complete, completes words by their types, and leaves running
// programs to [Shell].
package repl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/peterh/liner"

	"trace/lang/output"
	"trace/lang/syntax"
	"trace/probes/event"
)

// Shell is what the loop needs from the command around it.
type Shell struct {
	// Run runs a program, and prints its output. It reports whether that succeeded. Ctrl-C ends it. Meanwhile it reads typed keys
	// from os.Stdin.
	Run func(p Program) bool
	// Script runs a script instead of the text of a program. words are its name and its flags.
	Script func(p Program, words []string) bool
	// Explain prints what runs in the kernel.
	Explain func(text string)
	// Record writes the events that a program selects to a file. It replaces an existing file only if replace is set.
	Record func(file, text string, replace bool)
	// List writes the probes that match a glob, or all without one. With fields it writes their fields too.
	List func(to io.Writer, recordings []string, fields bool, glob ...string)
	// Info prints what is in recordings.
	Info func(recordings []string)
	// Command writes what a command of trace prints that takes no program, like help and doctor.
	Command func(to io.Writer, words ...string)
	// Maps returns the maps of the last program, with their @.
	Maps func() []string
	// Print prints a map: at most top rows (0 means all), sorted by "key" or "value". "" is the default order.
	Print func(name string, top int64, by string) error
	// Probes returns the probes of the open recordings or, without recordings, all probes.
	Probes func(recordings []string) ([]*event.Probe, error)
	// Scripts are the names of the bundled scripts.
	Scripts []string
	// Params returns the flags of a script, with their dashes.
	Params func(script string) []string
	// Topics are the topics of the help.
	Topics []string
	// Recordings are open at the start.
	Recordings []string
	Out, Err   io.Writer
}

// Program is a program to run, with its options.
type Program struct {
	Text string
	// Recordings have the events. Without any, they come from this machine.
	Recordings []string
	// Live shows the maps in place.
	Live bool
	Settings
}

// loop is one run of the interactive mode.
type loop struct {
	Shell
	line  *liner.State      // nil if the input is not a terminal
	mode  liner.ModeApplier // of the terminal before liner changed it
	paste *pasteFilter
	history
	// recordings are open. Without any, programs run on the machine.
	recordings []string
	settings   Settings
	// last is the last program that ran.
	last string
	// typed are the lines of an incomplete program.
	typed []string
	quit  bool
}

// Settings are changed by the command set.
type Settings struct {
	// Format of the data; "" is text.
	Format output.Format
	// File is where the data goes; "" is the terminal.
	File string
	// Limit is the number of events after which a program ends; 0 means that it does not.
	Limit uint64
	// Fields of events to print; nil means the usual ones.
	Fields []string
}

const (
	prompt     = "trace> "
	morePrompt = "  ...> "
)

// Loop reads and executes lines until the input ends or the user leaves.
func (s Shell) Loop() error {
	l := &loop{Shell: s, recordings: s.Recordings, history: history{file: historyFile()}}
	// At a prompt in a narrow or a dumb terminal Ctrl-C is a signal, which must not end the session.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)

	var err error
	if l.paste, err = newPasteFilter(); err != nil {
		return err
	}
	defer l.paste.close()
	read := l.readLines()
	if l.paste.terminal {
		if l.mode, err = liner.TerminalMode(); err != nil {
			return err
		}
		l.line = liner.NewLiner()
		defer l.line.Close()
		l.line.SetCtrlCAborts(true)
		l.line.SetTabCompletionStyle(liner.TabPrints)
		l.line.SetWordCompleter(l.complete)
		l.history.load()
		for _, text := range l.history.lines {
			l.line.AppendHistory(text)
		}
		read = l.prompt
		fmt.Fprintln(l.Out, "Type a program, like qp.state == RTR, or a command: help lists them. Ctrl-C stops a program, Ctrl-D leaves.")
	}
	for !l.quit {
		text, err := read()
		switch {
		case errors.Is(err, liner.ErrPromptAborted):
			l.typed = nil
		case err == io.EOF:
			if len(l.typed) > 0 { // the incomplete program reports what is missing
				l.execute(strings.Join(l.typed, "\n"))
			}
			if l.paste.terminal {
				fmt.Fprintln(l.Out)
			}
			return nil
		case err != nil:
			return err
		default:
			l.add(text)
		}
	}
	return nil
}

// readLines reads lines from input that is not a terminal.
func (l *loop) readLines() func() (string, error) {
	in := bufio.NewReader(os.Stdin)
	return func() (string, error) {
		text, err := in.ReadString('\n')
		if err == io.EOF && text != "" {
			err = nil
		}
		return strings.TrimSuffix(text, "\n"), err
	}
}

// prompt reads a line that is edited.
func (l *loop) prompt() (string, error) {
	p := prompt
	if len(l.typed) > 0 {
		p = morePrompt
	}
	l.paste.begin()
	defer l.paste.end()
	text, err := l.line.Prompt(p)
	return strings.ReplaceAll(text, newline, "\n"), err
}

// asLine returns a text as one line.
func asLine(text string) string { return strings.ReplaceAll(text, "\n", newline) }

// newline stands for the end of a line in text that is edited as one line: a paste, or a program from the history.
const newline = "\u2424"

// add takes a line. It executes the program or command that the line completes.
func (l *loop) add(line string) {
	l.typed = append(l.typed, line)
	text := strings.Join(l.typed, "\n")
	program := text
	if name, args, command := cutCommand(text); command {
		program, _ = findCommand(name).program(args)
	}
	if syntax.Incomplete(program) {
		return
	}
	l.typed = nil
	if strings.TrimSpace(text) == "" {
		return
	}
	if l.line != nil {
		l.line.AppendHistory(asLine(text))
		if err := l.remember(text); err != nil {
			fmt.Fprintf(l.Err, "the history is not kept: %v\n", err)
		}
	}
	l.execute(text)
}

// execute runs a command or a program.
func (l *loop) execute(text string) {
	name, rest, command := cutCommand(text)
	if !command {
		l.run(text)
		return
	}
	if err := findCommand(name).run(l, rest); err != nil {
		fmt.Fprintf(l.Err, "%s: %v\n", name, err)
	}
}

// run runs a program, on the machine or on the recordings.
func (l *loop) run(text string) {
	if hint := mistyped(text, l.Shell); hint != "" {
		fmt.Fprintln(l.Err, hint)
		return
	}
	l.last = text
	l.collect(l.Run(l.program(text)))
}

// collect prints where the data of a program is, if the program succeeded.
func (l *loop) collect(succeeded bool) {
	if succeeded && l.settings.File != "" {
		fmt.Fprintf(l.Out, "written to %s\n", l.settings.File)
	}
}

// program returns a text with the settings.
func (l *loop) program(text string) Program {
	return Program{Text: text, Recordings: l.recordings, Settings: l.settings}
}
