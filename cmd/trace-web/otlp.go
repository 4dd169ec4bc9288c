package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"

	"trace/lang/metrics/family"
	"trace/lang/serve/wire"
)

// exporter sends metrics and events by OTLP over HTTP (opentelemetry.io/docs/specs/otlp): protobuf, with gzip. The SDK is not used: it wants to
// aggregate itself, and would double the size of the binary. MetricsData and LogsData are, on the wire, the requests of the protocol.
type exporter struct {
	server *server
	otlp   *wire.OTLP
	client http.Client
	log    *slog.Logger
	// sent and lost count events; failed counts requests.
	sent, lost, failed atomic.Uint64
}

// sendTime is how long a receiver may take for a request.
const sendTime = 10 * time.Second

func newExporter(s *server, log *slog.Logger) *exporter {
	return &exporter{server: s, otlp: s.settings.OTLP, client: http.Client{Timeout: sendTime, CheckRedirect: stay}, log: log}
}

// metrics sends the metrics at each interval until ctx ends. A request that failed is not kept: the next one has larger counts.
func (x *exporter) metrics(ctx context.Context) error {
	tick := time.NewTicker(x.otlp.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		families, err := x.server.families(ctx)
		if err == nil {
			_, err = x.post(ctx, "/v1/metrics", x.metricsOf(families, time.Now()))
		}
		if err != nil && ctx.Err() == nil {
			x.log.Warn("metrics are not sent: " + err.Error())
		}
	}
}

// maxBatches is how many batches of events wait for a receiver that does not answer.
const maxBatches = 64

// events sends events until ctx ends.
func (x *exporter) events(ctx context.Context) error {
	batches := make(chan []wire.Event, maxBatches)
	go func() {
		for ctx.Err() == nil {
			x.server.loader.Events(ctx, func(e []wire.Event) error {
				select {
				case batches <- e:
				default:
					x.lost.Add(uint64(len(e)))
				}
				return nil
			})
			pause(ctx, time.Second)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			x.leave(batches)
			return nil
		case e := <-batches:
			x.deliver(ctx, e)
		}
	}
}

// leave counts the events that wait at the end, and reports how many they are: the counters end, too.
func (x *exporter) leave(batches <-chan []wire.Event) {
	left := 0
	for len(batches) > 0 {
		left += len(<-batches)
	}
	if x.lost.Add(uint64(left)); left > 0 {
		x.log.Warn(fmt.Sprintf("%d events are lost: they waited for %s as trace-web ended", left, x.otlp.Endpoint))
	}
}

// attempts are how often a batch is sent, with a pause that doubles between them: about a minute in all.
const attempts = 7

func (x *exporter) deliver(ctx context.Context, events []wire.Event) {
	for _, e := range events {
		x.lost.Add(e.Lost)
	}
	wait := time.Second
	for range attempts {
		refused, err := x.post(ctx, "/v1/logs", x.logsOf(events))
		if err == nil {
			refused = min(refused, uint64(len(events)))
			x.sent.Add(uint64(len(events)) - refused)
			x.lost.Add(refused)
			return
		}
		x.log.Warn("events are not sent: " + err.Error())
		if errors.Is(err, errElsewhere) {
			break // and so will be the next time
		}
		pause(ctx, wait)
		if wait *= 2; ctx.Err() != nil {
			break
		}
	}
	x.lost.Add(uint64(len(events)))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// families returns the metrics about the exporter itself.
func (x *exporter) families() []family.Family {
	return []family.Family{
		counter(wire.OTLPEvents, "Events that an OTLP receiver has taken.", x.sent.Load()),
		counter(wire.OTLPLost, "Events that no OTLP receiver has taken in time.", x.lost.Load()),
		counter(wire.OTLPFailed, "Requests that an OTLP receiver has not answered with success.", x.failed.Load()),
	}
}

func counter(name, help string, n uint64) family.Family {
	return family.Family{Name: name, Help: help, Kind: family.Counter, Series: []family.Series{{Value: float64(n)}}}
}

// resource describes this host. Receivers take the services of two hosts for one unless their instances differ.
func (x *exporter) resource() *resourcepb.Resource {
	return &resourcepb.Resource{Attributes: []*commonpb.KeyValue{
		text("service.name", "trace"), text("service.instance.id", x.server.settings.Host), text("service.version", x.server.settings.Version), text("host.name", x.server.settings.Host),
	}}
}

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// scope is what makes metrics and events.
var scope = &commonpb.InstrumentationScope{Name: "trace"}

// metricsOf returns families in the form of OTLP. The values are cumulative.
func (x *exporter) metricsOf(families []family.Family, now time.Time) *metricspb.MetricsData {
	var all []*metricspb.Metric
	for _, f := range families {
		all = append(all, metricOf(f, now))
	}
	return &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: x.resource(), ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: scope, Metrics: all}},
	}}}
}

