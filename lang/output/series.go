package output

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"trace/lang/format"
	"trace/lang/result"
)

// This file draws time series like bpftrace: a line for each interval, with its value as a star between the least and the largest
// value.

// seriesWidth is the width of the plot, and axisText the width of the least value above it.
const (
	seriesWidth = 53
	axisText    = 21
)

// timeDigits is how many digits of a second tell intervals apart, and the name of the unit.
func timeDigits(interval uint64) (digits int, unit string) {
	switch {
	case interval >= uint64(time.Second):
		return 0, ""
	case interval >= uint64(time.Millisecond):
		return 3, ".ms"
	case interval >= uint64(time.Microsecond):
		return 6, ".μs"
	}
	return 9, ".ns"
}

func appendSeries(b []byte, s result.Series) []byte {
	points := s.All()
	if len(points) == 0 {
		return append(b, "<no data>"...)
	}
	least, most := seriesBounds(points)
	interval := s.Interval
	if len(points) == 1 {
		interval = 0 // bpftrace cannot know it then
	}
	digits, unit := timeDigits(interval)
	width := len("hh:mm:ss")
	if digits > 0 {
		width += 1 + digits
	}
	axis := func() {
		lo := string(appendNumber(nil, result.Number{Type: s.Type, V: least}))
		hi := string(appendNumber(nil, result.Number{Type: s.Type, V: most}))
		b = fmt.Appendf(b, "%*s%-*s%*s\n", width+1, "", axisText, lo, seriesWidth-axisText, hi)
	}
	axis()
	head := "hh:mm:ss" + unit
	b = fmt.Appendf(b, "%s%*s|%s|\n", head, max(width+1-len(head), 0), "", strings.Repeat("_", seriesWidth-2))
	zero := 0
	if below, above := between(least, int64(0)), between(int64(0), most); below > 0 && above > 0 {
		zero = int(float32(seriesWidth) * float32(below) / float32(between(least, most)))
	}
	for _, p := range points {
		b = appendTimeOfDay(b, s.Time(p), digits)
		line := []byte("|" + strings.Repeat(" ", seriesWidth-2) + "|")
		if zero > 0 {
			line[zero] = '.'
		}
		text := []byte("-")
		if p.Value != nil {
			at := int(float32(seriesWidth-1) * float32(between(least, p.Value)) / float32(between(least, most)))
			line[max(0, min(seriesWidth-1, at))] = '*'
			text = appendNumber(nil, result.Number{Type: s.Type, V: p.Value})
		}
		b = append(append(append(append(append(b, ' '), line...), ' '), text...), '\n')
	}
	b = fmt.Appendf(b, "%*s v%sv\n", width, "", strings.Repeat("_", seriesWidth-2))
	axis()
	return b
}

func appendTimeOfDay(b []byte, t time.Time, digits int) []byte {
	b = t.AppendFormat(b, "15:04:05")
	if digits == 0 {
		return b
	}
	return append(append(b, '.'), fmt.Sprintf("%09d", t.Nanosecond())[:digits]...)
}

// seriesBounds returns the least and the largest value. If they are the same, the bounds are one beside, so that the plot has a width.
func seriesBounds(points []result.Point) (least, most any) {
	least, most = points[0].Value, points[0].Value
	for _, p := range points {
		switch {
		case p.Value == nil:
		case between(p.Value, least) > 0:
			least = p.Value
		case between(most, p.Value) > 0:
			most = p.Value
		}
	}
	if between(least, most) != 0 {
		return least, most
	}
	if x, signed := least.(int64); signed {
		return max(x, math.MinInt64+1) - 1, min(x, math.MaxInt64-1) + 1
	}
	x := least.(uint64)
	return max(x, 1) - 1, min(x, math.MaxUint64-1) + 1
}

// between returns how far b is above a.
func between(a, b any) float64 {
	d, _ := new(big.Float).SetInt(new(big.Int).Sub(bigOf(b), bigOf(a))).Float64()
	return d
}

func bigOf(v any) *big.Int {
	if n, ok := v.(int64); ok {
		return big.NewInt(n)
	}
	return new(big.Int).SetUint64(v.(uint64))
}

// appendSeriesJSON appends the intervals that have a value. number writes a value.
func appendSeriesJSON(b []byte, s result.Series, start string, value func(b []byte, v any) []byte) []byte {
	b = append(b, '[')
	first := true
	for _, p := range s.All() {
		if p.Value == nil {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = fmt.Appendf(b, `{%q:"%s","value":`, start, s.Time(p).Format("2006-01-02 15:04:05.000000000"))
		b = append(value(b, p.Value), '}')
	}
	return append(b, ']')
}

// seriesRows are the intervals that have a value, for CSV.
func seriesRows(s result.Series) (rows [][]string) {
	for _, p := range s.All() {
		if p.Value != nil {
			rows = append(rows, []string{s.Time(p).Format(time.RFC3339Nano), string(format.AppendNumber(nil, p.Value))})
		}
	}
	return rows
}
