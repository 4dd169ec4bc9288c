package docs

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Width is how many columns the text of a topic has. A line of code may be longer.
const Width = 100

var (
	image    = regexp.MustCompile(`!\[([^\]]*)\]\([^)]*\)`)
	topicRef = regexp.MustCompile(`\[([\w-]+)\.md\]\(([\w-]+)\.md\)`)
	link     = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
)

// Plain returns a document for a terminal: code is indented, tables are aligned, and links name their topic.
func (t Topic) Plain() string {
	var out strings.Builder
	var table [][]string
	fenced := false
	for line := range strings.Lines(t.Text) {
		line = strings.TrimRight(line, "\n")
		if cells, ok := strings.CutPrefix(line, "| "); ok && !fenced {
			table = append(table, splitRow(cells))
			continue
		}
		if strings.HasPrefix(line, "|--") && !fenced {
			continue
		}
		writeTable(&out, table)
		table = nil
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced && line != "":
			fmt.Fprintf(&out, "    %s\n", line)
		case image.MatchString(line): // a terminal has none
		default:
			fmt.Fprintln(&out, plainLine(line))
		}
	}
	writeTable(&out, table)
	return out.String()
}

// plainLine removes marks that only a browser can show.
func plainLine(line string) string {
	line = topicRef.ReplaceAllString(line, "trace help $1")
	line = link.ReplaceAllString(line, "$1")
	return strings.ReplaceAll(line, "**", "")
}

// splitRow returns the cells of a table's row, without its first bar.
func splitRow(row string) []string {
	row = strings.TrimSuffix(strings.TrimSpace(row), "|")
	var cells []string
	for cell := range strings.SplitSeq(row, " | ") {
		cells = append(cells, plainLine(strings.TrimSpace(cell)))
	}
	return cells
}

// writeTable aligns the columns of a table. The last one is wrapped where it would leave the width.
func writeTable(out *strings.Builder, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	last := len(rows[0]) - 1
	widths := make([]int, last)
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	indent := 4
	for i := range widths {
		widths[i] = min(widths[i], 40)
		indent += widths[i] + 2
	}
	for _, row := range rows {
		line := "    "
		for i, width := range widths {
			line += row[i] + strings.Repeat(" ", max(width-utf8.RuneCountInString(row[i]), 0)+2)
		}
		if utf8.RuneCountInString(line) > indent { // a long cell has a line of its own
			fmt.Fprintln(out, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", indent)
		}
		for i, part := range Wrap(row[last], Width-indent) {
			if i > 0 {
				line = strings.Repeat(" ", indent)
			}
			fmt.Fprintln(out, strings.TrimRight(line+part, " "))
		}
	}
}

// Wrap breaks text into lines of at most so many columns, at blanks.
func Wrap(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		line := &lines[len(lines)-1]
		switch {
		case *line == "":
			*line = word
		case utf8.RuneCountInString(*line)+1+utf8.RuneCountInString(word) <= width:
			*line += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
