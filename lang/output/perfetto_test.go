package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"trace/lang/result"
	"trace/probes/event"
)

// command is an event of the probe that commandProbe makes.
type command map[string]any

func (c command) Get(f *event.Field) (any, bool) {
	v, ok := c[f.Name]
	return v, ok
}

func commandProbe() *event.Probe {
	number, text := event.Type{Kind: event.Uint, Size: 8}, event.Type{Kind: event.String, Size: 16}
	return event.NewProbe("nvme", "done", "", []event.Field{
		{Name: "nsecs", Type: number}, {Name: "cpu", Type: number}, {Name: "latency", Type: number}, {Name: "ctrl", Type: text}, {Name: "qid", Type: number},
	})
}

// written returns the lines of a trace without the surrounding ones.
func written(t *testing.T, print func(p *Printer) error) []string {
	t.Helper()
	var b bytes.Buffer
	p := NewPrinter(&b, Perfetto, event.NewWallClock(time.Time{}))
	p.Show(Columns{Names: []string{"cpu"}}, nil, false)
	if err := print(p); err != nil {
		t.Fatal(err)
	}
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b.Bytes()) {
		t.Fatalf("no JSON: %s", &b)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n]}\n"), "\n")
	return lines[1:]
}

// Slices that overlap are in lanes, also if one comes later than another that ended after it. An event without a latency has no
// length, an event without a queue is on its CPU, and an event without a time gets the time of writing.
func TestPerfettoLanes(t *testing.T) {
	probe := commandProbe()
	got := written(t, func(p *Printer) error {
		for _, times := range [][2]uint64{{2000, 1000}, {2500, 1500}, {3000, 500}, {2900, 100}, {4000, 1000}, {4000, 0}} {
			e := command{"nsecs": times[0], "latency": times[1], "ctrl": "nvme0", "qid": uint64(3)}
			if err := p.Event(result.At(times[0]), probe, e); err != nil {
				return err
			}
		}
		if err := p.Event(result.At(5_000_000_020), probe, command{"cpu": uint64(1), "ctrl": "nvme0"}); err != nil {
			return err
		}
		return p.Event(result.At(5_000_000_007), probe, command{"nsecs": uint64(5_000_000_007), "cpu": uint64(1), "ctrl": "nvme0"})
	})
	want := strings.Split(`{"ph":"M","name":"process_name","pid":1,"args":{"name":"nvme0"}},
{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"qid 3"}},
{"ph":"X","name":"nvme:done","pid":1,"tid":1,"ts":1,"dur":1,"cat":"nvme","args":{"cpu":null}},
{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"qid 3 #2"}},
{"ph":"X","name":"nvme:done","pid":1,"tid":2,"ts":1,"dur":1.500,"cat":"nvme","args":{"cpu":null}},
{"ph":"X","name":"nvme:done","pid":1,"tid":1,"ts":2.500,"dur":0.500,"cat":"nvme","args":{"cpu":null}},
{"ph":"X","name":"nvme:done","pid":1,"tid":2,"ts":2.800,"dur":0.100,"cat":"nvme","args":{"cpu":null}},
{"ph":"X","name":"nvme:done","pid":1,"tid":2,"ts":3,"dur":1,"cat":"nvme","args":{"cpu":null}},
{"ph":"X","name":"nvme:done","pid":1,"tid":1,"ts":4,"dur":0,"cat":"nvme","args":{"cpu":null}},
{"ph":"M","name":"process_name","pid":2,"args":{"name":"CPUs"}},
{"ph":"M","name":"thread_name","pid":2,"tid":3,"args":{"name":"CPU 1"}},
{"ph":"i","name":"nvme:done","s":"t","pid":2,"tid":3,"ts":5000000.020,"cat":"nvme","args":{"cpu":1}},
{"ph":"i","name":"nvme:done","s":"t","pid":2,"tid":3,"ts":5000000.007,"cat":"nvme","args":{"cpu":1}}`, "\n")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Devices with the same name on several hosts are separate.
func TestPerfettoHosts(t *testing.T) {
	text := event.Type{Kind: event.String, Size: 16}
	for shown, want := range map[event.Shown]string{event.Always: `"args":{"name":"nvme0 of a"}`, event.Verbose: `"args":{"name":"nvme0"}`} {
		probe := event.NewProbe("nvme", "done", "", []event.Field{
			{Name: "nsecs", Type: event.Type{Kind: event.Uint, Size: 8}}, {Name: "ctrl", Type: text}, {Name: "qid", Type: text},
			{Name: "host", Type: text, Line: event.Line{Shown: shown}},
		})
		got := written(t, func(p *Printer) error {
			return p.Event(result.At(1), probe, command{"nsecs": uint64(1), "ctrl": "nvme0", "qid": "1", "host": "a"})
		})
		if !strings.Contains(got[0], want) {
			t.Errorf("%s, want %s", got[0], want)
		}
	}
}

// Times count from the midnight before the first.
func TestPerfettoTimes(t *testing.T) {
	var b bytes.Buffer
	zone := time.FixedZone("", 3600)
	p := NewPrinter(&b, Perfetto, event.NewWallClock(time.Date(2026, 11, 20, 23, 59, 58, 0, zone)))
	for _, test := range []struct {
		nsecs uint64
		want  string
	}{
		{3_000_000_001, `"ts":1000000.001,`}, {2_000_000_000, `"ts":0,`}, {1_999_500_000, `"ts":-500,`}, {2_999_999_990, `"ts":999999.990,`},
		{90_000_000_000_000, `"ts":89998000000,`},
	} {
		b.Reset()
		if err := p.Event(result.At(test.nsecs), commandProbe(), command{"nsecs": test.nsecs}); err != nil || !strings.Contains(b.String(), test.want) {
			t.Errorf("%v: no %s in %s", err, test.want, &b)
		}
	}
}

// Numbers are counters, and other values are instants. A counter without a value is 0.
func TestPerfettoMaps(t *testing.T) {
	number, text := event.Type{Kind: event.Uint, Size: 8}, event.Type{Kind: event.String, Size: 16}
	table := func(name string, rows ...result.Row) result.Table {
		return result.Table{Name: name, Key: []result.Column{{Name: "comm", Type: text}}, Type: number, Rows: rows}
	}
	row := func(key string, values ...any) result.Row {
		var elems []result.Number
		for _, v := range values {
			typ := number
			if _, is := v.(string); is {
				typ = text
			}
			elems = append(elems, result.Number{Type: typ, V: v})
		}
		if len(elems) == 1 {
			return result.Row{Key: []any{key}, Value: elems[0]}
		}
		return result.Row{Key: []any{key}, Value: result.Tuple{Elems: elems}}
	}
	ranked := table("@r", result.Row{Key: []any{"a"}, Value: result.Number{Type: number, V: uint64(9), Error: 2}})
	ranked.Func, ranked.Ranking = "topk", &result.Ranking{Top: 1}
	got := written(t, func(p *Printer) error {
		for _, err := range []error{
			p.Map(result.At(5_000_000_020), table("@n", row("a", uint64(1)), row("b\n", uint64(2)))),
			p.Map(result.At(5_000_000_020), table("@n", row("a", uint64(3)))),
			p.Map(result.At(5_000_000_020), table("@n", row("a", uint64(4)))),
			p.Element(result.At(5_000_000_020), table("@n", row("b\n", uint64(5)))),
			p.Map(result.At(5_000_000_020), table("@n")),
			p.Map(result.At(5_000_000_020), table("@t", row("a", uint64(1), uint64(2)))),
			p.Map(result.At(5_000_000_020), table("@t", row("a", uint64(1), "x"))),
			p.Map(result.At(5_000_000_020), ranked),
			p.Lost(5_000_000_020, 7),
			p.Text(result.At(5_000_000_020), []byte("\nx \"y\"\n")),
			p.Value(result.At(5_000_000_020), text, nil, "z", true),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	want := strings.Split(`{"ph":"M","name":"process_name","pid":1,"args":{"name":"program"}},
{"ph":"C","name":"@n[a]","pid":1,"ts":5000000.020,"args":{"value":1}},
{"ph":"C","name":"@n[b\\n]","pid":1,"ts":5000000.020,"args":{"value":2}},
{"ph":"C","name":"@n[a]","pid":1,"ts":5000000.020,"args":{"value":3}},
{"ph":"C","name":"@n[b\\n]","pid":1,"ts":5000000.020,"args":{"value":0}},
{"ph":"C","name":"@n[a]","pid":1,"ts":5000000.020,"args":{"value":4}},
{"ph":"C","name":"@n[b\\n]","pid":1,"ts":5000000.020,"args":{"value":5}},
{"ph":"C","name":"@n[a]","pid":1,"ts":5000000.020,"args":{"value":0}},
{"ph":"C","name":"@n[b\\n]","pid":1,"ts":5000000.020,"args":{"value":0}},
{"ph":"C","name":"@t[a]","pid":1,"ts":5000000.020,"args":{"value1":1,"value2":2}},
{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"printed"}},
{"ph":"i","name":"@t[a]","s":"t","pid":1,"tid":1,"ts":5000000.020,"args":{"value":[1,"x"]}},
{"ph":"C","name":"@r[a]","pid":1,"ts":5000000.020,"args":{"error":2,"topk":9}},
{"ph":"i","name":"lost_events","s":"t","pid":1,"tid":1,"ts":5000000.020,"args":{"events":7}},
{"ph":"i","name":"x \"y\"","s":"t","pid":1,"tid":1,"ts":5000000.020},
{"ph":"i","name":"z","s":"t","pid":1,"tid":1,"ts":5000000.020}`, "\n")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A trace without events is valid. A program that never ran writes no trace.
func TestPerfettoOfNothing(t *testing.T) {
	if got := written(t, (*Printer).Begin); len(got) != 0 {
		t.Errorf("%q", got)
	}
	var b bytes.Buffer
	if err := NewPrinter(&b, Perfetto, event.NewWallClock(time.Time{})).End(); err != nil || b.Len() > 0 {
		t.Errorf("%q, %v", &b, err)
	}
}
