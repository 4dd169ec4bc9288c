package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/run"
	"trace/lang/syntax"
)

// checkProgram returns what is wrong with the options for a program, prints it with -d ast, and reports its probes if it does not name
// them.
func checkProgram(s streams, o options, program *ir.Program) error {
	if err := o.columns().Check(program.Printed()); err != nil {
		return usagef("--fields: %w", err)
	}
	if o.debug == "ast" {
		_, err := io.WriteString(s.out, syntax.Visible(program.Dump())+"\n")
		return err
	}
	if o.count > 0 && !program.Prints() {
		return usagef("-n %d counts printed events, but this program prints none: end it with --timeout or exit()", o.count)
	}
	if !o.quiet {
		noteProbes(s, program)
	}
	return nil
}

// columns describe what is printed of events. A recording has all columns.
func (o options) columns() output.Columns {
	return output.NewColumns(o.format.Format, o.verbose || o.recordsOnly, o.fields)
}

// compileError distinguishes a mistake in the program from one in the values of its params, and a program from the name of a file.
func compileError(src programText, err error) error {
	var mistakes syntax.ErrorList
	if !errors.As(err, &mistakes) {
		return usageError{err}
	}
	if src.name == inlineName {
		if info, statErr := os.Stat(src.text); statErr == nil && info.Mode().IsRegular() {
			err = fmt.Errorf("%w\nhelp: to run the file of that name write trace ./%s", err, src.text)
		}
	}
	return programError{err}
}

// mistaken marks an error as a mistake in the program itself, or in its name.
func mistaken(err error) error {
	var mistakes syntax.ErrorList
	switch {
	case errors.As(err, &mistakes):
		return programError{err}
	case errors.Is(err, run.ErrNoScript):
		return usageError{err}
	}
	return err
}

// noteProbes reports the probes that a program uses without naming them, and what its wildcards leave out.
func noteProbes(s streams, program *ir.Program) {
	if names := inferred(program); names != "" {
		s.note("attaching %s", names)
	}
	var why []string
	probes := map[string][]string{}
	for _, c := range program.Clauses {
		for _, l := range c.LeftOut {
			if !slices.Contains(why, l.Why) {
				why = append(why, l.Why)
			}
			if name := l.Probe.String(); !slices.Contains(probes[l.Why], name) {
				probes[l.Why] = append(probes[l.Why], name)
			}
		}
	}
	for _, w := range why {
		s.note("leaving out %s: %s", strings.Join(probes[w], ", "), w)
	}
}

// inferred returns the names of the probes that the program uses without naming them.
func inferred(program *ir.Program) string {
	var names []string
	for _, c := range program.Clauses {
		if !c.Inferred {
			continue
		}
		for _, p := range c.Probes {
			names = append(names, p.String())
		}
	}
	return strings.Join(names, ", ")
}
