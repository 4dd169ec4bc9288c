package output

import (
	"math"
	"strings"
	"testing"

	"trace/lang/result"
	"trace/probes/event"
)

// TestSeries compares plots with bpftrace's.
func TestSeries(t *testing.T) {
	number := event.Type{Kind: event.Int, Size: 8}
	edge := "|___________________________________________________|"
	for _, test := range []struct {
		s    result.Series
		want []string
	}{
		{result.Series{Interval: 1e8, N: 5, Last: 9, Type: number, Points: []result.Point{{Epoch: 5, Value: int64(-2)}, {Epoch: 6, Value: int64(3)}, {Epoch: 9, Value: int64(0)}}}, []string{
			"             -2                                                  3",
			"hh:mm:ss.ms  " + edge,
			"00:00:00.500 *                    .                              | -2",
			"00:00:00.600 |                    .                              * 3",
			"00:00:00.700 |                    .                              | -",
			"00:00:00.800 |                    .                              | -",
			"00:00:00.900 |                   *.                              | 0",
			"             v___________________________________________________v",
			"             -2                                                  3", "",
		}},
		{result.Series{Interval: 2e9, N: 5, Last: 2, Type: number, Points: []result.Point{{Epoch: 1, Value: int64(9)}, {Epoch: 2, Value: int64(9)}}}, []string{
			"         8                                                  10",
			"hh:mm:ss " + edge,
			"00:00:02 |                         *                         | 9",
			"00:00:04 |                         *                         | 9",
			"         v___________________________________________________v",
			"         8                                                  10", "",
		}},
		{result.Series{Interval: 1, N: 5, Last: math.MaxUint64, Points: []result.Point{{Epoch: 1, Value: uint64(0)}}}, []string{"<no data>"}},
	} {
		test.s.Points = append([]result.Point(nil), test.s.Points...)
		if got, want := string(appendSeries(nil, test.s)), strings.Join(test.want, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// TestSeriesBounds draws the extreme numbers within the plot.
func TestSeriesBounds(t *testing.T) {
	for _, values := range [][]any{{uint64(0)}, {uint64(math.MaxUint64)}, {int64(math.MinInt64)}, {int64(math.MaxInt64)}, {int64(math.MinInt64), int64(math.MaxInt64)}, {uint64(0), uint64(math.MaxUint64)}} {
		s := result.Series{Interval: 1, N: 9, Last: uint64(len(values)) - 1}
		for i, v := range values {
			s.Points = append(s.Points, result.Point{Epoch: uint64(i), Value: v})
		}
		if got := string(appendSeries(nil, s)); strings.Count(got, "*") != len(values) {
			t.Errorf("%v:\n%s", values, got)
		}
	}
}
