package metrics_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"trace"
	"trace/lang/metrics"
	"trace/lang/metrics/family"
)

// command is an NVMe command of the recording.
type command struct {
	Time    time.Time      `trace:"time"`
	TID     *uint32        `trace:"tid"`
	Latency *time.Duration `trace:"latency"`
	Opcode  trace.Name     `trace:"opcode"`
}

// Each exemplar is the last event of its bucket in the recording, and the highest bucket has one. OpenMetrics shows them.
func TestExemplars(t *testing.T) {
	run := play(t, "nvme:complete_rq { @latency[op = opcode] = hist(latency); @took = quantile(latency, 50); @size = lhist(bytes, 0, 65536, 16384); @queue = lhist(qid, 0, 8, 1) }", trace.Exemplars())
	c, err := metrics.New(run, family.Config{Program: "nvme"})
	if err != nil {
		t.Fatal(err)
	}
	all, _ := gather(t, c)
	var text bytes.Buffer
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), "trace_nvme_") {
			if _, err := expfmt.MetricFamilyToOpenMetrics(&text, f); err != nil {
				t.Fatal(err)
			}
		}
		if f.GetName() == "trace_nvme_latency_seconds" {
			for _, m := range f.Metric {
				lastOfBuckets(t, m)
			}
		}
	}
	golden(t, "exemplars.openmetrics", text.String())
}

// lastOfBuckets compares the exemplars of a series with the commands of the recording.
func lastOfBuckets(t *testing.T, m *dto.Metric) {
	t.Helper()
	op, buckets := m.Label[0].GetValue(), m.Histogram.Bucket
	last := make([]command, len(buckets))
	highest := 0
	host, err := trace.OpenRecording(nvmeRecording)
	if err != nil {
		t.Fatal(err)
	}
	for c, err := range trace.Events[command](t.Context(), host, "nvme:complete_rq") {
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range buckets {
			if string(c.Opcode) == op && c.Latency != nil && c.TID != nil && c.Latency.Seconds() <= b.GetUpperBound() {
				last[i], highest = c, max(highest, i)
				break
			}
		}
	}
	n := 0
	for i, b := range buckets {
		if b.Exemplar == nil {
			if i == highest {
				t.Errorf("%s: the highest bucket has no exemplar", op)
			}
			continue
		}
		n++
		if e := b.Exemplar; e.Label[0].GetValue() != fmt.Sprint(*last[i].TID) || !e.Timestamp.AsTime().Equal(last[i].Time) {
			t.Errorf("%s: the exemplar up to %v is %v, want %+v", op, b.GetUpperBound(), e, last[i])
		}
	}
	if n != len(m.Histogram.Exemplars) || n < 3 {
		t.Errorf("%s: classic buckets have %d exemplars, native ones have %d", op, n, len(m.Histogram.Exemplars))
	}
}
