package metrics_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"trace/lang/metrics"
	"trace/lang/metrics/family"
	"trace/lang/result"
	"trace/probes/event"
)

// BenchmarkScrape makes text of 10,000 series.
func BenchmarkScrape(b *testing.B) {
	const series = 10000
	number := event.Type{Kind: event.Uint, Size: 8}
	table := result.Table{Name: "@calls", Func: "count", Metric: result.Counter, Adds: result.Counts, Type: number,
		Key: []result.Column{{Name: "cgroup", Type: event.Type{Kind: event.String}}, {Name: "nr", Type: number}}}
	for i := range series {
		table.Rows = append(table.Rows, result.Row{Key: []any{fmt.Sprintf("/kubepods/pod%d/container", i/20), uint64(i % 20)}, Value: result.Number{Type: number, V: uint64(i)}})
	}
	e := family.New(family.Config{Program: "bench", Series: series})
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Collect(func() ([]family.Family, error) {
		return e.Families(family.Snapshot{Tables: []result.Table{table}}), nil
	}))
	var text bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		all, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		text.Reset()
		for _, f := range all {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				b.Fatal(err)
			}
		}
	}
}
