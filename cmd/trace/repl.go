package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trace/docs"
	"trace/lang"
	"trace/lang/output"
	"trace/lang/run"
	"trace/lang/run/console"
	"trace/probes"
	"trace/probes/event"
	"trace/repl"
)

// replCommand is the interactive mode.
func replCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "repl [FILE…]",
		Short: "explore: run programs line by line, on this machine or on recordings; trace alone does so on a terminal",
		RunE: func(cmd *cobra.Command, args []string) error {
			return explore(cmd.Context(), s, args)
		},
	}
}

// explore runs the interactive mode.
func explore(ctx context.Context, s streams, recordings []string) error {
	e := &explorer{ctx: ctx, streams: s}
	defer e.close()
	e.keep = e.take
	shell := repl.Shell{
		Run:     e.program,
		Script:  func(p repl.Program, words []string) bool { return e.command(append(flagsOf(p), words...)...) },
		Explain: func(text string) { e.run(options{explain: true}, text) },
		Record:  e.record,
		List: func(to io.Writer, names []string, fields bool, glob ...string) {
			e.ended(listProbes(s.writing(to), options{recordings: names, verbose: fields}, glob...))
		},
		Info:       func(names []string) { e.ended(console.ShowInfos(s.out, names)) },
		Command:    func(to io.Writer, words ...string) { e.ended(execute(ctx, e.typing().writing(to), words)) },
		Maps:       e.maps,
		Print:      e.print,
		Probes:     func(names []string) ([]*event.Probe, error) { return catalogOf(options{recordings: names}) },
		Scripts:    scriptNames(),
		Params:     scriptFlags,
		Topics:     docs.Names(),
		Recordings: recordings,
		Out:        s.out, Err: s.err,
	}
	if _, err := shell.Probes(recordings); err != nil {
		return err
	}
	return shell.Loop()
}

// explorer runs what the user types in the interactive mode.
type explorer struct {
	streams
	ctx context.Context
	// last is the program that ran last: its maps stay until another one has run.
	last *run.Ended
}

// program runs a program with the current settings. A recording is shown live at its own speed: otherwise there would be one frame.
func (e *explorer) program(p repl.Program) bool {
	o := options{recordings: p.Recordings, output: p.File, count: p.Limit, fields: p.Fields, live: p.Live}
	o.format.Format = p.Format
	o.args = flagsOf(p)
	if p.Live && len(p.Recordings) > 0 {
		o.speed = 1
	}
	return e.run(o, p.Text)
}

// run runs a program, and reports whether that succeeded.
func (e *explorer) run(o options, text string) bool {
	sc, err := newScript(programText{name: inlineName, text: text})
	if err != nil {
		return e.ended(err)
	}
	o.bufferSize = probes.DefaultRingBytes
	o.format.Format = cmp.Or(o.format.Format, output.Text)
	if len(o.recordings) > 0 {
		return e.ended(runReplay(e.ctx, e.typing(), o, sc.programText))
	}
	return e.ended(runProgram(e.ctx, e.typing(), o, sc.programText))
}

// record records the events of a program in a file.
func (e *explorer) record(file, text string, replace bool) {
	o := options{output: file, force: replace, recordsOnly: true, bufferSize: probes.DefaultRingBytes}
	o.format.Format = output.Text
	e.ended(runRecord(e.ctx, e.typing(), o, programText{name: inlineName, text: text}, 0))
}

// command runs a line that is typed like a command line.
func (e *explorer) command(words ...string) bool { return e.ended(execute(e.ctx, e.typing(), words)) }

// typing are the streams while something runs: the loop owns the terminal, and passes on what is typed.
func (e *explorer) typing() streams {
	s := e.streams
	s.in = nil
	if s.keys != nil {
		s.keys = os.Stdin
	}
	return s
}

// ended prints an error, and reports whether there is none.
func (e *explorer) ended(err error) bool { return exitStatus(e.streams, err) == exitOK }

// flagsOf returns the flags of a command line for a program with the current settings. A page shows it.
func flagsOf(p repl.Program) []string {
	var all []string
	add := func(flag, value string) {
		if value != "" {
			all = append(all, flag, value)
		}
	}
	add("-r", strings.Join(p.Recordings, ","))
	add("-f", string(p.Format))
	add("-o", p.File)
	if p.Limit > 0 {
		add("-n", strconv.FormatUint(p.Limit, 10))
	}
	add("--fields", strings.Join(p.Fields, ","))
	if p.Live {
		all = append(all, "--live")
	}
	add("-e", p.Text)
	return all
}

// scriptFlags returns the flags of a script; anything else has no flags.
func scriptFlags(name string) []string {
	program, err := textNamed(name)
	if err != nil {
		return nil
	}
	params, err := lang.Params(program.name, program.text)
	if err != nil {
		return nil
	}
	var flags []string
	for _, p := range params {
		flags = append(flags, "--"+p.Name)
	}
	return flags
}

// take takes over the maps of a program.
func (e *explorer) take(ended *run.Ended) error {
	err := e.close()
	e.last = ended
	return err
}

func (e *explorer) close() error {
	if e.last == nil {
		return nil
	}
	last := e.last
	e.last = nil
	return last.Close()
}

func (e *explorer) maps() []string {
	if e.last == nil {
		return nil
	}
	return e.last.Program().MapNames()
}

func (e *explorer) print(name string, top int64, by string) error {
	if e.last == nil {
		return errors.New("no program has run yet")
	}
	return e.last.PrintMap(e.out, name, top, by)
}
