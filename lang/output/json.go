package output

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file writes JSON: an object on each line, described by schema.json. Output that bpftrace also has uses bpftrace's form, with
// type and data. Everything else stands beside data: names and types of the columns, units, and rows with typed keys and values.
//
// In data all numbers are numbers, as in bpftrace. In events and rows, addresses are strings, and so are numbers that a double
// cannot hold.

// JSON is one object per line.
const JSON Format = "json"

// jsonForm writes JSON.
type jsonForm struct {
	*pen
	objects objects
}

func newJSONForm(p *pen) form { return &jsonForm{p, objects{}} }

func (p *jsonForm) show([]*event.Probe) { clear(p.objects) }

// message begins a line of a type, up to its data.
func (p *jsonForm) message(what string) {
	p.line = append(format.AppendJSONString(append(p.line[:0], `{"type":`...), what), `,"data":`...)
}

// endMessage ends the line.
func (p *jsonForm) endMessage() error {
	p.line = append(p.line, '}')
	return p.endLine()
}

func (p *jsonForm) text(what string, b []byte) error {
	p.message(what)
	p.line = format.AppendJSONString(p.line, string(b))
	return p.endMessage()
}

// count writes how many there are of something, twice, like bpftrace.
func (p *jsonForm) count(what, noun string, n uint64) error {
	p.line = fmt.Appendf(p.line[:0], `{"type":%q,"count":%d,"data":{%q:%[2]d}`, what, n, noun)
	return p.endMessage()
}

// event writes an event: its probe, the time of day, and its fields as data.
func (p *jsonForm) event(probe *event.Probe, e event.Source) error {
	p.line = format.AppendJSONString(append(p.line[:0], `{"type":"event","probe":`...), probe.String())
	p.line = p.appendTimeJSON(append(p.line, `,"time":`...), probe, e)
	p.line = p.objects.append(append(p.line, `,"data":`...), p.columns, probe, e)
	return p.endMessage()
}

