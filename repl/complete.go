package repl

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"trace/lang"
	"trace/probes/event"
)

// complete offers words for the place of the cursor, as liner asks: what stands before the word, the words, and what stands after it.
func (l *loop) complete(line string, pos int) (head string, words []string, tail string) {
	runes := []rune(line)
	before, tail := string(runes[:pos]), string(runes[pos:])
	head, words = l.candidates(before)
	slices.Sort(words)
	return head, slices.Compact(words), tail
}

// candidates returns the text before the word at hand, and what the word may become.
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
	word := lastWord.FindString(before)
	head = strings.TrimSuffix(before, word)
	words = startingWith(l.inProgram(strings.TrimSuffix(program, word)), word)
	if text == word {
		words = append(words, startingWith(commandNames(), word)...)
	}
	return head, words
}

// lastWord is what may be the beginning of a word of a program: a probe, a field, a map, a function, a name of a value.
var lastWord = regexp.MustCompile(`[@$]?[A-Za-z0-9_.:*-]*$`)

// argument completes those of a command.
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

// files are those whose path begins with the last word; folders end in a slash.
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

// inProgram returns what may come after a piece of a program, by its place: probes where a clause begins, names of values beside a field
// that has names, else fields, functions and maps.
func (l *loop) inProgram(text string) []string {
	catalog, err := l.Probes(l.recordings)
	if err != nil {
		return nil
	}
	header, inside := clauseAt(text)
	if strings.TrimSpace(header) == "" || !inside && strings.HasSuffix(strings.TrimSpace(header), ",") && !strings.Contains(header, "/") {
		names := append(l.probeNames(nil), "begin", "end", "interval:1s")
		if strings.TrimSpace(text) == "" {
			names = append(names, fieldsOf(catalog)...) // of a bare expression
		}
		return names
	}
	inHand := probesOf(header, catalog)
	if len(inHand) == 0 {
		inHand = catalog
	}
	if m := comparison.FindStringSubmatch(text); m != nil {
		if names := lang.Names(inHand, m[1]); len(names) > 0 {
			return names
		}
	}
	words := append(fieldsOf(inHand), lang.Functions(inside)...)
	for _, m := range mapName.FindAllString(text, -1) {
		words = append(words, m)
	}
	return append(words, "probe", "elapsed")
}

// comparison is a field, an operator and perhaps the beginning of a list, at the end of a text.
var comparison = regexp.MustCompile(`([a-z_][a-z0-9_.]*)\s*(?:==|!=|\bin\s*\[(?:[^\]]*,)?)\s*$`)

var mapName = regexp.MustCompile(`@[A-Za-z0-9_]+`)

// clauseAt returns the text of the clause at the end of a program up to its block, and whether the end is within the block.
func clauseAt(text string) (header string, inside bool) {
	depth, begin, block := 0, 0, 0
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			if depth == 0 {
				block = i
			}
			depth++
		case c == '}':
			if depth--; depth == 0 {
				begin = i + 1
			}
		case depth == 0 && (c == ';' || c == '\n'):
			begin = i + 1
		}
	}
	if depth > 0 {
		return text[begin:block], true
	}
	return text[begin:], false
}

var probeGlob = regexp.MustCompile(`[a-z0-9_*?]+:[a-z0-9_*?]+`)

// probesOf are the probes that the header of a clause names.
func probesOf(header string, catalog []*event.Probe) []*event.Probe {
	var found []*event.Probe
	if at := strings.Index(header, "/"); at >= 0 {
		header = header[:at]
	}
	for _, glob := range probeGlob.FindAllString(header, -1) {
		found = append(found, event.Match(catalog, glob)...)
	}
	return found
}

// fieldsOf are the fields that all of some probes have; of the whole catalog those that any has.
func fieldsOf(all []*event.Probe) []string {
	count := map[string]int{}
	for _, p := range all {
		for _, f := range p.Fields {
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
