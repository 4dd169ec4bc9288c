package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"trace"
	"trace/lang/agg"
	"trace/lang/metrics"
	"trace/lang/metrics/family"
	"trace/lang/result"
	"trace/probes/event"
)

var update = flag.Bool("metrics.update", false, "write the expected metrics anew")

const nvmeRecording = "../../scripts/testdata/nvme_latency.rec"

// play runs a program on the recording to its end.
func play(t *testing.T, text string, o ...trace.RunOption) *trace.Run {
	t.Helper()
	host, err := trace.OpenRecording(nvmeRecording)
	if err != nil {
		t.Fatal(err)
	}
	program, err := host.Compile("test", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := program.Start(t.Context(), o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	return run
}

// gather returns the metrics of a collector, as a scraper of text gets them.
func gather(t *testing.T, c prometheus.Collector) ([]*dto.MetricFamily, string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	return textOf(t, registry)
}

func textOf(t *testing.T, g prometheus.Gatherer) ([]*dto.MetricFamily, string) {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range all {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return all, text.String()
}

// everyKind has every kind of map that can be a metric.
const everyKind = `nvme:complete_rq {
	@ = count()
	@bytes[disk] = sum(bytes)
	@latency[disk, op = opcode] = hist(latency)
	@took[opcode] = quantile(latency, 50, 99)
	@size = lhist(bytes, 0, 65536, 16384)
	@mean[opcode] = avg(latency)
	@all = stats(latency)
	@level = gauge(1)
	@last[qid] = latency
	@calls++
	@left -= 1
	@slow[latency > 10ms, status] = count()
}`

// Every kind of map as text: names, units, labels, and what is known of the run. promtool finds nothing wrong with them.
func TestText(t *testing.T) {
	run := play(t, everyKind)
	c, err := metrics.New(run, family.Config{
		Program: "nvme", Labels: map[string]string{"cluster": "a\"3\n"}, Maps: map[string]family.MapConfig{"calls": {Metric: "commands", Help: "Commands that ended."}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all, got := gather(t, c)
	golden(t, "nvme.prom", got)
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for _, f := range all {
		for _, m := range f.Metric {
			if created := m.GetCounter().GetCreatedTimestamp(); m.Counter != nil && !created.AsTime().Equal(run.Started()) {
				t.Errorf("%s was created at %v, want %v", f.GetName(), created.AsTime(), run.Started())
			}
		}
	}
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = "testdata/" + name
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has other metrics: go test ./lang/metrics -metrics.update writes them, and git diff shows the difference", name)
	}
}

// What cannot be a metric is refused, each map with its reason and advice.
func TestRefusals(t *testing.T) {
	for want, text := range map[string]string{
		"@ cannot be a metric, as min() is not additive: use hist(x) or quantile(x, 50, 99), or @ = x for the last value": "nvme:complete_rq { @ = min(latency) }",
		"@ cannot be a metric, as max() is not additive":                                                                  "nvme:complete_rq { @ = max(latency) }",
		"use count() or sum(x): rates are made of them by whoever reads the metric":                                       "nvme:complete_rq { @ = rate() }",
		"use avg(x), or @ = x for the last value":                                                                         "nvme:complete_rq { @ = tseries(latency, 1s, 5) }",
		"use count() or sum(x), with x in the key":                                                                        "nvme:complete_rq { @ = topk(slba, 5) }",
		"@ cannot be a metric, as its values are no numbers: make them the key, and count them":                           "nvme:complete_rq { @ = comm }",
		"@m cannot be a metric, as its values are no numbers":                                                             "nvme:complete_rq { @m = (latency, bytes) }",
		"@m: two of its labels would be qid: give the elements of its key other names, @m[name = …]":                      "nvme:complete_rq { @m[qid, _qid = cid] = count() }",
		"@a_b and @b would both have the name trace_p_a_b_total: give one another name":                                   "nvme:complete_rq { @a_b = count(); @b = count() }",
	} {
		_, err := metrics.New(play(t, text), family.Config{Program: "p", Maps: map[string]family.MapConfig{"b": {Metric: "p_a_b"}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	stack := result.Table{Name: "@", Metric: result.Counter, Func: "count", Key: []result.Column{{Name: "kstack", Type: event.Type{Kind: 102}}}}
	estimate := result.Table{Name: "@", Metric: result.Counter, Func: "count", Estimate: true}
	nameless := result.Table{Name: "@m", Metric: result.Counter, Func: "count", Key: []result.Column{{}}}
	for want, table := range map[string]result.Table{
		"@m: element 1 of its key has no name, which its label needs: write @m[name = …]":                 nameless,
		"@ cannot be a metric, as its key has a stack: leave the stack out, or read the map as a profile": stack,
		"@ cannot be a metric, as its values are estimates: leave out --burst":                            estimate,
	} {
		if err := family.New(family.Config{}).Check([]result.Table{table}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Native buckets of a quantile map are those that client_golang makes of the same values: a value is at most one bucket off, and only if it is within
// 3.1 % of a bound.
func TestNativeBuckets(t *testing.T) {
	nanoseconds := event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}
	a := &agg.Agg{Func: agg.NewQuantile(50)}
	state := make([]uint64, a.Words())
	oracle := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", NativeHistogramBucketFactor: 1.1, Buckets: []float64{1.023e-6, 2.047e-6}})
	near := 0
	const values = 20000
	r := rand.New(rand.NewPCG(1, 2))
	for range values {
		v := uint64(math.Exp2(8 + 20*r.Float64()))
		a.Add(state, v)
		oracle.Observe(float64(v) / 1e9)
		position := math.Log2(float64(v)/1e9) * 8
		if math.Abs(position-math.Round(position)) < 8*math.Log2(1.0313) {
			near++
		}
	}
	merger := a.Merger(nanoseconds)
	table := result.Table{Name: "@", Func: "quantile", Metric: result.Distribution, Adds: result.Counts, Unit: event.Nanoseconds, Type: nanoseconds,
		Zero: merger.Result(make([]uint64, a.Words())), Rows: []result.Row{{Value: merger.Result(state)}}}
	e := family.New(family.Config{Program: "p"})
	all, _ := textOf(t, metrics.Gatherer(func() ([]family.Family, error) {
		return e.Families(family.Snapshot{Tables: []result.Table{table}}), nil
	}))
	ours := all[slices.IndexFunc(all, func(f *dto.MetricFamily) bool { return f.GetName() == "trace_p_seconds" })].Metric[0].Histogram
	var theirs dto.Metric
	if err := oracle.Write(&theirs); err != nil {
		t.Fatal(err)
	}
	if ours.GetSchema() != 3 || theirs.Histogram.GetSchema() != 3 || ours.GetSampleCount() != values {
		t.Fatalf("schema %d with %d values, want %d", ours.GetSchema(), ours.GetSampleCount(), theirs.Histogram.GetSchema())
	}
	for i, b := range theirs.Histogram.Bucket {
		if own := ours.Bucket[i]; i == 0 && (own.GetUpperBound() != b.GetUpperBound() || own.GetCumulativeCount() != b.GetCumulativeCount()) {
			t.Errorf("classic: %v, want %v", own, b)
		}
	}
	mine, want := unroll(ours), unroll(theirs.Histogram)
	off, moved := 0, 0
	for index := -400; index < 400; index++ {
		off += mine[index] - want[index] // how many are below the bound in one, and not in the other
		moved += max(off, -off)
	}
	if moved == 0 || moved > near/2 {
		t.Errorf("%d of %d values are in another bucket, %d are near a bound", moved, values, near)
	}
}

// unroll returns the positive native buckets by index.
func unroll(h *dto.Histogram) map[int]int {
	all := map[int]int{}
	index, count, n := 0, 0, 0
	for _, span := range h.PositiveSpan {
		index += int(span.GetOffset())
		for range span.GetLength() {
			count += int(h.PositiveDelta[n])
			all[index] = count
			index++
			n++
		}
	}
	return all
}

// On this machine: ten times as many keys as there may be series, in a map of the kernel. The others are exact, also those without room in the map.
func TestLiveSeriesAreBounded(t *testing.T) {
	host, err := trace.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if all, err := host.Available("syscall:enter"); err != nil || all[0].Err != nil {
		t.Skip(err, all)
	}
	program, err := host.Compile("test", "syscall:enter / nr == getppid / { @calls[at = nsecs] = count() }", nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := program.Start(t.Context(), trace.PID(os.Getpid()), trace.MapSize(2000))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	c, err := metrics.New(run, family.Config{Program: "p", Series: 300})
	if err != nil {
		t.Fatal(err)
	}
	for calls := range 3 {
		for range 1000 {
			syscall.Getppid()
		}
		all, _ := gather(t, c)
		var total, other float64
		series := 0
		for _, f := range all {
			if f.GetName() != "trace_p_calls_total" {
				continue
			}
			series = len(f.Metric)
			for _, m := range f.Metric {
				total += m.GetCounter().GetValue()
				if m.Label[0].GetValue() == family.Other {
					other = m.GetCounter().GetValue()
				}
			}
		}
		if want := float64(1000 * (calls + 1)); series != 301 || total != want || other != want-300 {
			t.Errorf("%d series have %v, others %v, want 301 with %v", series, total, other, want)
		}
	}
}

// A failure to read maps is the failure of the scrape.
func TestFailure(t *testing.T) {
	run := play(t, "nvme:complete_rq { @ = count() }")
	c, err := metrics.New(run, family.Config{Program: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v", err)
	}
	if _, err := metrics.New(run, family.Config{}); err == nil {
		t.Error("a closed run is collected")
	}
	if _, err := metrics.New(failing{}, family.Config{}); !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
}

var errGone = errors.New("gone")

type failing struct{}

func (failing) Snapshot() (family.Snapshot, error) { return family.Snapshot{}, errGone }

func ExampleNew() {
	host, err := trace.OpenRecording(nvmeRecording)
	if err != nil {
		panic(err)
	}
	defer host.Close()
	program, err := host.Compile("disks", "nvme:complete_rq { @read[disk] = sum(bytes) }", nil)
	if err != nil {
		panic(err)
	}
	run, err := program.Start(context.Background())
	if err != nil {
		panic(err)
	}
	defer run.Close()
	if err := run.Wait(); err != nil {
		panic(err)
	}
	collector, err := metrics.New(run, family.Config{Program: "disks"})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	all, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range all {
		if m := f.Metric[0]; f.GetName() == "trace_disks_read_bytes_total" {
			fmt.Println(f.GetName(), m.Label[0].GetValue(), m.Counter.GetValue())
		}
	}
	// Output: trace_disks_read_bytes_total nvme0n1 4.857856e+06
}
