package lang

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/probes/event"
)

// This file writes comma-separated values (RFC 4180). Values are those of JSON, without quotes where CSV needs none; what is absent is
// empty. A stack is one cell, its frames from the innermost with semicolons between them.
//
// A spreadsheet takes a cell that begins with one of = + - @ for a formula, and others choose what is in strings: these get an apostrophe in
// front (OWASP, CSV Injection), and their control characters are escapes. Raw strings are left as they are.
//
// Events are one table, whose columns are those chosen, or all fields of all probes whose events the program prints; its head comes before
// the first of them. Each map that is printed is a table of its own, after an empty line: its name, the elements of the key, and the value, of which
// histograms have the columns lo, hi and n, and a row for each bucket.

// csvTable are the columns of the events.
type csvTable struct {
	columns []string
	started bool
}

// tableOf are the columns of the events of a program: the chosen ones, or all.
func (c Columns) tableOf(program *Program) []string {
	if c.Names != nil {
		return c.Names
	}
	columns := []string{probeColumn, timeColumn}
	for _, probe := range program.printed() {
		for _, f := range probe.Fields {
			if !slices.Contains(columns, f.Name) {
				columns = append(columns, f.Name)
			}
		}
	}
	return columns
}

// eventCSV writes an event.
func (p *Printer) eventCSV(probe *event.Probe, e source) error {
	if !p.table.started {
		p.table.started = true
		if err := p.records(p.table.columns); err != nil {
			return err
		}
	}
	record := make([]string, len(p.table.columns))
	for i, name := range p.table.columns {
		record[i] = p.eventCell(name, probe, e)
	}
	return p.records(record)
}

func (p *Printer) eventCell(column string, probe *event.Probe, e source) string {
	switch column {
	case probeColumn:
		return probe.String()
	case timeColumn:
		nsecs := get(e, probe.Field("nsecs"))
		if nsecs == nil {
			return ""
		}
		return p.time(nsecs).Format(time.RFC3339Nano)
	}
	f := probe.Field(column)
	if v := get(e, f); v != nil {
		return p.plainValue(f.Type, v)
	}
	return ""
}

// records writes lines.
func (p *Printer) records(all ...[]string) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	if err := w.WriteAll(all); err != nil {
		return err
	}
	p.line = append(p.line[:0], b.String()...)
	return p.flush()
}

// plainValue is a value for programs: as in JSON, but strings without quotes.
func (p *Printer) plainValue(t event.Type, v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case format.Verbatim:
		return string(v)
	case format.Frames:
		return p.cell(joinFrames(v))
	case string:
		if t.Kind == event.String {
			return p.cell(v)
		}
	}
	return strings.Trim(string(format.AppendJSONValue(nil, t, v)), `"`)
}

// joinFrames makes one text of frames, in which a semicolon stands between two of them alone.
func joinFrames(all format.Frames) string {
	parts := make([]string, len(all))
	for i, f := range all {
		parts[i] = strings.ReplaceAll(f, ";", ":")
	}
	return strings.Join(parts, ";")
}

// cell is a text that others chose.
func (p *Printer) cell(s string) string {
	if p.raw {
		return s
	}
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		s = "'" + s
	}
	return format.VisibleLine(s)
}

// mapCSV writes the table of a map.
func (p *Printer) mapCSV(m *mapInfo, entries []entry, o mapOptions) error {
	head := []string{"map"}
	for i := range m.key {
		head = append(head, fmt.Sprintf("key%d", i+1))
	}
	all := [][]string{slices.Concat(head, m.csvColumns())}
	for _, e := range entries {
		begin := []string{m.name}
		for i, x := range e.key {
			begin = append(begin, p.plainValue(m.key[i].typ, x))
		}
		for _, values := range p.csvValues(m, e, o) {
			all = append(all, slices.Concat(begin, values))
		}
	}
	p.line = append(p.line[:0], '\n')
	if err := p.flush(); err != nil {
		return err
	}
	return p.records(all...)
}

// csvColumns are the columns of the value of a map.
func (m *mapInfo) csvColumns() []string {
	switch {
	case m.isTuple:
		var names []string
		for i := range m.value {
			names = append(names, fmt.Sprintf("value%d", i+1))
		}
		return names
	case m.agg == nil:
		return []string{"value"}
	}
	switch m.agg.Func {
	case codegen.Hist, codegen.LHist:
		return []string{"lo", "hi", "n"}
	case codegen.Stats:
		return []string{"count", "average", "total"}
	case codegen.Quantile:
		names := []string{"count"}
		for _, q := range m.percentiles {
			names = append(names, quantileName(q))
		}
		return names
	case codegen.Rate:
		return []string{"total", "per_second"}
	}
	return []string{m.fn}
}

// csvValues are the rows of an entry.
func (p *Printer) csvValues(m *mapInfo, e entry, o mapOptions) [][]string {
	number := func(v any) string {
		if v == nil {
			return ""
		}
		return string(format.AppendNumber(nil, v))
	}
	if m.agg == nil {
		_, types, v := m.scalar(e, o)
		if !m.isTuple {
			return [][]string{{p.plainValue(m.value[0].typ, v)}}
		}
		var row []string
		for i, x := range v.([]any) {
			row = append(row, p.plainValue(types[i], x))
		}
		return [][]string{row}
	}
	t := m.typ()
	switch m.agg.Func {
	case codegen.Hist, codegen.LHist:
		return m.csvBuckets(e, o)
	case codegen.Stats:
		return [][]string{{number(e.state[0]), number(o.divide(t, m.average(e.state))), number(m.signed(e.state[1]))}}
	case codegen.Quantile:
		return [][]string{m.csvPercentiles(e, o)}
	case codegen.Rate:
		perSecond := ""
		if rate, ok := m.perSecond(e.state, o); ok {
			perSecond = strconv.FormatFloat(rate, 'f', -1, 64)
		}
		return [][]string{{number(m.signed(e.state[0])), perSecond}}
	}
	return [][]string{{p.plainValue(o.typeOf(t), o.divide(t, m.number(e.state)))}}
}

func (m *mapInfo) csvBuckets(e entry, o mapOptions) (rows [][]string) {
	first, counts := m.buckets(e.state, o)
	for i, n := range counts {
		lo, hi, below, above := m.agg.Bounds(first + i)
		row := []string{"", "", strconv.FormatUint(n, 10)}
		if !below {
			row[0] = string(format.AppendNumber(nil, m.signed(lo)))
		}
		if !above {
			row[1] = string(format.AppendNumber(nil, m.signed(hi)))
		}
		rows = append(rows, row)
	}
	return rows
}

// csvPercentiles writes what lies beyond the measured as a bound with its sign.
func (m *mapInfo) csvPercentiles(e entry, o mapOptions) []string {
	total := m.agg.Total(e.state)
	row := []string{strconv.FormatUint(total, 10)}
	for _, q := range m.percentiles {
		if total == 0 {
			row = append(row, "")
			continue
		}
		x, below, above := m.agg.Percentile(e.state, q)
		text := string(format.AppendNumber(nil, o.divide(m.typ(), m.signed(x))))
		switch {
		case below:
			text = "<" + text
		case above:
			text = ">=" + text
		}
		row = append(row, text)
	}
	return row
}
