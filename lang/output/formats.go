package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"trace/lang/result"
)

// formatTraits are what is to be known of a format.
type formatTraits struct {
	name Format
	// make makes the data at the end of a run. Without it a [Printer] writes them while the program runs.
	make func(d *Document, w io.Writer, f Facts, profiles []result.Profile) error
	// stacks says that it needs a map whose key holds a stack and whose values add up.
	stacks bool
	// file says that it is no text for a terminal.
	file bool
	// course says that it shows how the maps changed, what the program printed, and how many events there were.
	course bool
}

// formats are all formats, as the help lists them.
func formats() []formatTraits {
	return []formatTraits{
		{name: Text},
		{name: JSON},
		{name: CSV},
		{name: Folded, make: (*Document).writeFolded, stacks: true},
		{name: Pprof, make: (*Document).writePprof, stacks: true, file: true},
		{name: HTML, make: (*Document).writePage, file: true, course: true},
	}
}

func (f Format) traits() formatTraits {
	all := formats()
	i := slices.IndexFunc(all, func(t formatTraits) bool { return t.name == f })
	if i < 0 {
		return formatTraits{name: f}
	}
	return all[i]
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
