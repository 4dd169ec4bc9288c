package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trace/lang"
	"trace/lang/run"
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
	kept := &keptRun{streams: s}
	defer kept.close()
	shell := repl.Shell{
		Run: func(args ...string) bool {
			sub := s
			sub.in, sub.keep = nil, kept.keep // the terminal is the loop's
			if s.keys != nil {
				sub.keys = os.Stdin // by now what comes through the loop
			}
			return exitStatus(s, execute(ctx, sub, args)) == exitOK
		},
		Maps:       kept.maps,
		Print:      kept.print,
		Probes:     func(names []string) ([]*event.Probe, error) { return catalogOf(options{recordings: names}) },
		Scripts:    scriptNames(),
		Params:     scriptFlags,
		Topics:     topicNames(),
		History:    historyFile(),
		Recordings: recordings,
		Out:        s.out, Err: s.err,
	}
	if _, err := shell.Probes(recordings); err != nil {
		return err
	}
	return shell.Loop()
}

// scriptFlags are the flags of a script; what is none has no flags.
func scriptFlags(name string) []string {
	text, found, err := scriptText(name)
	if err != nil || !found {
		return nil
	}
	params, err := lang.Params(name, text)
	if err != nil {
		return nil
	}
	var flags []string
	for _, p := range params {
		flags = append(flags, "--"+p.Name)
	}
	return flags
}

// historyFile is in the folder for the state of the user's programs (XDG base directory specification), or nowhere.
func historyFile() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "trace", "history")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "trace", "history")
}

// keptRun is the program of the interactive mode that ran last: its maps stay until another one has run.
type keptRun struct {
	streams
	run *run.Ended
}

// keep takes a run over.
func (k *keptRun) keep(ended *run.Ended) error {
	err := k.close()
	k.run = ended
	return err
}

func (k *keptRun) close() error {
	if k.run == nil {
		return nil
	}
	ended := k.run
	k.run = nil
	return ended.Close()
}

func (k *keptRun) maps() []string {
	if k.run == nil {
		return nil
	}
	return k.run.Program().Maps()
}

func (k *keptRun) print(name string, top int64, by string) error {
	if k.run == nil {
		return errors.New("no program ran yet")
	}
	return k.run.PrintMap(k.out, name, top, by)
}

// isTerminal tells whether a stream is one.
func isTerminal(stream any) bool {
	f := run.FileOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd()))
}
