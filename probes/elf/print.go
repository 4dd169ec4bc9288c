package elf

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes the object as text. Names in a file may be anything, so control characters are escaped.
func (o *Object) Print(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s, %s", o.File, o.Machine, o.ByteOrder)
	if o.License != "" {
		fmt.Fprintf(&text, ", license %s", o.License)
	}
	text.WriteByte('\n')
	for _, p := range o.Problems {
		fmt.Fprintf(&text, "problem: %s\n", p)
	}
	table(&text, "section\ttype\tsize", o.Sections, func(s Section) string { return fmt.Sprintf("%s\t%s\t%d", s.Name, s.Type, s.Size) })
	table(&text, "program\tsection\ttype\tinstructions\tmaps", o.Programs, func(p Program) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%s", p.Name, p.Section, p.Type, p.Instructions, strings.Join(p.Maps, " "))
	})
	table(&text, "map\ttype\tkey\tvalue\tentries", o.Maps, func(m Map) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d", m.Name, m.Type, sized(m.Key, m.KeySize), sized(m.Value, m.ValueSize), m.MaxEntries)
	})
	table(&text, "variable\ttype\toffset", o.Variables, func(v Member) string { return fmt.Sprintf("%s\t%s\t%d", v.Name, v.Type, v.Offset) })
	if len(o.Types) > 0 {
		fmt.Fprintf(&text, "\n%d types\n", len(o.Types))
	}
	for _, t := range o.Types {
		t.print(&text)
	}
	_, err := io.WriteString(out, visible(text.String()))
	return err
}

// table writes rows with a head, or nothing without rows.
func table[T any](to *strings.Builder, head string, rows []T, line func(T) string) {
	if len(rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\n", head)
	for _, r := range rows {
		fmt.Fprintln(w, strings.NewReplacer("\n", `\n`, "\v", `\v`, "\f", `\f`).Replace(line(r)))
	}
	_ = w.Flush() // a Builder returns no error
}

// sized returns the name of a type, or its size in bytes.
func sized(name string, size uint32) string {
	if name == "" || name == "void" {
		return fmt.Sprintf("%d bytes", size)
	}
	return name
}

// print writes a type, with its members and values below it.
func (t Type) print(to *strings.Builder) {
	fmt.Fprintf(to, "%5d %s", t.ID, strings.TrimSpace(t.Kind+" "+t.Name))
	if t.Of != "" {
		fmt.Fprintf(to, ": %s", t.Of)
	}
	if t.Size > 0 {
		fmt.Fprintf(to, ", size %d", t.Size)
	}
	to.WriteByte('\n')
	for _, m := range t.Members {
		place := strconv.Itoa(int(m.Offset))
		if m.Bits > 0 {
			place += fmt.Sprintf(" bits %d-%d", m.Bit, m.Bit+m.Bits-1)
		}
		fmt.Fprintf(to, "%16s  %s %s\n", place, m.Type, m.Name)
	}
	for _, v := range t.Values {
		fmt.Fprintf(to, "%16d  %s\n", v.Value, v.Name)
	}
}

// visible escapes what a terminal would interpret.
func visible(text string) string {
	var out strings.Builder
	for _, r := range text {
		if r == '\n' || strconv.IsPrint(r) {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\x%02x`, r)
		}
	}
	return out.String()
}
