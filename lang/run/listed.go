package run

import (
	"os"
	"slices"
	"strings"

	"trace/lang"
	"trace/lang/check"
	"trace/probes/event"
)

// This file finds the probes for trace -l.

// Listed returns the probes that a text names: globs with commas between them, a word in the names, or the file of a program. It
// returns none if no probe does.
func Listed(all []*event.Probe, text string) ([]*event.Probe, error) {
	if strings.ContainsAny(text, "/.") {
		if program, err := os.ReadFile(text); err == nil {
			return ProbesOf(all, text, string(program))
		}
	}
	var found []*event.Probe
	for _, p := range all {
		if slices.ContainsFunc(strings.Split(text, ","), func(glob string) bool { return isListed(p, strings.TrimSpace(glob)) }) {
			found = append(found, p)
		}
	}
	return found, nil
}

func isListed(p *event.Probe, glob string) bool {
	if !strings.ContainsAny(glob, ":*?[") {
		glob = "*" + glob + "*"
	}
	return event.Match([]*event.Probe{p}, glob) != nil
}

// ProbesOf returns the probes of a program.
func ProbesOf(all []*event.Probe, name, text string) ([]*event.Probe, error) {
	program, err := lang.Compile(name, text, all, check.Options{Unsafe: true})
	if err != nil {
		return nil, err
	}
	used := map[*event.Probe]bool{}
	for _, c := range program.Clauses {
		for _, p := range c.Probes {
			used[p] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *event.Probe) bool { return !used[p] }), nil
}

// Enum returns the enum of a field that has a name, or nil.
func Enum(all []*event.Probe, name string) *event.Enum {
	for _, p := range all {
		for _, f := range p.Fields {
			if e := event.EnumOf(&f.Type); e != nil && e.Name == name {
				return e
			}
		}
	}
	return nil
}
