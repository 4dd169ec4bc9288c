package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"trace/lang/result"
	"trace/probes/event"
)

// traits are the properties of a format.
type traits struct {
	name Format
	// endings are how names of its files end.
	endings []string
	// form writes what comes while the program runs.
	form func(*pen) form
	// whole reports that programs read it, so it has all fields of events.
	whole bool
	// escapes reports that it has escapes of its own for control characters.
	escapes bool
	// placing returns the fields by which it places events: see [Columns].
	placing func(*event.Probe) []*event.Field
	// make writes the data at the end of a run. What the form writes meanwhile is then for the user.
	make func(d *Document, w io.Writer, f Summary, profiles []result.Profile) error
	// stacks reports that it needs a map whose key holds a stack and whose values add up.
	stacks bool
	// file reports that it is not text for a terminal.
	file bool
	// trials reports that it has results of tests and benchmarks.
	trials bool
	// course reports that it shows how the maps changed, what the program printed, and how many events there were.
	course bool
}

// formats lists all formats in the order of the help.
func formats() []traits {
	return []traits{
		{name: Text, form: newTextForm, trials: true},
		{name: JSON, endings: []string{".json", ".jsonl", ".ndjson"}, form: newJSONForm, whole: true, escapes: true, trials: true},
		{name: CSV, endings: []string{".csv"}, form: newCSVForm, whole: true},
		{name: Perfetto, endings: []string{".perfetto", ".pftrace", ".perfetto-trace"}, form: newPerfettoForm, whole: true, escapes: true, placing: placing, file: true},
		{name: Folded, endings: []string{".folded"}, form: newTextForm, make: (*Document).writeFolded, stacks: true},
		{name: Pprof, endings: []string{".pb.gz", ".pprof"}, form: newTextForm, make: (*Document).writePprof, stacks: true, file: true},
		{name: HTML, endings: []string{".html", ".htm"}, form: newTextForm, make: (*Document).writePage, file: true, course: true},
	}
}

func (f Format) traits() traits {
	all := formats()
	i := slices.IndexFunc(all, func(t traits) bool { return t.name == f })
	return all[max(0, i)] // text if none is chosen
}

// Formats returns the names of all formats.
func Formats() []string {
	var names []string
	for _, t := range formats() {
		names = append(names, string(t.name))
	}
	return names
}

// FormatList returns the names of all formats for a sentence.
func FormatList() string {
	names := Formats()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// ParseFormat returns the format called name.
func ParseFormat(name string) (Format, error) {
	if !slices.Contains(Formats(), name) {
		return "", fmt.Errorf("there is no output format %q: use %s", name, FormatList())
	}
	return Format(name), nil
}

// FormatOf returns the format of a file by the end of its name, as a user expects: text if no format has it.
func FormatOf(file string) Format {
	for _, t := range formats() {
		if slices.ContainsFunc(t.endings, func(end string) bool { return strings.HasSuffix(strings.ToLower(file), end) }) {
			return t.name
		}
	}
	return Text
}

// HasTrials reports whether the format has results of tests and benchmarks.
func (f Format) HasTrials() bool { return f.traits().trials }

// AtEnd reports whether the format is made at the end of a run: see [Document].
func (f Format) AtEnd() bool { return f.traits().make != nil }

// NeedsStacks reports whether the format needs a map whose key holds a stack and whose values add up.
func (f Format) NeedsStacks() bool { return f.traits().stacks }

// NeedsFile reports whether the format is not text for a terminal.
func (f Format) NeedsFile() bool { return f.traits().file }

// Counts reports whether the format shows how many events there were, and how many were rejected.
func (f Format) Counts() bool { return f.traits().course }

// NewColumns returns what a format prints of events. Formats for programs print everything unless names are given.
func NewColumns(f Format, verbose bool, names []string) Columns {
	t := f.traits()
	return Columns{All: verbose || t.whole, Names: names, Placing: t.placing}
}

// NewDocument returns the document of a format, or nil if the format is not made at the end.
func NewDocument(f Format, about About) *Document {
	if !f.AtEnd() {
		return nil
	}
	t := f.traits()
	return newDocument(t.make, t.course, about)
}
