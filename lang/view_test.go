package lang

import (
	"io"
	"reflect"
	"testing"
	"time"

	"trace/lang/result"
)

// tablesOf returns what the maps of a program hold after its begin clauses.
func tablesOf(t *testing.T, text string) []result.Table {
	t.Helper()
	program, err := Compile("program", text, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(program, PlanOptions{Recorded: true, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := plan.Start(RunOptions{Printer: NewPrinter(io.Discard, HTML, time.Time{}), Unshown: true, Now: func() uint64 { return 0 }, Context: t.Context()})
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

// Percentiles of a histogram lie within their bucket, as far in it as their rank among its values; those of a quantile are as printed.
func TestPercentilesOfTables(t *testing.T) {
	for _, test := range []struct {
		program string
		want    []Percentile
	}{
		// Four values in [1024, 2048): half of them below its middle.
		{"begin { for ($i : 0..4) { @ = hist(1500) } }", []Percentile{{"p50", "≈1536", 1535.5}, {"p90", "≈1945", 1944.7}, {"p99", "≈2037", 2036.77}}},
		{"begin { for ($i : 0..4) { @ = hist(1500ns) } }", []Percentile{{"p50", "≈1.54us", 1535.5}, {"p90", "≈1.95us", 1944.7}, {"p99", "≈2.04us", 2036.77}}},
		{"begin { for ($i : 0..4) { @ = hist(3KiB) } }", []Percentile{{"p50", "≈3KiB", 3071.5}, {"p90", "≈3.8KiB", 3890.3}, {"p99", "≈3.98KiB", 4074.53}}},
		// A bucket of one value is exact, and what is out of range has but its bound.
		{"begin { @ = hist(1) }", []Percentile{{"p50", "1", 1}, {"p90", "1", 1}, {"p99", "1", 1}}},
		{"begin { @ = lhist(1, 10, 20, 5); @ = lhist(25, 10, 20, 5) }", []Percentile{{"p50", "< 10", 10}, {"p90", "≥ 20", 20}, {"p99", "≥ 20", 20}}},
		{"begin { @ = lhist(-8, -10, 0, 10) }", []Percentile{{"p50", "≈-6", -5.5}, {"p90", "≈-2", -1.9}, {"p99", "≈-1", -1.09}}},
		{"begin { @ = quantile(20ns, 50, 99.9); @ = quantile(30ns, 50, 99.9) }", []Percentile{{"p50", "20ns", 20}, {"p99.9", "30ns", 30}}},
		{"begin { @ = quantile(0 - 5, 50) }", []Percentile{{"p50", "<0", 0}}},
		{"begin { @ = count() }", nil},
	} {
		tables := tablesOf(t, test.program)
		if got := Percentiles(tables[0].Rows[0].Value); len(got) != len(test.want) {
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

// What comes in a second is written as the map itself is printed.
func TestPerSecond(t *testing.T) {
	var got []string
	for _, v := range tablesOf(t, "begin { @a = rate(); @b = rate(8KiB); @c = rate(1ms) }") {
		got = append(got, PerSecond(8028160, v.Unit), PerSecond(0.5, v.Unit))
	}
	if want := []string{"8028160/s", "0.5/s", "7.66MiB/s", "0.5B/s", "8028160ns/s", "0.5ns/s"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
