package metrics_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"trace/lang/metrics"
	"trace/lang/metrics/family"
)

func gathererOf(all ...family.Family) func() ([]family.Family, error) {
	return func() ([]family.Family, error) { return all, nil }
}

// A gatherer returns what a registry makes of the same maps.
func TestGatherer(t *testing.T) {
	run := play(t, everyKind)
	config := family.Config{Program: "nvme", Labels: map[string]string{"zone": "a\"3\n", "a": ""}}
	c, err := metrics.New(run, config)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := gather(t, c)
	e := family.New(config)
	got, _ := textOf(t, metrics.Gatherer(func() ([]family.Family, error) { return e.Read(run.Snapshot) }))
	if len(got) != len(want) {
		t.Fatalf("%d families, want %d", len(got), len(want))
	}
	for i, f := range got {
		if !proto.Equal(f, want[i]) {
			t.Errorf("got %v, want %v", f, want[i])
		}
	}
}

// Series of one name come together, if their labels differ.
func TestGathererJoins(t *testing.T) {
	counts := func(kind family.Kind, help string, labels, values []string) family.Family {
		return family.Family{Name: "trace_x_total", Help: help, Kind: kind, Labels: labels, Series: []family.Series{{Labels: values, Value: 1}}}
	}
	one := counts(family.Counter, "One.", []string{"a", "b"}, []string{"x", "y"})
	two := counts(family.Counter, "Two.", []string{"b"}, []string{"z"})
	three := counts(family.Counter, "Three.", []string{"b", "a"}, []string{"a", "x"})
	empty := family.Family{Name: "trace_empty", Kind: family.Gauge}
	_, text := textOf(t, metrics.Gatherer(gathererOf(one, empty, two, three)))
	if want := `# HELP trace_x_total One.
# TYPE trace_x_total counter
trace_x_total{b="z"} 1
trace_x_total{a="x",b="a"} 1
trace_x_total{a="x",b="y"} 1
`; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	for want, others := range map[string][]family.Family{
		"trace_x_total and trace_x would both have the name trace_x: give one of them another name": {{Name: "trace_x", Kind: family.Gauge, Series: []family.Series{{}}}},
		"trace_x_total is the name of a counter and of a gauge: give one of them another name":      {counts(family.Gauge, "", nil, nil)},
		"trace_x_total has two series with the labels a=x b=y: give one of them another name":       {two, counts(family.Counter, "", []string{"b", "a"}, []string{"y", "x"})},
	} {
		other := family.Family{Name: "trace_other", Kind: family.Gauge, Series: []family.Series{{Value: 1}}}
		got, err := metrics.Gatherer(gathererOf(append([]family.Family{one, other}, others...)...)).Gather()
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if len(got) == 0 || got[0].GetName() != "trace_other" || len(got) > 1 && got[1].GetName() != "trace_x_total" {
			t.Errorf("the others are %v", got)
		}
	}
}