func (p *jsonForm) appendTimeJSON(b []byte, probe *event.Probe, e event.Source) []byte {
	nsecs := get(e, probe.Field("nsecs"))
	if nsecs == nil {
		return append(b, "null"...)
	}
	return append(p.Clock(nsecs).AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

func (p *jsonForm) value(t event.Type, elems []event.Type, v any, _ bool) error {
	p.message("value")
	p.line = appendUnit(appendData(p.line, t, elems, v), t.Unit)
	return p.endMessage()
}

func (p *jsonForm) element(t result.Table) error {
	p.message("value")
	p.line = appendUnit(appendResult(p.line, t.Rows[0].Value), t.Unit)
	p.line = appendRow(append(appendEstimate(p.line, t), `,"row":`...), t, t.Rows[0])
	return p.endMessage()
}

func (p *jsonForm) table(t result.Table) error {
	p.message(messageOf(t))
	p.line = append(format.AppendJSONString(append(p.line, '{'), t.Name), ':')
	if len(t.Key) > 0 {
		p.line = append(p.line, '{')
	}
	for i, r := range t.Rows {
		if i > 0 {
			p.line = append(p.line, ',')
		}
		if len(t.Key) > 0 {
			p.line = append(format.AppendJSONString(p.line, keyText(t, r)), ':')
		}
		p.line = appendResult(p.line, r.Value)
		if err := p.flush(); err != nil {
			return err
		}
	}
	if len(t.Key) > 0 {
		p.line = append(p.line, '}')
	}
	p.line = append(p.line, '}')
	if err := p.rows(t); err != nil {
		return err
	}
	return p.endMessage()
}

// messageOf returns the type of the line of a map. bpftrace has the type stats for averages.
func messageOf(t result.Table) string {
	switch v := t.Zero.(type) {
	case result.Histogram:
		return "hist"
	case result.Series:
		return "tseries"
	case result.Stats:
		return "stats"
	case result.Number:
		if v.Mean {
			return "stats"
		}
	}
	return "map"
}

// keyText returns a key as bpftrace writes it: elements separated by commas.
func keyText(t result.Table, r result.Row) string {
	return string(format.KeyStyle.Parts(nil, t.Form, len(r.Key), func(b []byte, i int) []byte {
		return append(b, plainText(t.Key[i].Type, r.Key[i])...)
	}))
}

// plainText returns a value for programs, without quotes.
func plainText(t event.Type, v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case format.Frames:
		return string(format.Append(nil, t, nil, v))
	case string:
		if t.Kind == event.String {
			return v
		}
	}
	if t.Unit == event.Cgroup {
		return string(format.Append(nil, t, nil, v))
	}
	return strings.Trim(string(format.AppendJSONValue(nil, t, v)), `"`)
}

// appendData appends a value like bpftrace: a stack is text, and a cgroup its path.
func appendData(b []byte, t event.Type, elems []event.Type, v any) []byte {
	switch all := v.(type) {
	case nil:
		return append(b, "null"...)
	case format.Formed:
		return format.JSONStyle.Append(b, all.Form, len(all.Values), func(b []byte, i int) []byte { return appendData(b, elems[i], nil, all.Values[i]) })
	case []any:
		b = append(b, '[')
		for i, x := range all {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendData(b, elems[min(i, len(elems)-1)], nil, x)
		}
		return append(b, ']')
	case format.Frames:
		return format.AppendJSONString(b, plainText(t, v))
	}
	if t.Unit == event.Cgroup && t.Enum != nil && t.Enum.NameOf(event.To[int64](v)) != "" {
		return format.AppendJSONString(b, plainText(t, v))
	}
	if t.Unit == event.Cgroup {
		return format.AppendNumber(b, v)
	}
	return format.AppendJSONValue(b, t, v)
}

// appendResult appends a value of a map like bpftrace.
func appendResult(b []byte, v result.Value) []byte {
	switch v := v.(type) {
	case result.Number:
		return appendData(b, v.Type, nil, v.V)
	case result.Tuple:
		types, values := elements(v)
		return appendData(b, event.Type{Kind: format.Tuple}, types, format.Shaped(v.Form, values))
	case result.Histogram:
		return appendHistogramData(b, v)
	case result.Stats:
		b = strconv.AppendUint(append(b, `{"count":`...), v.Count, 10)
		b = appendData(append(b, `,"average":`...), v.Average.Type, nil, v.Average.V)
		b = appendData(append(b, `,"total":`...), v.Total.Type, nil, v.Total.V)
		return append(b, '}')
	case result.Quantiles:
		b = append(b, '{')
		for i, q := range v.All {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(format.AppendJSONString(b, quantileName(q.P)), ':')
			b = appendData(b, q.Value.Type, nil, q.Value.V)
		}
		return append(b, '}')
	case result.Rate:
		return appendFloat(b, v.PerSecond, v.Timed)
	case result.Series:
		return appendSeriesJSON(b, v, "interval_start", func(b []byte, x any) []byte { return appendData(b, v.Type, nil, x) })
	}
	return b
}

// appendFloat appends a number that may be unknown.
func appendFloat(b []byte, x float64, known bool) []byte {
	if !known {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, x, 'f', -1, 64)
}

// appendHistogramData appends buckets like bpftrace: max is the last value of a bucket, and an open side has no bound.
func appendHistogramData(b []byte, h result.Histogram) []byte {
	b = append(b, '[')
	for i, n := range h.Counts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		lo, hi := h.Bounds(h.First + i)
		if lo != nil {
			b = append(format.AppendNumber(append(b, `"min":`...), lo), ',')
		}
		if hi != nil {
			b = append(format.AppendNumber(append(b, `"max":`...), before(hi)), ',')
		}
		b = append(strconv.AppendUint(append(b, `"count":`...), n, 10), '}')
	}
	return append(b, ']')
}

// before returns the number before v.
func before(v any) any {
	switch v := v.(type) {
	case int64:
		return v - 1
	case uint64:
		if v > 0 {
			return v - 1
		}
	}
	return int64(-1)
}

