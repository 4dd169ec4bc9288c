package output

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file writes comma-separated values (RFC 4180). Values are the ones of JSON, without quotes where CSV needs none. An absent
// value is empty. A stack is one cell: its frames from the innermost, separated by semicolons.
//
// A spreadsheet takes a cell that begins with one of = + - @ for a formula, and strings come from outside the program. So such
// strings get an apostrophe in front (OWASP, CSV Injection), and their control characters are escaped. Raw strings are left
// unchanged.
//
// Events are one table. Its columns are the chosen ones, or all fields of all probes whose events the program prints. Its head
// comes before the first event. A value of print() is a row without a head: a cell, or a cell for each element of a tuple or of a
// loop variable. The texts of printf() and time() are not changed. Each printed map is a table of its own, after an empty line if something is above it: its
// name, the elements of the key, and the value; a last column, estimate, is there if numbers are estimates. Histograms have the columns lo, hi and n, and a row for each bucket.

// CSV is a table of events, and one for each map.
const CSV Format = "csv"

// csvForm writes tables. The texts of printf() and time() are text.
type csvForm struct {
	textForm
	// head are the columns of the events. started reports that they are written.
	head    []string
	started bool
}

func newCSVForm(p *pen) form { return &csvForm{textForm: textForm{pen: p}} }

func (p *csvForm) show(printed []*event.Probe) { p.head, p.started = p.columns.tableOf(printed), false }

// tableOf returns the columns of the events of some probes: the chosen ones, or all.
func (c Columns) tableOf(printed []*event.Probe) []string {
	if c.Names != nil {
		return c.Names
	}
	columns := []string{ProbeColumn, TimeColumn}
	for _, probe := range printed {
		for _, f := range probe.Fields {
			if !slices.Contains(columns, f.Name) {
				columns = append(columns, f.Name)
			}
		}
	}
	return columns
}

func (p *csvForm) event(probe *event.Probe, e event.Source) error {
	if !p.started {
		p.started = true
		if err := p.lines(p.head); err != nil {
			return err
		}
	}
	record := make([]string, len(p.head))
	for i, name := range p.head {
		record[i] = p.eventCell(name, probe, e)
	}
	return p.lines(record)
}

func (p *csvForm) eventCell(column string, probe *event.Probe, e event.Source) string {
	switch column {
	case ProbeColumn:
		return probe.String()
	case TimeColumn:
		nsecs := get(e, probe.Field("nsecs"))
		if nsecs == nil {
			return ""
		}
		return p.Clock(nsecs).Format(time.RFC3339Nano)
	}
	f := probe.Field(column)
	if v := get(e, f); v != nil {
		return p.plainValue(f.Type, v)
	}
	return ""
}

func (p *csvForm) value(t event.Type, elems []event.Type, v any, own bool) error {
	if text, ok := v.(string); ok && t.Kind == event.String && own {
		return p.lines([]string{text})
	}
	if formed, is := v.(format.Formed); is {
		v = formed.Values
	}
	all, ok := v.([]any)
	if !ok {
		return p.lines([]string{p.plainValue(t, v)})
	}
	row := make([]string, len(all))
	for i, x := range all {
		row[i] = p.plainValue(elems[min(i, len(elems)-1)], x)
	}
	return p.lines(row)
}

func (p *csvForm) element(t result.Table) error { return p.lines(p.csvValues(t.Rows[0].Value)...) }

// lines writes lines. An empty line would be skipped, so a single empty cell has quotes.
func (p *csvForm) lines(all ...[]string) error {
	var b strings.Builder
	for _, record := range all {
		if len(record) == 1 && record[0] == "" {
			b.WriteString("\"\"\n")
			continue
		}
		w := csv.NewWriter(&b)
		if err := w.Write(record); err != nil {
			return err
		}
		w.Flush() // it writes to a buffer and cannot fail
	}
	p.line = append(p.line[:0], b.String()...)
	return p.flush()
}

