package exec

import (
	"io"
	"reflect"
	"testing"
	"time"

	"trace/lang/check"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/lang/result"
	"trace/probes/event"
)

// tablesOf returns what the maps of a program hold after its begin clauses.
func tablesOf(t *testing.T, text string) []result.Table {
	t.Helper()
	program, err := compile("program", text, nil, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := plan.New(program, plan.Options{Recorded: true, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := Start(plan, Options{Sink: output.NewPrinter(io.Discard, output.HTML, event.NewWallClock(time.Time{})), Unshown: true, Now: func() uint64 { return 0 }, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := run.Begin(); err != nil {
		t.Fatal(err)
	}
	tables, err := run.Tables()
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// Percentiles of a histogram lie within their bucket, at the place of their rank among its values. Percentiles of a quantile are as
// printed.
func TestPercentilesOfTables(t *testing.T) {
	for _, test := range []struct {
		program string
		want    []output.Percentile
	}{
		// Four values in [1024, 2048): half of them are in its lower half.
		{"begin { for ($i : 0..4) { @ = hist(1500) } }", []output.Percentile{{Name: "p50", Value: "≈1536", At: 1535.5}, {Name: "p90", Value: "≈1945", At: 1944.7}, {Name: "p99", Value: "≈2037", At: 2036.77}}},
		{"begin { for ($i : 0..4) { @ = hist(1500ns) } }", []output.Percentile{{Name: "p50", Value: "≈1.54us", At: 1535.5}, {Name: "p90", Value: "≈1.95us", At: 1944.7}, {Name: "p99", Value: "≈2.04us", At: 2036.77}}},
		{"begin { for ($i : 0..4) { @ = hist(3KiB) } }", []output.Percentile{{Name: "p50", Value: "≈3KiB", At: 3071.5}, {Name: "p90", Value: "≈3.8KiB", At: 3890.3}, {Name: "p99", Value: "≈3.98KiB", At: 4074.53}}},
		// A bucket of one value is exact, and a value out of range has only its bound.
		{"begin { @ = hist(1) }", []output.Percentile{{Name: "p50", Value: "1", At: 1}, {Name: "p90", Value: "1", At: 1}, {Name: "p99", Value: "1", At: 1}}},
		{"begin { @ = lhist(1, 10, 20, 5); @ = lhist(25, 10, 20, 5) }", []output.Percentile{{Name: "p50", Value: "< 10", At: 10}, {Name: "p90", Value: "≥ 20", At: 20}, {Name: "p99", Value: "≥ 20", At: 20}}},
		{"begin { @ = lhist(-8, -10, 0, 10) }", []output.Percentile{{Name: "p50", Value: "≈-6", At: -5.5}, {Name: "p90", Value: "≈-2", At: -1.9}, {Name: "p99", Value: "≈-1", At: -1.09}}},
		{"begin { @ = quantile(20ns, 50, 99.9); @ = quantile(30ns, 50, 99.9) }", []output.Percentile{{Name: "p50", Value: "20ns", At: 20}, {Name: "p99.9", Value: "30ns", At: 30}}},
		{"begin { @ = quantile(0 - 5, 50) }", []output.Percentile{{Name: "p50", Value: "<0", At: 0}}},
		{"begin { @ = count() }", nil},
	} {
		tables := tablesOf(t, test.program)
		if got := output.Percentiles(tables[0].Rows[0].Value); len(got) != len(test.want) {
			t.Errorf("%s: %v, want %v", test.program, got, test.want)
		} else {
			for i, p := range got {
				if want := test.want[i]; p.Name != want.Name || p.Value != want.Value || p.At < want.At-0.01 || p.At > want.At+0.01 {
					t.Errorf("%s: %v, want %v", test.program, p, want)
				}
			}
		}
	}
}

// A page shows no more of a percentile than its bucket, if that is wide: the values may all be at its one end.
func TestKnownPercentiles(t *testing.T) {
	for program, want := range map[string]string{
		"begin { for ($i : 0..4) { @ = hist(33us / 1us) } }": "[32, 64)",
		"begin { for ($i : 0..4) { @ = hist(33us) } }":       "[32.8us, 65.5us)",
		"begin { for ($i : 0..4) { @ = hist(33us, 5) } }":    "≈33.3us",
		"begin { @ = lhist(33, 30, 40, 5) }":                 "[30, 35)",
		"begin { @ = lhist(1003, 1000, 1010, 5) }":           "≈1002",
		"begin { @ = lhist(-8, -10, 0, 10) }":                "[-10, 0)",
		"begin { @ = hist(1) }":                              "1",
		"begin { @ = lhist(1, 10, 20, 5) }":                  "< 10",
		"begin { @ = quantile(33us, 50) }":                   "33.8us",
	} {
		if got := output.Percentiles(tablesOf(t, program)[0].Rows[0].Value)[0].Known(); got != want {
			t.Errorf("%s: %s, want %s", program, got, want)
		}
	}
}

// A rate per second is written as in the map itself.
func TestPerSecond(t *testing.T) {
	var got []string
	for _, v := range tablesOf(t, "begin { @a = rate(); @b = rate(8KiB); @c = rate(1ms) }") {
		got = append(got, output.PerSecond(8028160, v.Unit), output.PerSecond(0.5, v.Unit))
	}
	if want := []string{"8028160/s", "0.5/s", "7.66MiB/s", "0.5B/s", "8028160ns/s", "0.5ns/s"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
