package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"trace/lang/result"
	"trace/probes/event"
)

// traits are what is to be known of a format.
type traits struct {
	name Format
	// form writes what comes while the program runs.
	form func(*pen) form
	// whole says that programs read it: they get all fields of events.
	whole bool
	// escapes says that it has escapes of its own for control characters.
	escapes bool
	// placing are the fields by which it places events: see [Columns].
	placing func(*event.Probe) []*event.Field
	// make makes the data at the end of a run. Then what the form writes meanwhile is for the user.
	make func(d *Document, w io.Writer, f Summary, profiles []result.Profile) error
	// stacks says that it needs a map whose key holds a stack and whose values add up.
	stacks bool
	// file says that it is no text for a terminal.
	file bool
	// course says that it shows how the maps changed, what the program printed, and how many events there were.
	course bool
}

// formats are all formats, as the help lists them.
func formats() []traits {
	return []traits{
		{name: Text, form: newTextForm},
		{name: JSON, form: newJSONForm, whole: true, escapes: true},
		{name: CSV, form: newCSVForm, whole: true},
		{name: Perfetto, form: newPerfettoForm, whole: true, escapes: true, placing: placing, file: true},
		{name: Folded, form: newTextForm, make: (*Document).writeFolded, stacks: true},
		{name: Pprof, form: newTextForm, make: (*Document).writePprof, stacks: true, file: true},
		{name: HTML, form: newTextForm, make: (*Document).writePage, file: true, course: true},
	}
}

func (f Format) traits() traits {
	all := formats()
	i := slices.IndexFunc(all, func(t traits) bool { return t.name == f })
	return all[max(0, i)] // text where none is chosen
}

// Formats are the names of all formats.
func Formats() []string {
	var names []string
	for _, t := range formats() {
		names = append(names, string(t.name))
	}
	return names
}

// FormatList are the names of all formats as a sentence has them.
func FormatList() string {
	names := Formats()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	if !slices.Contains(Formats(), name) {
		return "", fmt.Errorf("no output format %q: write %s", name, FormatList())
	}
	return Format(name), nil
}

// AtEnd returns whether the format is made at the end of a run: see [Document].
func (f Format) AtEnd() bool { return f.traits().make != nil }

// NeedsStacks returns whether the format needs a map whose key holds a stack and whose values add up.
func (f Format) NeedsStacks() bool { return f.traits().stacks }

// NeedsFile returns whether the format is no text for a terminal.
func (f Format) NeedsFile() bool { return f.traits().file }

// Counts returns whether the format shows how many events there were, and how many were rejected.
func (f Format) Counts() bool { return f.traits().course }

// NewColumns returns what a format prints of events: programs that read it get everything unless names say what.
func NewColumns(f Format, verbose bool, names []string) Columns {
	t := f.traits()
	return Columns{All: verbose || t.whole, Names: names, Placing: t.placing}
}

// NewDocument returns the document that a format asks for, or nil if what it writes is not made at the end.
func NewDocument(f Format, about About) *Document {
	if !f.AtEnd() {
		return nil
	}
	t := f.traits()
	return newDocument(t.make, t.course, about)
}
