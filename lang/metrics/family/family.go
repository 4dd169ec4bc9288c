// Package family makes families of metrics from what the maps of a program hold. It depends on no library of metrics: package
// trace/lang/metrics makes a collector of client_golang from its families, also in a process that received them.
//
//	Snapshot     what a run holds at a moment
//	Exporter     snapshot -> families: names, units, labels, a bound for the series, sums that never fall
//	Family       a name, and its series: plain data
package family

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Kind is what the values of a family mean.
type Kind uint8

const (
	// Counter only grows.
	Counter Kind = iota
	// Gauge goes up and down.
	Gauge
	// Summary is a number of values, and their sum.
	Summary
	// Distribution is a histogram.
	Distribution
)

// String returns the name of the kind in Prometheus.
func (k Kind) String() string { return [...]string{"counter", "gauge", "summary", "histogram"}[k] }

// Family is a metric with all its series.
type Family struct {
	// Name is the whole name, like trace_nvme_latency_seconds.
	Name, Help string
	Kind       Kind
	// Unit is "seconds", "bytes", or "". Values are in it.
	Unit string
	// Labels are the names of the labels.
	Labels []string
	Series []Series
}

// ByName returns the indexes of the labels in the order of their names.
func (f *Family) ByName() []int {
	all := make([]int, len(f.Labels))
	for i := range all {
		all[i] = i
	}
	slices.SortFunc(all, func(a, b int) int { return strings.Compare(f.Labels[a], f.Labels[b]) })
	return all
}

// Series is the value for some values of the labels.
type Series struct {
	// Labels are the values, in the order of the family's labels.
	Labels []string
	// Overflow reports that it has everything that has no series of its own. Each of its labels is [Other].
	Overflow bool
	// Created is when a value that only grows was 0.
	Created time.Time
	// Value is the value of a counter or a gauge, and the sum of a summary.
	Value float64
	// Count is the number of values of a summary or a distribution.
	Count uint64
	// Buckets are the buckets of a distribution.
	Buckets *Buckets
}

// Join returns families of several programs. Those with the same name become one.
func Join(programs ...[]Family) []Family {
	var all []Family
	for _, f := range slices.Concat(programs...) {
		i := slices.IndexFunc(all, func(g Family) bool { return g.Name == f.Name && slices.Equal(g.Labels, f.Labels) })
		if i < 0 {
			all = append(all, f)
			continue
		}
		all[i].Series = slices.Concat(all[i].Series, f.Series)
	}
	return all
}

// Other is the value of the labels of the series that has everything that has no series of its own.
const Other = "other"

// Buckets are the buckets of a distribution, twice: as the map has them, and as native buckets.
type Buckets struct {
	// Classic count the values up to, and including, a bound. The last one, without a bound, is the count of the series.
	Classic []ClassicBucket
	// HasNative reports that there are native buckets. Their bounds are powers of 2 to the power of 2^-Schema. A value is at most 3.1 % away from
	// the bucket that it is in, if Schema is 3.
	HasNative bool
	Schema    int32
	// Zero counts the values that are 0, Positive and Negative the others, in ascending order of the index.
	Zero               uint64
	Positive, Negative []NativeBucket
	// Exemplars are events that values came from, at most one for each classic bucket, in ascending order.
	Exemplars []Exemplar
}

// ExemplarLabel is the label of an exemplar, with its thread.
const ExemplarLabel = "tid"

// Exemplar is an event that a value came from: its thread and its time. The value is known as exactly as the map's bucket is narrow.
type Exemplar struct {
	Value float64
	TID   uint32
	Time  time.Time
}

// ClassicBucket counts the values that are at most Upper.
type ClassicBucket struct {
	Upper float64
	Count uint64
}

// NativeBucket counts values whose absolute value is above 2^((Index-1)/2^Schema) and at most 2^(Index/2^Schema).
type NativeBucket struct {
	Index int32
	Count uint64
}

// UnknownSum is the sum of a distribution: the kernel keeps no sum beside the buckets.
func UnknownSum() float64 { return math.NaN() }
