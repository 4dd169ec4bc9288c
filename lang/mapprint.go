package lang

import (
	"cmp"
	"fmt"
	"math"
	mathbits "math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/probes/event"
)

// This file prints maps. In text they look as in bpftrace: keys in brackets, numbers ascending, histograms as bars.

// mapOptions say how to print a map.
type mapOptions struct {
	// top is how many entries to print, those with the largest values; 0 is all.
	top int64
	// div divides what is printed, as in bpftrace: numbers, which lose their unit by it, but of stats the average alone and of
	// rate not the total; of hist how many values there are; nothing of lhist. 0 is 1.
	div int64
	// by is what orders the lines: "key", "value", or "", which is value for numbers and aggregations and key for the others.
	by string
	// elapsed is the time in which the values came, for rate.
	elapsed time.Duration
}

// Map writes the entries of a map, which it sorts. A map without a key that has no entry is zero.
func (p *Printer) Map(m *mapInfo, entries []entry, o mapOptions) error {
	if len(m.key) == 0 && len(entries) == 0 {
		entries = []entry{m.newEntry(nil)}
	}
	entries = m.sort(entries, o)
	for i, e := range entries {
		entries[i].key, entries[i].value = p.presentableRow(m.key, e.key), p.presentableRow(m.value, e.value)
	}
	switch p.format {
	case JSON:
		return p.mapJSON(m, entries, o)
	case CSV:
		return p.mapCSV(m, entries, o)
	}
	for _, e := range entries {
		p.line = append(p.line[:0], m.name...)
		p.line = m.appendKey(p.line, e.key)
		p.line = append(p.line, ':')
		if m.isHistogram() {
			p.line = append(p.line, '\n')
		} else {
			p.line = append(p.line, ' ')
		}
		p.line = m.appendText(p.line, e, o)
		if err := p.endLine(); err != nil {
			return err
		}
	}
	return nil
}

// Element writes the value of one entry, of print(@m[key]).
func (p *Printer) Element(m *mapInfo, e entry, elapsed time.Duration) error {
	o := mapOptions{elapsed: elapsed}
	e.value = p.presentableRow(m.value, e.value)
	if p.format != JSON {
		p.line = m.appendText(p.line[:0], e, o)
		return p.endLine()
	}
	p.line = append(p.line[:0], `{"type":"value","value":`...)
	p.line = format.AppendUnit(m.appendJSON(p.line, e, o), m.unit(o))
	p.line = append(p.line, '}')
	return p.endLine()
}