// otlpUnits are the units in UCUM, as OTLP writes them.
var otlpUnits = map[string]string{"seconds": "s", "bytes": "By"}

func metricOf(f family.Family, now time.Time) *metricspb.Metric {
	m := &metricspb.Metric{Name: f.Name, Description: f.Help, Unit: otlpUnits[f.Unit]}
	const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	switch f.Kind {
	case family.Counter:
		m.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{AggregationTemporality: cumulative, IsMonotonic: true, DataPoints: numbers(f, now)}}
	case family.Gauge:
		m.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: numbers(f, now)}}
	case family.Summary:
		m.Data = &metricspb.Metric_Summary{Summary: &metricspb.Summary{DataPoints: summaries(f, now)}}
	case family.Distribution:
		if native(f) {
			m.Data = &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: &metricspb.ExponentialHistogram{
				AggregationTemporality: cumulative, DataPoints: exponentials(f, now),
			}}
			break
		}
		m.Data = &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{AggregationTemporality: cumulative, DataPoints: histograms(f, now)}}
	}
	return m
}

func native(f family.Family) bool {
	return !slices.ContainsFunc(f.Series, func(s family.Series) bool { return !s.Buckets.HasNative })
}

// attributes are the labels of a series. The series of what has none of its own is marked as the SDKs do.
func attributes(f family.Family, s family.Series) (all []*commonpb.KeyValue) {
	for i, label := range f.Labels {
		all = append(all, text(label, s.Labels[i]))
	}
	if s.Overflow {
		all = append(all, &commonpb.KeyValue{Key: "otel.metric.overflow", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}})
	}
	return all
}

func nanos(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixNano())
}

func numbers(f family.Family, now time.Time) (all []*metricspb.NumberDataPoint) {
	for _, s := range f.Series {
		all = append(all, &metricspb.NumberDataPoint{
			Attributes: attributes(f, s), StartTimeUnixNano: nanos(s.Created), TimeUnixNano: nanos(now), Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: s.Value},
		})
	}
	return all
}

func summaries(f family.Family, now time.Time) (all []*metricspb.SummaryDataPoint) {
	for _, s := range f.Series {
		all = append(all, &metricspb.SummaryDataPoint{
			Attributes: attributes(f, s), StartTimeUnixNano: nanos(s.Created), TimeUnixNano: nanos(now), Count: s.Count, Sum: s.Value,
		})
	}
	return all
}

// histograms have counts per bucket, where ours count all up to a bound.
func histograms(f family.Family, now time.Time) (all []*metricspb.HistogramDataPoint) {
	for _, s := range f.Series {
		p := &metricspb.HistogramDataPoint{Attributes: attributes(f, s), StartTimeUnixNano: nanos(s.Created), TimeUnixNano: nanos(now), Count: s.Count}
		below := uint64(0)
		for _, b := range s.Buckets.Classic {
			p.ExplicitBounds, p.BucketCounts = append(p.ExplicitBounds, b.Upper), append(p.BucketCounts, b.Count-below)
			below = b.Count
		}
		p.BucketCounts = append(p.BucketCounts, s.Count-below)
		p.Exemplars = exemplars(s)
		all = append(all, p)
	}
	return all
}

