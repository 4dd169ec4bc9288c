// Package words finds what a word of the command line means: a command, a script, a topic of the help, or what the language knows.
package words

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"trace/docs"
	"trace/lang/check"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/event"
	"trace/scripts"
)

// Explain writes a line for each thing of that name, and for each line of a document that mentions it. The error of an unknown word suggests
// one of known, the commands and topics.
func Explain(out io.Writer, word string, known []string) error {
	catalog, err := probes.Load()
	if err != nil {
		return err
	}
	lines := slices.Concat(namedProbes(word, catalog.Probes()), namedFields(word, catalog.Probes()), namedEnums(word, catalog.Probes()), namedScript(word))
	if slices.Contains(check.Functions(true), word) {
		lines = append(lines, fmt.Sprintf("%s is a function: trace help functions", word))
	}
	for _, m := range docs.Mentions(word) {
		lines = append(lines, fmt.Sprintf("trace help %s, %s: %s", m.Topic.Name, m.Section, m.Line))
	}
	if len(lines) == 0 {
		if name := syntax.Nearest(word, known); name != "" {
			return fmt.Errorf("nothing is called %q: did you mean %q?", word, name)
		}
		return fmt.Errorf("nothing is called %q: the commands and topics are %s", word, strings.Join(known, ", "))
	}
	_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// namedProbes describes the probes of that name or group.
func namedProbes(word string, all []*event.Probe) []string {
	var lines []string
	for _, p := range all {
		if p.String() == word || p.Group == strings.TrimSuffix(word, ":") || p.Name == word || slices.Contains(p.Targets, word) {
			lines = append(lines, fmt.Sprintf("%s is a probe: %s", p, p.Doc))
		}
	}
	return lines
}

// namedFields describes the fields of that name, each meaning once, with the probes that have it.
func namedFields(word string, all []*event.Probe) []string {
	var meanings []string
	of := make(map[string][]string)
	for _, p := range all {
		for _, f := range p.AllFields() {
			if f.Name != word && !strings.HasSuffix(f.Name, "."+word) {
				continue
			}
			meaning := fmt.Sprintf("%s is a field: %s", f.Name, f.Doc)
			if of[meaning] == nil {
				meanings = append(meanings, meaning)
			}
			of[meaning] = append(of[meaning], p.String())
		}
	}
	for i, meaning := range meanings {
		meanings[i] = fmt.Sprintf("%s (%s)", meaning, someOf(of[meaning]))
	}
	return meanings
}

// someOf names the first few.
func someOf(names []string) string {
	if len(names) > 4 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// namedEnums describes the enums of that name, and those that have a value of that name.
func namedEnums(word string, all []*event.Probe) []string {
	var lines []string
	for _, p := range all {
		for _, f := range p.Fields {
			e := event.EnumOf(&f.Type)
			if e == nil {
				continue
			}
			line := fmt.Sprintf("%s is an enum, of fields like %s: %s", e.Name, f.Name, strings.Join(e.Names, " "))
			if slices.Contains(e.Names, word) {
				line = fmt.Sprintf("%s is a value of the enum %s, of fields like %s", word, e.Name, f.Name)
			} else if e.Name != word {
				continue
			}
			prefix, _, _ := strings.Cut(line, ", of fields")
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix+",") }) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// namedScript describes the script of that name.
func namedScript(word string) []string {
	s, found := scripts.Find(word)
	if !found {
		return nil
	}
	return []string{fmt.Sprintf("%s is a script: %s (trace %[1]s --help)", s.Name, s.Summary)}
}
