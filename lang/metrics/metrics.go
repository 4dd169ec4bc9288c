// Package metrics makes collectors of client_golang from the maps of running programs. Only who imports it links client_golang.
//
//	collector, err := metrics.New(run, family.Config{Program: "nvme"})
//	registry.MustRegister(collector)
//
// Package family, below it, decides what is a metric and under which name. [Gatherer] serves families that came from another process.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trace/lang/metrics/family"
)

// Source is what holds maps: a [trace.Run].
type Source interface {
	Snapshot() (family.Snapshot, error)
}

// New returns a collector of a run's maps and of what is known of the run. It fails if a map cannot be a metric, with advice for each of them.
func New(s Source, c family.Config) (prometheus.Collector, error) {
	now, err := s.Snapshot()
	if err != nil {
		return nil, err
	}
	e := family.New(c)
	if err := e.Check(now.Tables); err != nil {
		return nil, err
	}
	return collector(func() ([]family.Family, error) { return e.Read(s.Snapshot) }), nil
}

// collector has the families that it returns at each scrape. Its error is the error of the scrape.
type collector func() ([]family.Family, error)

// Describe describes nothing: which metrics there are is known when they are collected.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all series.
func (c collector) Collect(to chan<- prometheus.Metric) {
	all, err := c()
	if err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	for _, f := range all {
		desc := prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		for _, s := range f.Series {
			to <- metric{desc, f.Kind, &s}
		}
	}
}

// metric is a series.
type metric struct {
	desc   *prometheus.Desc
	kind   family.Kind
	series *family.Series
}

// Desc returns the description of the family.
func (m metric) Desc() *prometheus.Desc { return m.desc }

// Write writes the series.
func (m metric) Write(to *dto.Metric) error {
	to.Label = prometheus.MakeLabelPairs(m.desc, m.series.Labels)
	setValue(to, m.kind, m.series, createdAt(m.series.Created))
	return nil
}

// setValue sets the value of a series. A histogram has classic and native buckets: the constant histograms of client_golang have one or the other.
func setValue(to *dto.Metric, k family.Kind, s *family.Series, created *timestamppb.Timestamp) {
	switch k {
	case family.Counter:
		to.Counter = &dto.Counter{Value: &s.Value, CreatedTimestamp: created}
	case family.Gauge:
		to.Gauge = &dto.Gauge{Value: &s.Value}
	case family.Summary:
		to.Summary = &dto.Summary{SampleCount: &s.Count, SampleSum: &s.Value, CreatedTimestamp: created}
	case family.Distribution:
		to.Histogram = histogramOf(s)
		to.Histogram.CreatedTimestamp = created
	}
}

func createdAt(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// zeroThreshold is the width of the bucket of 0, where values are integers: what client_golang uses.
var zeroThreshold = prometheus.DefNativeHistogramZeroThreshold

func histogramOf(s *family.Series) *dto.Histogram {
	h := &dto.Histogram{SampleCount: &s.Count, SampleSum: proto.Float64(family.UnknownSum())}
	for _, b := range s.Buckets.Classic {
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &b.Upper, CumulativeCount: &b.Count})
	}
	addExemplars(h, s)
	if !s.Buckets.HasNative {
		return h
	}
	h.Schema, h.ZeroThreshold, h.ZeroCount = &s.Buckets.Schema, &zeroThreshold, &s.Buckets.Zero
	h.PositiveSpan, h.PositiveDelta = spans(s.Buckets.Positive)
	h.NegativeSpan, h.NegativeDelta = spans(s.Buckets.Negative)
	if s.Count == s.Buckets.Zero { // an empty span distinguishes it from a histogram without native buckets
		h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: proto.Int32(0), Length: proto.Uint32(0)})
	}
	return h
}

// spans returns runs of neighbouring buckets: the distance of each from the one before, its length, and how much each count differs from the one
// before.
func spans(buckets []family.NativeBucket) (runs []*dto.BucketSpan, deltas []int64) {
	var next int32
	var before uint64
	for i, b := range buckets {
		if i == 0 || b.Index != next {
			runs = append(runs, &dto.BucketSpan{Offset: proto.Int32(b.Index - next), Length: proto.Uint32(0)})
		}
		*runs[len(runs)-1].Length++
		deltas = append(deltas, int64(b.Count-before))
		next, before = b.Index+1, b.Count
	}
	return runs, deltas
}
