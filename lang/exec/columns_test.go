package exec

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"trace/lang/check"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/lang/result"
	"trace/probes"
	"trace/probes/event"
)

// marked has a field of each kind of mark.
func marked() *event.Probe {
	line := func(name string, t event.Type, l event.Line) *event.Field {
		return &event.Field{Name: name, Type: t, Line: l, Optional: true}
	}
	return langtest.Probe("nvme", "done",
		line("raw", langtest.Hex, event.Line{Shown: event.Verbose}),
		line("retries", langtest.U32, event.Line{Shown: event.Detail}),
		line("dnr", langtest.Flag, event.Line{Shown: event.Detail}),
		line("disk", langtest.Str16, event.Line{Shown: event.Detail}),
		line("attempt", langtest.U32, event.Line{Shown: event.Unusual, Of: "1"}),
		line("blocks", langtest.U32, event.Line{Shown: event.Instead, Of: "size"}),
		line("size", langtest.Size, event.Line{}),
		line("opcode", langtest.Opcode, event.Line{Shown: event.Unusual, Of: "read"}),
		line("latency", langtest.Ns, event.Line{}),
	)
}

func TestColumns(t *testing.T) {
	common := langtest.Table{"nsecs": uint64(1e9), "pid": uint64(7), "tid": uint64(8), "comm": "fio"}
	for _, test := range []struct {
		name    string
		columns output.Columns
		format  output.Format
		e       langtest.Table
		want    string
	}{
		{"as usual", output.Columns{}, output.Text,
			langtest.Table{"raw": uint64(9), "retries": uint64(0), "dnr": false, "disk": "", "attempt": uint64(1), "blocks": uint64(8), "size": uint64(4096), "opcode": uint64(2), "latency": uint64(0)},
			"00:00:01.000000 nvme:done fio/7 size=4KiB latency=0s"},
		{"unusual", output.Columns{}, output.Text,
			langtest.Table{"raw": uint64(9), "retries": uint64(1), "dnr": true, "disk": "a", "attempt": uint64(0), "blocks": uint64(8), "opcode": uint64(99), "latency": uint64(5)},
			"00:00:01.000000 nvme:done fio/7 blocks=8 latency=5ns retries=1 dnr=true disk=a attempt=0 opcode=unknown(0x63)"},
		{"all", output.Columns{All: true}, output.Text,
			langtest.Table{"raw": uint64(9), "retries": uint64(0), "dnr": false, "attempt": uint64(1), "size": uint64(4096), "blocks": uint64(8)},
			"00:00:01.000000 nvme:done fio/7 size=4KiB retries=0 dnr=false attempt=1 blocks=8 nsecs=1s tid=8 raw=0x9"},
		{"chosen", output.Columns{Names: []string{"retries", "time", "latency", "probe", "elsewhere"}}, output.Text, langtest.Table{"retries": uint64(0), "raw": uint64(1)},
			"retries=0 time=00:00:01.000000 latency=- probe=nvme:done elsewhere=-"},
		{"chosen", output.Columns{Names: []string{"retries", "time", "latency", "x.a", "y", "x.b"}}, output.JSON, langtest.Table{"retries": uint64(0), "raw": uint64(1)},
			`{"type":"event","probe":"nvme:done","time":"1970-01-01T00:00:01Z","data":{"retries":0,"latency":null,"x":{"a":null,"b":null},"y":null}}`},
		{"chosen", output.Columns{Names: []string{"retries", "time", "latency", "probe"}}, output.CSV, langtest.Table{"retries": uint64(0), "latency": uint64(5)},
			"retries,time,latency,probe\n0,1970-01-01T00:00:01Z,5,nvme:done"},
	} {
		for name, v := range common {
			test.e[name] = v
		}
		var b bytes.Buffer
		p := output.NewPrinter(&b, test.format, event.NewWallClock(time.Unix(0, 0).UTC()))
		p.Show(test.columns, nil, false)
		if err := p.Event(result.At(0), marked(), test.e); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(b.String(), "\n"); got != test.want {
			t.Errorf("%s as %s:\ngot  %s\nwant %s", test.name, test.format, got, test.want)
		}
	}
}

func TestCheckColumns(t *testing.T) {
	const source = "ib:destroy_qp; ib:modify_qp; nvme:complete_rq { @ = count() }"
	for _, test := range []struct {
		source string
		names  []string
		want   string // "" means no error
	}{
		{source, nil, ""},
		{source, []string{"time", "probe", "comm", "qp.num", "dgid"}, ""},
		{source, []string{"state"}, `no field state in ib:destroy_qp, ib:modify_qp: did you mean "qp.state"?`},
		{source, []string{"ctrl"}, "no field ctrl in ib:destroy_qp, ib:modify_qp: trace -lv shows the fields of each probe"},
		{source, []string{"ret", "pid", "ret"}, "field ret is given twice"},
		{"nvme:* { @ = count() }", []string{"ctrl"}, "no clause prints events: only a clause without a body does"},
		{"nvme:* { @ = count() }", nil, ""},
	} {
		program, err := compile("test", test.source, langtest.Catalog, check.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := (output.Columns{Names: test.names}).Check(program.Printed()); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%v of %s:\ngot  %s\nwant %s", test.names, test.source, got, test.want)
		}
	}
}

// Only fields that are printed, or that the rest of the clause reads, are captured.
func TestCapturedColumns(t *testing.T) {
	all, err := probes.Load("nvme")
	if err != nil {
		t.Fatal(err)
	}
	probe := all.Match("nvme:complete_rq")[0]
	program, err := compile("test", `nvme:complete_rq / latency > 1ms && lower(disk) == "x" /`, all.Probes(), check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var shown, everything []string
	for _, f := range probe.Fields {
		everything = append(everything, f.Name)
		if f.Line.Shown != event.Verbose {
			shown = append(shown, f.Name)
		}
	}
	for _, test := range []struct {
		columns output.Columns
		want    []string
	}{
		{output.NewColumns(output.Text, false, nil), shown},
		{output.NewColumns(output.HTML, false, nil), shown},
		{output.NewColumns(output.Text, true, nil), everything},
		{output.NewColumns(output.JSON, false, nil), everything},
		{output.NewColumns(output.CSV, false, nil), everything},
		{output.NewColumns(output.JSON, false, []string{"status", "probe", "time", "cdw10"}), []string{"nsecs", "disk", "cdw10", "status"}},
		{output.NewColumns(output.Text, true, []string{"status"}), []string{"disk", "status"}},
	} {
		plan, err := plan.New(program, plan.Options{CPUs: 1, Columns: test.columns})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range plan.Layouts()[0].Fields {
			got = append(got, f.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: the record has\n%v\nwant\n%v", test.columns, got, test.want)
		}
	}
	if len(shown) == len(probe.Fields) || !slices.Contains(shown, "retries") {
		t.Errorf("shown are %v", shown)
	}
}