// plainValue returns a value for programs: as in JSON, but strings have no quotes.
func (p *csvForm) plainValue(t event.Type, v any) string {
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

// joinFrames joins frames to one text. A semicolon stands only between two frames.
func joinFrames(all format.Frames) string {
	parts := make([]string, len(all))
	for i, f := range all {
		parts[i] = strings.ReplaceAll(f, ";", ":")
	}
	return strings.Join(parts, ";")
}

// cell returns a text from outside the program as a cell.
func (p *csvForm) cell(s string) string {
	if p.raw {
		return s
	}
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		s = "'" + s
	}
	return format.VisibleLine(s)
}

func (p *csvForm) table(t result.Table) error {
	head := []string{"map"}
	for _, c := range t.Key {
		head = append(head, c.Name)
	}
	all := [][]string{slices.Concat(head, csvColumns(t))}
	if t.Ranking != nil {
		all[0] = append(all[0], "error")
	}
	if t.Estimate {
		all[0] = append(all[0], "estimate")
	}
	for _, r := range t.Rows {
		begin := []string{t.Name}
		for i, x := range r.Key {
			begin = append(begin, p.plainValue(t.Key[i].Type, x))
		}
		for _, values := range p.csvValues(r.Value) {
			all = append(all, slices.Concat(begin, values, csvError(t, r.Value), csvEstimate(t)))
		}
	}
	if p.written {
		p.line = append(p.line[:0], '\n')
		if err := p.flush(); err != nil {
			return err
		}
	}
	return p.lines(all...)
}

// csvColumns returns the columns of the values of a map.
func csvColumns(t result.Table) []string {
	switch v := t.Zero.(type) {
	case result.Tuple:
		var names []string
		for i := range v.Elems {
			names = append(names, fmt.Sprintf("value%d", i+1))
		}
		return names
	case result.Histogram:
		return []string{"lo", "hi", "n"}
	case result.Stats:
		return []string{"count", "average", "total"}
	case result.Quantiles:
		names := []string{"count"}
		for _, q := range v.All {
			names = append(names, quantileName(q.P))
		}
		return names
	case result.Rate:
		return []string{"total", "per_second"}
	case result.Series:
		return []string{"start", "value"}
	}
	return []string{cmp.Or(t.Func, "value")}
}

// plainNumber returns a number for programs, or "" if it is absent.
func plainNumber(v any) string {
	if v == nil {
		return ""
	}
	return string(format.AppendNumber(nil, v))
}

// csvValues returns the rows of a value.
func (p *csvForm) csvValues(v result.Value) [][]string {
	switch v := v.(type) {
	case result.Number:
		return [][]string{{p.plainValue(v.Type, v.V)}}
	case result.Tuple:
		row := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			row[i] = p.plainValue(e.Type, e.V)
		}
		return [][]string{row}
	case result.Histogram:
		var rows [][]string
		for i, n := range v.Counts {
			lo, hi := v.Bounds(v.First + i)
			rows = append(rows, []string{plainNumber(lo), plainNumber(hi), strconv.FormatUint(n, 10)})
		}
		return rows
	case result.Stats:
		return [][]string{{strconv.FormatUint(v.Count, 10), plainNumber(v.Average.V), plainNumber(v.Total.V)}}
	case result.Quantiles:
		return [][]string{csvPercentiles(v)}
	case result.Series:
		return seriesRows(v)
	case result.Rate:
		row := []string{plainNumber(v.Total.V), ""}
		if v.Timed {
			row[1] = strconv.FormatFloat(v.PerSecond, 'f', -1, 64)
		}
		return [][]string{row}
	}
	return nil
}

// csvError returns by how much a value of a ranking may be less.
func csvError(t result.Table, v result.Value) []string {
	if n, ok := v.(result.Number); ok && t.Ranking != nil {
		return []string{strconv.FormatUint(n.Error, 10)}
	}
	return nil
}

// csvEstimate returns that numbers of a map are estimates.
func csvEstimate(t result.Table) []string {
	if !t.Estimate {
		return nil
	}
	return []string{"true"}
}

// csvPercentiles writes a value beyond the measured range as a bound with its sign.
func csvPercentiles(v result.Quantiles) []string {
	row := []string{strconv.FormatUint(v.Count, 10)}
	for _, q := range v.All {
		text := plainNumber(q.Value.V)
		switch {
		case q.Below:
			text = "<" + text
		case q.Above:
			text = ">=" + text
		}
		row = append(row, text)
	}
	return row
}
