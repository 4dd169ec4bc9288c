package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"trace/lang"
	"trace/probes"
)

// compile checks a program against a catalog, and says which probes it means if it does not name them.
func compile(s streams, o options, src source, catalog []*probes.Probe) (*lang.Program, error) {
	options := lang.Options{Params: src.params, PID: o.pid, Command: len(o.command) > 0, Words: append(scriptNames(), subcommands...), Raw: o.raw}
	if len(o.recordings) > 0 {
		known, err := probes.Load()
		if err != nil {
			return nil, err
		}
		options.Known = known.Probes()
	}
	program, err := lang.Compile(src.name, src.text, catalog, options)
	if err != nil {
		return nil, programError{err}
	}
	if err := program.CheckColumns(o.columns()); err != nil {
		return nil, usagef("--fields: %w", err)
	}
	if o.debug == "ast" {
		_, err := io.WriteString(s.out, program.Dump())
		return program, err
	}
	if names := inferred(program); names != "" && !o.quiet {
		s.note("attaching %s", names)
	}
	return program, nil
}

// columns are what is printed of events. A recording has all of them.
func (o options) columns() lang.Columns {
	return lang.NewColumns(o.format.Format, o.verbose || o.recordsOnly, o.fields)
}

// inferred returns the names of the probes that the program does not name itself.
func inferred(program *lang.Program) string {
	var names []string
	for _, c := range program.Clauses() {
		if !c.Inferred {
			continue
		}
		for _, p := range c.Probes {
			names = append(names, p.String())
		}
	}
	return strings.Join(names, ", ")
}

func plural[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// errEnough ends the reading when -n events were printed or the program called exit().
var errEnough = errors.New("enough events")

// unlessEnough is err, or nil if it says that there is nobody who wants more events.
func unlessEnough(err error) error {
	if errors.Is(err, errEnough) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