func exponentials(f family.Family, now time.Time) (all []*metricspb.ExponentialHistogramDataPoint) {
	for _, s := range f.Series {
		all = append(all, &metricspb.ExponentialHistogramDataPoint{
			Attributes: attributes(f, s), StartTimeUnixNano: nanos(s.Created), TimeUnixNano: nanos(now), Count: s.Count, Scale: s.Buckets.Schema, ZeroCount: s.Buckets.Zero,
			Positive: dense(s.Buckets.Positive), Negative: dense(s.Buckets.Negative), Exemplars: exemplars(s),
		})
	}
	return all
}

func exemplars(s family.Series) (all []*metricspb.Exemplar) {
	for _, e := range s.Buckets.Exemplars {
		tid := &commonpb.KeyValue{Key: family.ExemplarLabel, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(e.TID)}}}
		all = append(all, &metricspb.Exemplar{
			FilteredAttributes: []*commonpb.KeyValue{tid}, TimeUnixNano: nanos(e.Time), Value: &metricspb.Exemplar_AsDouble{AsDouble: e.Value},
		})
	}
	return all
}

// dense returns buckets with the empty ones between them. OTLP numbers a bucket by its lower bound, Prometheus by its upper one.
func dense(buckets []family.NativeBucket) *metricspb.ExponentialHistogramDataPoint_Buckets {
	if len(buckets) == 0 {
		return nil
	}
	first := buckets[0].Index
	d := &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: first - 1, BucketCounts: make([]uint64, buckets[len(buckets)-1].Index-first+1)}
	for _, b := range buckets {
		d.BucketCounts[b.Index-first] = b.Count
	}
	return d
}

// logsOf returns events in the form of OTLP.
func (x *exporter) logsOf(events []wire.Event) *logspb.LogsData {
	var all []*logspb.LogRecord
	for _, e := range events {
		r := &logspb.LogRecord{TimeUnixNano: nanos(e.Time), ObservedTimeUnixNano: nanos(time.Now()), EventName: e.Probe, Attributes: []*commonpb.KeyValue{text("program", e.Program)}}
		for _, label := range slices.Sorted(maps.Keys(x.server.settings.Labels)) {
			r.Attributes = append(r.Attributes, text(label, x.server.settings.Labels[label]))
		}
		if e.Text != "" {
			r.Body = &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: e.Text}}
		}
		r.Attributes = append(r.Attributes, fieldsOf(e)...)
		all = append(all, r)
	}
	return &logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{Resource: x.resource(), ScopeLogs: []*logspb.ScopeLogs{{Scope: scope, LogRecords: all}}}}}
}

// fieldsOf returns the fields of an event as attributes with their types.
func fieldsOf(e wire.Event) (all []*commonpb.KeyValue) {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(e.Fields))
	d.UseNumber() // a number of 64 bits does not fit in a float
	if len(e.Fields) == 0 || d.Decode(&fields) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		v := &commonpb.AnyValue{}
		switch f := fields[name].(type) {
		case bool:
			v.Value = &commonpb.AnyValue_BoolValue{BoolValue: f}
		case json.Number:
			n, err := strconv.ParseInt(f.String(), 10, 64)
			if err != nil { // OTLP has no unsigned numbers
				v.Value = &commonpb.AnyValue_StringValue{StringValue: f.String()}
				break
			}
			v.Value = &commonpb.AnyValue_IntValue{IntValue: n}
		default:
			v.Value = &commonpb.AnyValue_StringValue{StringValue: fmt.Sprint(f)}
		}
		all = append(all, &commonpb.KeyValue{Key: name, Value: v})
	}
	return all
}
