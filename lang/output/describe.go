package output

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"trace/probes/event"
)

// Describe prints probes with their fields. Then it prints what they share: the common fields and the names of enums.
func Describe(out io.Writer, found []*event.Probe) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, p := range found {
		fmt.Fprintf(w, "%v: %s\n", p, p.Doc)
		describeFields(w, p.Fields, false)
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "Every event has also:")
	describeFields(w, found[0].Fields, true)
	fmt.Fprintln(w, "\nPrograms and --fields may also name what the cgroup runs:")
	describeFields(w, found[0].Workload, true)
	fmt.Fprintf(w, describeMarks, wholeFormats())
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range enums(found) {
		which := "one"
		if e.Flags {
			which = "any"
		}
		fmt.Fprintf(out, "\n%s is %s of:\n%s", e.Name, which, wrap(e.Names, 100))
	}
	return nil
}

// wholeFormats lists the formats with all fields, as the end of a list.
func wholeFormats() string {
	var whole []string
	for _, t := range formats() {
		if t.whole {
			whole = append(whole, "-f "+string(t.name))
		}
	}
	last := len(whole) - 1
	return ", " + strings.Join(whole[:last], ", ") + " and " + whole[last]
}

// describeMarks explains the marks beside the names of fields.
const describeMarks = `
Fields with a ? after the type may be absent.
A line of text leaves out details that are 0 or false, fields with their usual value, fields that replace another one which is present,
and fields marked -v. -v, --fields%s leave out nothing.
`

// describeFields prints the common fields, or the others, as a table.
func describeFields(w io.Writer, fields []*event.Field, common bool) {
	for _, f := range fields {
		if f.Common != common {
			continue
		}
		fmt.Fprintf(w, "    %s\t%s\t%s\t%s\t%s\n", f.Name, typeName(f), unitName(f.Type), f.Line, f.Doc)
	}
}

// typeName returns the type of a field for users, marked if the field may be absent.
func typeName(f *event.Field) string {
	name := valueType(f.Type)
	if f.Optional {
		name += "?"
	}
	return name
}

func valueType(t event.Type) string {
	if t.Enum != nil && t.Kind != event.String {
		return t.Enum.Name
	}
	switch t.Kind {
	case event.Int:
		return fmt.Sprintf("int%d", t.Size*8)
	case event.Uint:
		return fmt.Sprintf("uint%d", t.Size*8)
	case event.Bool:
		return "bool"
	case event.GID:
		if t.Unit == event.IP {
			return "address"
		}
		return "gid"
	default:
		return "string"
	}
}

// unitName returns what a number counts or means.
func unitName(t event.Type) string {
	if t.Enum != nil && t.Enum.Flags {
		return "flags"
	}
	switch t.Unit {
	case event.Nanoseconds:
		return "ns"
	case event.Bytes:
		return "bytes"
	case event.Errno:
		return "errno"
	case event.Cgroup:
		return "cgroup"
	case event.Hex:
		return "hex"
	default:
		return "-"
	}
}

// enums returns the enums of the fields of found, each once, by name.
func enums(found []*event.Probe) []*event.Enum {
	seen := map[string]*event.Enum{}
	for _, p := range found {
		for _, f := range p.Fields {
			if e := f.Type.Enum; e != nil && len(e.Names) > 0 {
				seen[e.Name] = e
			}
		}
	}
	return slices.SortedFunc(maps.Values(seen), func(a, b *event.Enum) int { return strings.Compare(a.Name, b.Name) })
}

// wrap formats words as indented lines of at most width columns.
func wrap(words []string, width int) string {
	var b strings.Builder
	column := width
	for _, word := range words {
		if column+1+len(word) > width {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString("   ")
			column = 3
		}
		b.WriteString(" " + word)
		column += 1 + len(word)
	}
	b.WriteByte('\n')
	return b.String()
}

// DescribeEnum writes the names of an enum with their values.
func DescribeEnum(out io.Writer, e *event.Enum) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "enum %s\n", e.Name)
	for i, name := range e.Names {
		fmt.Fprintf(w, "    %s\t%d\n", name, e.Values[i])
	}
	return w.Flush()
}