func (p *Printer) mapJSON(m *mapInfo, entries []entry, o mapOptions) error {
	p.line = format.AppendJSONString(append(p.line[:0], `{"type":"map","name":`...), m.name)
	if m.agg != nil {
		p.line = format.AppendJSONString(append(p.line, `,"fn":`...), m.fn)
	}
	p.line = append(format.AppendUnit(p.line, m.unit(o)), `,"entries":[`...)
	key := types(m.key)
	for i, e := range entries {
		if i > 0 {
			p.line = append(p.line, ',')
		}
		p.line = format.AppendJSON(append(p.line, `{"key":`...), event.Type{Kind: format.Tuple}, key, e.key)
		p.line = m.appendJSON(append(p.line, `,"value":`...), e, o)
		p.line = append(p.line, '}')
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.line = append(p.line, "]}"...)
	return p.endLine()
}

func (m *mapInfo) isHistogram() bool {
	return m.agg != nil && (m.agg.Func == codegen.Hist || m.agg.Func == codegen.LHist)
}

func types(columns []column) []event.Type {
	list := make([]event.Type, len(columns))
	for i, c := range columns {
		list[i] = c.typ
	}
	return list
}

// sort orders entries and returns those to print.
func (m *mapInfo) sort(entries []entry, o mapOptions) []entry {
	type ranked struct {
		entry
		weight []any
	}
	all := make([]ranked, len(entries))
	for i, e := range entries {
		all[i] = ranked{e, e.value}
		if m.agg != nil {
			all[i].weight = []any{m.number(e.state)}
		}
	}
	byKey := func(a, b ranked) int { return slices.CompareFunc(a.key, b.key, order) }
	byValue := func(a, b ranked) int {
		return cmp.Or(slices.CompareFunc(a.weight, b.weight, order), byKey(a, b))
	}
	if m.agg != nil || event.IsNumber(m.typ()) || o.by != "" {
		slices.SortFunc(all, byValue)
	} else {
		slices.SortFunc(all, byKey)
	}
	if o.top > 0 && o.top < int64(len(all)) {
		all = all[int64(len(all))-o.top:]
	}
	if o.by == "key" {
		slices.SortFunc(all, byKey)
	}
	for i, e := range all {
		entries[i] = e.entry
	}
	return entries[:len(all)]
}

// order compares values for sorting: absent ones come first, false before true.
func order(a, b any) int {
	if a == nil || b == nil {
		return rank(a != nil) - rank(b != nil)
	}
	if a, ok := a.(bool); ok {
		return rank(a) - rank(b.(bool))
	}
	return event.Compare(a, b)
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// number is what the state of an aggregation comes to: what most print, and what all are sorted by. It is nil where there is no value.
func (m *mapInfo) number(state []uint64) any {
	switch m.agg.Func {
	case codegen.Count:
		return state[0]
	case codegen.Sum, codegen.Rate, codegen.Gauge:
		return m.signed(state[0])
	case codegen.Avg, codegen.Stats:
		return m.average(state)
	case codegen.Min, codegen.Max:
		if state[0] == 0 {
			return nil
		}
		return m.signed(state[1])
	}
	return m.agg.Total(state)
}

func (m *mapInfo) average(state []uint64) any {
	n, sum := state[0], state[1]
	switch {
	case n == 0:
		return nil
	case m.agg.Signed:
		return int64(sum) / int64(n)
	}
	return sum / n
}

// signed is a number of the sign of the aggregated values.
func (m *mapInfo) signed(x uint64) any {
	if m.agg.Signed {
		return int64(x)
	}
	return x
}

// typ is the type of the value, or of the numbers that an aggregation prints.
func (m *mapInfo) typ() event.Type {
	if m.isTuple {
		return event.Type{Kind: format.Tuple}
	}
	return m.value[0].typ
}

// unit is that of the numbers that are printed.
func (m *mapInfo) unit(o mapOptions) event.Unit {
	if m.isHistogram() {
		return m.typ().Unit
	}
	return o.typeOf(m.typ()).Unit
}

// divides tells whether values of type t are divided.
func (o mapOptions) divides(t event.Type) bool {
	return o.div > 1 && event.IsNumber(t) && t.Enum == nil
}

// typeOf returns the type of divided values of type t.
func (o mapOptions) typeOf(t event.Type) event.Type {
	if o.divides(t) {
		return event.Type{Kind: t.Kind, Size: 8}
	}
	return t
}

func (o mapOptions) divide(t event.Type, v any) any {
	if v == nil || !o.divides(t) {
		return v
	}
	if i, ok := v.(int64); ok {
		return i / o.div
	}
	return v.(uint64) / uint64(o.div)
}

// scalar returns the value of an entry of a map without aggregation, and its types.
func (m *mapInfo) scalar(e entry, o mapOptions) (t event.Type, elems []event.Type, v any) {
	values := make([]any, len(e.value))
	for i, c := range m.value {
		values[i] = o.divide(c.typ, e.value[i])
		elems = append(elems, o.typeOf(c.typ))
	}
	if m.isTuple {
		return event.Type{Kind: format.Tuple}, elems, values
	}
	return elems[0], nil, values[0]
}

// appendKey appends the key in brackets, or nothing if the map has none.
func (m *mapInfo) appendKey(b []byte, key []any) []byte {
	for i, x := range key {
		if i == 0 {
			b = append(b, '[')
		} else {
			b = append(b, ", "...)
		}
		b = format.Append(b, m.key[i].typ, nil, x)
	}
	if len(key) > 0 {
		b = append(b, ']')
	}
	return b
}

// appendText appends the value of an entry.
func (m *mapInfo) appendText(b []byte, e entry, o mapOptions) []byte {
	if m.agg == nil {
		t, elems, v := m.scalar(e, o)
		return format.Append(b, t, elems, v)
	}
	t := m.typ()
	switch m.agg.Func {
	case codegen.Hist, codegen.LHist:
		return m.appendHistogram(b, e.state, o)
	case codegen.Stats:
		b = strconv.AppendUint(append(b, "count "...), e.state[0], 10)
		b = format.Append(append(b, ", average "...), o.typeOf(t), nil, o.divide(t, m.average(e.state)))
		return format.Append(append(b, ", total "...), t, nil, m.signed(e.state[1]))
	case codegen.Quantile:
		return m.appendQuantiles(b, e.state, o)
	case codegen.Rate:
		return m.appendRate(b, e.state, o)
	}
	return format.Append(b, o.typeOf(t), nil, o.divide(t, m.number(e.state)))
}

// appendJSON appends the value of an entry for programs.
func (m *mapInfo) appendJSON(b []byte, e entry, o mapOptions) []byte {
	if m.agg == nil {
		t, elems, v := m.scalar(e, o)
		return format.AppendJSON(b, t, elems, v)
	}
	t := m.typ()
	switch m.agg.Func {
	case codegen.Hist, codegen.LHist:
		return m.appendHistogramJSON(b, e.state, o)
	case codegen.Stats:
		b = strconv.AppendUint(append(b, `{"count":`...), e.state[0], 10)
		b = format.AppendJSON(append(b, `,"average":`...), o.typeOf(t), nil, o.divide(t, m.average(e.state)))
		b = format.AppendJSON(append(b, `,"total":`...), t, nil, m.signed(e.state[1]))
		return append(b, '}')
	case codegen.Quantile:
		return m.appendQuantilesJSON(b, e.state, o)
	case codegen.Rate:
		return m.appendRateJSON(b, e.state, o)
	}
	return format.AppendJSON(b, o.typeOf(t), nil, o.divide(t, m.number(e.state)))
}

// perSecond is the rate, or false if no time has passed.
func (m *mapInfo) perSecond(state []uint64, o mapOptions) (float64, bool) {
	total := float64(state[0])
	if m.agg.Signed {
		total = float64(int64(state[0]))
	}
	return total / float64(max(o.div, 1)) / o.elapsed.Seconds(), o.elapsed > 0
}

func (m *mapInfo) appendRate(b []byte, state []uint64, o mapOptions) []byte {
	rate, ok := m.perSecond(state, o)
	if !ok {
		return append(b, '-')
	}
	return appendPerSecond(b, rate, m.unit(o))
}

// appendPerSecond appends what comes in a second.
func appendPerSecond(b []byte, rate float64, unit event.Unit) []byte {
	switch unit {
	case event.Nanoseconds:
		b = append(append(b, rateDigits(rate)...), "ns"...)
	case event.Bytes:
		b = appendAboutSize(b, rate)
	default:
		b = append(b, rateDigits(rate)...)
	}
	return append(b, "/s"...)
}

// appendAboutSize appends bytes with about three digits.
func appendAboutSize(b []byte, n float64) []byte {
	unit := "B"
	for _, next := range format.SizeUnits {
		if math.Abs(n) < 1024 {
			break
		}
		n, unit = n/1024, next
	}
	return append(append(b, rateDigits(n)...), unit...)
}

func (m *mapInfo) appendRateJSON(b []byte, state []uint64, o mapOptions) []byte {
	b = format.AppendNumber(append(b, `{"total":`...), m.signed(state[0]))
	b = append(b, `,"per_second":`...)
	if rate, ok := m.perSecond(state, o); ok {
		b = strconv.AppendFloat(b, rate, 'f', -1, 64)
	} else {
		b = append(b, "null"...)
	}
	return append(b, '}')
}

// rateDigits has three digits, and those before the point and one after it: 1234.5 12.3 0.0123.
func rateDigits(x float64) string {
	if math.Abs(x) >= 10 {
		return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// quantileName is like p99.9.
func quantileName(p float64) string { return "p" + strconv.FormatFloat(p, 'f', -1, 64) }

func (m *mapInfo) appendQuantiles(b []byte, state []uint64, o mapOptions) []byte {
	for i, p := range m.percentiles {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, quantileName(p)...), ' ')
		if m.agg.Total(state) == 0 {
			b = append(b, '-')
			continue
		}
		x, below, above := m.agg.Percentile(state, p)
		b = m.appendQuantile(b, x, below, above, o)
	}
	return b
}

// appendQuantile appends a percentile, of which may be known only that it is below or above a bound.
func (m *mapInfo) appendQuantile(b []byte, x uint64, below, above bool, o mapOptions) []byte {
	switch {
	case below:
		b = append(b, '<')
	case above:
		b = append(b, ">="...)
	}
	t := m.typ()
	return format.Append(b, o.typeOf(t), nil, o.divide(t, m.signed(x)))
}

func (m *mapInfo) appendQuantilesJSON(b []byte, state []uint64, o mapOptions) []byte {
	t, total := m.typ(), m.agg.Total(state)
	b = strconv.AppendUint(append(b, `{"count":`...), total, 10)
	for _, p := range m.percentiles {
		b = append(format.AppendJSONString(append(b, ','), quantileName(p)), ':')
		if total == 0 {
			b = append(b, "null"...)
			continue
		}
		x, below, above := m.agg.Percentile(state, p)
		v := o.divide(t, m.signed(x))
		switch {
		case below:
			b = append(format.AppendNumber(append(b, `{"lo":null,"hi":`...), v), '}')
		case above:
			b = append(format.AppendNumber(append(b, `{"lo":`...), v), `,"hi":null}`...)
		default:
			b = format.AppendNumber(b, v)
		}
	}
	return append(b, '}')
}

// buckets returns how many values there are in the buckets from the first that has one to the last, and the index of the first.
func (m *mapInfo) buckets(state []uint64, o mapOptions) (first int, counts []uint64) {
	first = slices.IndexFunc(state, func(n uint64) bool { return n != 0 })
	if first < 0 {
		return 0, nil
	}
	end := len(state)
	for state[end-1] == 0 {
		end--
	}
	counts = slices.Clone(state[first:end])
	if o.div > 1 && m.agg.Func == codegen.Hist {
		for i := range counts {
			counts[i] /= uint64(o.div)
		}
	}
	return first, counts
}

// barWidth is that of the longest bar, in characters.
const barWidth = 52

// appendHistogram appends a line for each bucket. They are bpftrace's to the last space, but columns widen for what does not fit.
func (m *mapInfo) appendHistogram(b []byte, state []uint64, o mapOptions) []byte {
	first, counts := m.buckets(state, o)
	if counts == nil {
		return b
	}
	most := slices.Max(counts)
	labels, longest := make([]string, len(counts)), 0
	for i := range counts {
		labels[i] = m.label(first + i)
		longest = max(longest, len(labels[i]))
	}
	labelWidth, countWidth := columnWidth(16, longest), columnWidth(8, len(strconv.FormatUint(most, 10)))
	for i, n := range counts {
		length := int(float32(n) / float32(max(most, 1)) * barWidth) // bpftrace rounds so
		b = fmt.Appendf(b, "%-*s%*d |%-*s|\n", labelWidth, labels[i], countWidth, n, barWidth, strings.Repeat("@", length))
	}
	return b
}

// columnWidth is the usual width, unless something is longer.
func columnWidth(usual, longest int) int {
	if longest <= usual {
		return usual
	}
	return longest + 1
}

// label is the range of a bucket: [lo, hi), or [lo] if it has one value.
func (m *mapInfo) label(bucket int) string {
	lo, hi, below, above := m.agg.Bounds(bucket)
	switch {
	case below:
		return "(..., " + m.bound(hi, bucket+1) + ")"
	case above:
		return "[" + m.bound(lo, bucket) + ", ...)"
	case hi == lo+1:
		return "[" + m.bound(lo, bucket) + "]"
	}
	return "[" + m.bound(lo, bucket) + ", " + m.bound(hi, bucket+1) + ")"
}

// bound writes x, the lower bound of a bucket, so that it differs from those of the buckets beside it.
func (m *mapInfo) bound(x uint64, bucket int) string {
	v, width := m.signed(x), m.width(bucket)
	switch m.typ().Unit {
	case event.Nanoseconds:
		return string(format.AppendDurationWithin(nil, v, width))
	case event.Bytes:
		return string(format.AppendExactSize(nil, v))
	}
	// As bpftrace does it: hist writes 1K from the bucket on that is 1K wide, and lhist if all are multiples of 1K.
	steps := (mathbits.Len64(width) - 1) / 10
	if m.agg.Func == codegen.LHist {
		steps = 0
		if m.agg.Step%1024 == 0 {
			steps = 2
		}
	}
	return string(appendScaled(nil, v, steps))
}

// width is hi-lo of a bucket, or that of the one before if it is open.
func (m *mapInfo) width(bucket int) uint64 {
	lo, hi, _, above := m.agg.Bounds(bucket)
	if above {
		return m.width(bucket - 1)
	}
	return hi - lo
}

// appendScaled appends a number, divided by 1024 as long as that is exact and at most steps times: 1K 2M 4G.
func appendScaled(b []byte, v any, steps int) []byte {
	b, n := format.AppendSign(b, v)
	i := 0
	for ; i < steps && n != 0 && n%1024 == 0; i++ {
		n /= 1024
	}
	b = strconv.AppendUint(b, n, 10)
	if i > 0 {
		b = append(b, "KMGTPE"[i-1])
	}
	return b
}

func (m *mapInfo) appendHistogramJSON(b []byte, state []uint64, o mapOptions) []byte {
	b = append(b, '[')
	first, counts := m.buckets(state, o)
	for i, n := range counts {
		if i > 0 {
			b = append(b, ',')
		}
		lo, hi, below, above := m.agg.Bounds(first + i)
		b = m.appendBoundJSON(append(b, `{"lo":`...), lo, below)
		b = m.appendBoundJSON(append(b, `,"hi":`...), hi, above)
		b = strconv.AppendUint(append(b, `,"n":`...), n, 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

func (m *mapInfo) appendBoundJSON(b []byte, x uint64, open bool) []byte {
	if open {
		return append(b, "null"...)
	}
	return format.AppendNumber(b, m.signed(x))
}
