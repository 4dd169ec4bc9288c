package repl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trace/lang/check"
	"trace/lang/syntax"
	"trace/probes/event"
)

// complete offers words at the cursor, as liner requires: the text before the word, the words, and the text after it.
func (l *loop) complete(line string, pos int) (head string, words []string, tail string) {
	runes := []rune(line)
	before, tail := string(runes[:pos]), string(runes[pos:])
	head, words = l.candidates(before)
	slices.Sort(words)
	return head, slices.Compact(words), tail
}

// candidates returns the text before the current word, and the words that it may become.
func (l *loop) candidates(before string) (head string, words []string) {
	text := strings.TrimLeft(strings.ReplaceAll(strings.Join(append(slices.Clone(l.typed), before), "\n"), newline, "\n"), " ")
	program := text
	if name, _, ok := cutCommand(text); ok && strings.Contains(text, " ") {
		c := findCommand(name)
		_, rest, _ := strings.Cut(text, " ")
		var takes bool
		if program, takes = c.program(strings.TrimLeft(rest, " ")); !takes {
			return l.argument(c, before, rest)
		}
	}
	place := syntax.At(program, len(program))
	catalog, err := l.Probes(l.recordings)
	if err != nil {
		return strings.TrimSuffix(before, place.Word), nil
	}
	head, words = inProgram(catalog, before, place)
	if text == place.Word {
		words = append(words, startingWith(commandNames(), text)...)
	}
	return head, words
}

// argument completes the arguments of a command.
func (l *loop) argument(c *command, before, rest string) (head string, words []string) {
	fields := strings.Fields(rest)
	word := ""
	if rest != "" && !strings.HasSuffix(rest, " ") {
		word, fields = fields[len(fields)-1], fields[:len(fields)-1]
	}
	head = strings.TrimSuffix(before, word)
	if c.complete == nil {
		return before, nil
	}
	if c.name == "open" || c.name == "save" || c.name == "record" || c.name == "set" && len(fields) == 2 && fields[0] == "format" {
		return head, files(l, []string{word})
	}
	return head, startingWith(c.complete(l, fields), word)
}

func commandNames() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

func startingWith(all []string, word string) []string {
	var found []string
	for _, w := range all {
		if strings.HasPrefix(w, word) {
			found = append(found, w)
		}
	}
	return found
}

// files returns the files whose path begins with the last word. Folders end in a slash.
func files(_ *loop, before []string) []string {
	word := ""
	if len(before) > 0 {
		word = before[len(before)-1]
	}
	dir, _ := filepath.Split(word)
	entries, err := os.ReadDir(or(dir, "."))
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		name := dir + e.Name()
		if e.IsDir() {
			name += "/"
		}
		if strings.HasPrefix(name, word) {
			found = append(found, name)
		}
	}
	return found
}

func (l *loop) probeNames([]string) []string {
	all, err := l.Probes(l.recordings)
	if err != nil {
		return nil
	}
	return namesOf(all)
}

func namesOf(all []*event.Probe) []string {
	var names []string
	for _, p := range all {
		names = append(names, p.String())
	}
	return names
}

func (l *loop) mapNames(before []string) []string {
	if len(before) == 0 {
		return l.Maps()
	}
	return []string{"by", "key", "value"}
}

func (l *loop) settingWords(before []string) []string {
	switch {
	case len(before) == 0:
		return []string{"format", "limit", "fields"}
	case before[0] == "format":
		return formats
	case before[0] == "fields":
		catalog, err := l.Probes(l.recordings)
		if err != nil {
			return nil
		}
		return append(fieldsOf(catalog), "time", "probe", "none")
	}
	return []string{"none"}
}

func (l *loop) scriptWords(before []string) []string {
	if len(before) == 0 {
		return l.Scripts
	}
	return append(l.Params(before[0]), "--live")
}

// Complete returns the programs that the beginning of a program may become with its next word.
func Complete(catalog []*event.Probe, begun string) []string {
	head, words := inProgram(catalog, begun, syntax.At(begun, len(begun)))
	slices.Sort(words)
	words = slices.Compact(words)
	for i := range words {
		words[i] = head + words[i]
	}
	return words
}

// inProgram returns the text before the word at a place of a program, and the words that it may become.
func inProgram(catalog []*event.Probe, before string, place syntax.Place) (head string, words []string) {
	word := place.Word
	head = strings.TrimSuffix(before, word)
	if place.Position == syntax.Nowhere {
		return head, nil
	}
	inHand := probesOf(place.Probes, catalog)
	if names := check.Names(inHand, place.Compared); len(names) > 0 && !strings.HasPrefix(word, "$") && !strings.HasPrefix(word, "@") {
		// The name of an error begins with a minus, which the parser takes for an operator.
		if short, negative := strings.CutSuffix(head, "-"); negative {
			head, word = short, "-"+word
		}
		return head, slices.DeleteFunc(names, func(name string) bool { // in any case, as the language takes them
			return len(name) < len(word) || !strings.EqualFold(name[:len(word)], word)
		})
	}
	switch place.Position {
	case syntax.Start:
		words = slices.Concat(namesOf(catalog), moments, fieldsOf(catalog)) // a bare expression begins with a field
	case syntax.Probe:
		words = append(namesOf(catalog), moments...)
	case syntax.Statement:
		words = slices.Concat(check.Functions(true), place.Maps, place.Variables)
	default:
		// An aggregation or a statement is never an argument.
		functions := check.Functions(place.Position == syntax.Expression && place.Function == "")
		words = slices.Concat(fieldsOf(inHand), []string{"probe", "elapsed"}, functions, place.Maps, place.Variables)
	}
	return head, startingWith(words, word)
}

// moments are the probes that are not in the catalog.
var moments = []string{"begin", "end", "interval:1s", "self:signal:SIGUSR1"}

// probesOf returns the probes of the catalog that the clause names, or all if it names none.
func probesOf(refs []syntax.ProbeRef, catalog []*event.Probe) []*event.Probe {
	var found []*event.Probe
	for _, ref := range refs {
		found = append(found, event.Match(catalog, ref.Group+":"+ref.Name)...)
	}
	if len(found) == 0 {
		return catalog
	}
	return found
}

// fieldsOf returns the fields that all of the probes have; of the whole catalog, the fields that any probe has.
func fieldsOf(all []*event.Probe) []string {
	count := map[string]int{}
	for _, p := range all {
		for _, f := range p.AllFields() {
			count[f.Name]++
		}
	}
	var names []string
	for name, n := range count {
		if n == len(all) || len(all) > 8 {
			names = append(names, name)
		}
	}
	return names
}