// rows appends what stands beside data: the columns, the unit, and the rows.
func (p *jsonForm) rows(t result.Table) error {
	if t.Func != "" {
		p.line = format.AppendJSONString(append(p.line, `,"func":`...), t.Func)
	}
	p.line = append(appendEstimate(appendUnit(p.line, t.Unit), t), `,"columns":[`...)
	for i, c := range t.Key {
		if i > 0 {
			p.line = append(p.line, ',')
		}
		p.line = format.AppendJSONString(p.line, c.Name)
	}
	p.line = append(p.line, `],"rows":[`...)
	for i, r := range t.Rows {
		if i > 0 {
			p.line = append(p.line, ',')
		}
		p.line = appendRow(p.line, t, r)
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.line = append(p.line, ']')
	return nil
}

// appendEstimate appends that numbers of a map are estimates.
func appendEstimate(b []byte, t result.Table) []byte {
	if !t.Estimate {
		return b
	}
	return append(b, `,"estimate":true`...)
}

// appendRow appends a row: its key, and the members that hold its value.
func appendRow(b []byte, t result.Table, r result.Row) []byte {
	b = append(b, `{"key":[`...)
	for n, v := range r.Key {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendTyped(b, t.Key[n].Type, v)
	}
	b = appendTypedResult(append(b, `],`...), r.Value)
	if n, ok := r.Value.(result.Number); ok && t.Ranking != nil {
		b = appendExact(append(b, `,"error":`...), n.Error)
	}
	return append(b, '}')
}

// appendTypedResult appends the members of a row that hold its value.
func appendTypedResult(b []byte, v result.Value) []byte {
	number := func(b []byte, name string, n result.Number) []byte {
		return appendTyped(append(format.AppendJSONString(b, name), ':'), n.Type, n.V)
	}
	switch v := v.(type) {
	case result.Number:
		return number(b, "value", v)
	case result.Tuple:
		return format.JSONStyle.Append(append(b, `"value":`...), v.Form, len(v.Elems), func(b []byte, i int) []byte {
			return appendTyped(b, v.Elems[i].Type, v.Elems[i].V)
		})
	case result.Histogram:
		return appendBuckets(b, v)
	case result.Stats:
		b = strconv.AppendUint(append(b, `"count":`...), v.Count, 10)
		b = number(append(b, ','), "average", v.Average)
		return number(append(b, ','), "total", v.Total)
	case result.Quantiles:
		return appendQuantileRows(b, v)
	case result.Series:
		return appendSeriesJSON(append(b, `"intervals":`...), v, "start", func(b []byte, x any) []byte { return appendTyped(b, v.Type, x) })
	case result.Rate:
		b = number(b, "total", v.Total)
		return appendFloat(append(b, `,"per_second":`...), v.PerSecond, v.Timed)
	}
	return b
}

// appendBuckets appends buckets lo <= x < hi, from the first to the last one with a value. null is an open side.
func appendBuckets(b []byte, h result.Histogram) []byte {
	b = append(b, `"buckets":[`...)
	for i, n := range h.Counts {
		if i > 0 {
			b = append(b, ',')
		}
		lo, hi := h.Bounds(h.First + i)
		b = appendExact(append(b, `{"lo":`...), lo)
		b = appendExact(append(b, `,"hi":`...), hi)
		b = append(strconv.AppendUint(append(b, `,"n":`...), n, 10), '}')
	}
	return append(b, ']')
}

// appendQuantileRows appends percentiles. Beyond the measured range only a bound is known: less than hi, or lo and more.
func appendQuantileRows(b []byte, v result.Quantiles) []byte {
	b = append(strconv.AppendUint(append(b, `"count":`...), v.Count, 10), `,"quantiles":[`...)
	for i, q := range v.All {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(append(b, `{"p":`...), q.P, 'f', -1, 64)
		switch {
		case q.Below:
			b = appendExact(append(b, `,"lo":null,"hi":`...), q.Value.V)
		case q.Above:
			b = append(appendExact(append(b, `,"lo":`...), q.Value.V), `,"hi":null`...)
		default:
			b = appendExact(append(b, `,"value":`...), q.Value.V)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// maxExact is the largest number up to which a double holds every integer (ECMA-262, Number.MAX_SAFE_INTEGER). Many programs read
// numbers as doubles.
const maxExact = 1<<53 - 1

// appendExact appends an integer, as a string if a double cannot hold it; nil is null.
func appendExact(b []byte, v any) []byte {
	switch n := v.(type) {
	case nil:
		return append(b, "null"...)
	case int64:
		if n > maxExact || n < -maxExact {
			return append(strconv.AppendInt(append(b, '"'), n, 10), '"')
		}
	case uint64:
		if n > maxExact {
			return append(strconv.AppendUint(append(b, '"'), n, 10), '"')
		}
	}
	return format.AppendNumber(b, v)
}

// appendTyped appends a value of an event or a row: addresses are strings like 0xffff888100c0ffee, stacks are lists of frames.
func appendTyped(b []byte, t event.Type, v any) []byte {
	if v == nil {
		return append(b, "null"...)
	}
	if frames, ok := v.(format.Frames); ok {
		return format.AppendJSON(b, t, nil, frames)
	}
	if t.Unit == event.Cgroup || !event.IsNumber(t) || t.Enum != nil && t.Enum.NameOf(event.To[int64](v)) != "" {
		return format.AppendJSONValue(b, t, v)
	}
	if t.Unit == event.Hex && t.Size == 8 {
		return append(strconv.AppendUint(append(b, `"0x`...), event.To[uint64](v), 16), '"')
	}
	return appendExact(b, v)
}

// appendUnit appends the member for the unit of the numbers, if they have one.
func appendUnit(b []byte, u event.Unit) []byte {
	switch u {
	case event.Nanoseconds:
		return append(b, `,"unit":"ns"`...)
	case event.Bytes:
		return append(b, `,"unit":"bytes"`...)
	}
	return b
}

// Schema is the JSON Schema of a line.
//
//go:embed schema.json
var Schema []byte
