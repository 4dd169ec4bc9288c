package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/syntax"
	"trace/probes/event"
)

func TestClauses(t *testing.T) {
	for _, test := range []struct{ src, want string }{
		{"qp.state == RTR", "inferred ib:modify_qp"},
		{"RTR == qp.state", "inferred ib:modify_qp"},
		{"qp.num == 17", "inferred ib:destroy_qp ib:modify_qp"},
		{"qp.num == 17 && ret != 0", "inferred ib:destroy_qp ib:modify_qp"},
		{"opcode == read", "inferred nvme:complete_rq nvme:setup_rq"},
		{"latency > 1ms && opcode == flush", "inferred nvme:complete_rq"},
		{"flags & 0x10", "inferred nvme:setup_rq"},
		{"nvme:complete_rq", "nvme:complete_rq"},
		{"nvme:complete_rq / latency > 1ms /", "nvme:complete_rq"},
		{"*:*_qp, ib:modify_qp", "ib:destroy_qp ib:modify_qp"},
		{"mlx5:* / syndrome /", "mlx5:cmd"},
		{"nvme:*, ib:destroy_q? / pid > 1 /", "ib:destroy_qp nvme:complete_rq nvme:setup_rq"},
		{"nvme:* / size > 1MiB /\nib:* / ret < 0 /", "nvme:complete_rq nvme:setup_rq; ib:destroy_qp ib:modify_qp"},
	} {
		p, err := compile("program", test.src, langtest.Catalog, Options{})
		if err != nil {
			t.Errorf("%s:\n%v", test.src, err)
			continue
		}
		var all []string
		for _, c := range p.Clauses {
			var words []string
			if c.Inferred {
				words = append(words, "inferred")
			}
			for _, probe := range c.Probes {
				words = append(words, probe.String())
			}
			all = append(all, strings.Join(words, " "))
		}
		if got := strings.Join(all, "; "); got != test.want {
			t.Errorf("%s: got %s, want %s", test.src, got, test.want)
		}
	}
}

// TestErrors reads testdata/errors.txt: programs, each followed by its errors after a line of dashes.
func TestErrors(t *testing.T) {
	for src, want := range langtest.Cases(t, "testdata/errors.txt") {
		_, err := compile("program", src, langtest.Catalog, Options{})
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s\n--- got\n%s\n--- want\n%s", src, got, want)
		}
	}
}

// TestDump reads testdata/programs.txt: programs, each followed by its typed tree after a line of dashes.
func TestDump(t *testing.T) {
	for src, want := range langtest.Cases(t, "testdata/programs.txt") {
		p, err := compile("program", src, langtest.Catalog, Options{})
		if err != nil {
			t.Errorf("%s\n%v", src, err)
			continue
		}
		if got := p.Dump(); got != want {
			t.Errorf("%s\n--- got\n%s\n--- want\n%s", src, got, want)
		}
	}
}

func TestParams(t *testing.T) {
	const src = `param l, lat = 10ms "the least latency"; param size = 4KiB; param n = -5; param on = true; param dev = "nvme0"
nvme:complete_rq / latency > $lat && size > $size && ctrl == $dev && $on && tag > $n /`
	cat := []*event.Probe{langtest.Probe("nvme", "complete_rq", langtest.Field("ctrl", langtest.Str16), langtest.Field("size", langtest.Size), langtest.Field("tag", langtest.S64), langtest.Optional("latency", langtest.Ns))}
	tree, err := syntax.Parse("program", src)
	if err != nil {
		t.Fatal(err)
	}
	params, err := Params(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range params {
		got = append(got, fmt.Sprintf("%s=%s %v %s %q", strings.TrimPrefix(p.Short+","+p.Name, ","), p.Default, p.Value, ir.TypeText(p.Type, nil, false), p.Help))
	}
	want := `l,lat=10ms 10000000 u4 ns "the least latency"; size=4KiB 4096 u2 bytes ""; n=-5 -5 s1 ""; on=true true bool ""; dev="nvme0" nvme0 str6 ""`
	if got := strings.Join(got, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, test := range []struct{ name, value, want string }{
		{"lat", "1.5us", "1500"}, {"lat", "0", "0"}, {"lat", "5", "5000000000"}, {"lat", "0.5", "500000000"}, {"lat", "1m30s", "90000000000"}, {"lat", "1d", "86400000000000"}, {"size", "1MB", "1000000"}, {"size", "512", "512"}, {"n", "0x10", "16"}, {"n", "-7", "-7"},
		{"on", "false", ""}, {"dev", "nvme1", `"nvme1"`}, {"dev", "", `""`},
		{"lat", "-5", "expected a duration like 10ms, or a number of seconds"}, {"lat", "5KiB", "expected a duration like 10ms"}, {"lat", "", "expected a duration like 10ms"},
		{"size", "5ms", "expected a size like 4KiB"}, {"n", "1.5", "expected a whole number"}, {"n", "5ms", "expected a whole number"},
		{"n", "5 // no", "expected a whole number"}, {"n", "nvme:*", "expected a whole number"}, {"n", "-9223372036854775809", "expected a whole number"},
		{"on", "maybe", "expected true or false"}, {"dev", "a\x00", "expected a string without NUL bytes"},
		{"late", "5ms", "the program has no param late: it has lat, size, n, on, dev"},
	} {
		p, err := compile("program", src, cat, Options{Params: map[string]string{test.name: test.value}})
		got := fmt.Sprint(err)
		if err == nil {
			got = p.Dump()
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("--%s=%s: got %s, want %s", test.name, test.value, got, test.want)
		}
	}
}

// TestOtherTypes checks a field whose type differs between probes.
func TestOtherTypes(t *testing.T) {
	cat := []*event.Probe{langtest.Probe("a", "x", langtest.Field("f", langtest.U64)), langtest.Probe("a", "y", langtest.Field("f", langtest.Str16))}
	for src, want := range map[string]string{
		"a:* { @ = f }":         "program:1:7: @ is a string here and a number for another probe of the clause",
		"a:* { @[f] = 1 }":      "program:1:7: the key of @ is a string here and a number for another probe of the clause",
		"a:* { $x = f }":        "program:1:7: $x is a string here and a number for another probe of the clause",
		"a:x { $x = f } a:y {}": "<nil>",
	} {
		_, err := compile("program", src, cat, Options{})
		if got, _, _ := strings.Cut(fmt.Sprint(err), "\n"); got != want {
			t.Errorf("%s: got %s, want %s", src, got, want)
		}
	}
}

// A filter comes before each predicate on events and is not part of the text.
func TestFilter(t *testing.T) {
	for _, test := range []struct {
		filter Filter
		want   string
	}{
		{Filter{PID: 7}, `odd:words / &&(==(pid:u4, 7):bool, >(size:u8, 1):bool):bool / prints`},
		{Filter{PID: 7, Comm: "dd"}, `odd:words / &&(&&(==(pid:u4, 7):bool, ==(comm:str16, "dd"):bool):bool, >(size:u8, 1):bool):bool / prints`},
	} {
		p, err := compile("program", "odd:words / size > 1 /; begin { print(1) }", langtest.Catalog, Options{Filter: test.filter})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Dump(); got != test.want+"\nbegin\n\tprint(1)" {
			t.Errorf("%+v: got %s, want %s", test.filter, got, test.want)
		}
	}
	p, err := compile("program", "nvme:setup_rq", langtest.Catalog, Options{Filter: Filter{PID: 7}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Dump(), `nvme:setup_rq / ==(pid:u4, 7):bool / prints`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// Mistakes are reported in the text alone.
	_, err = compile("program", "odd:words / size > nowhere /", langtest.Catalog, Options{Filter: Filter{PID: 7}})
	if _, without := compile("program", "odd:words / size > nowhere /", langtest.Catalog, Options{}); err == nil || err.Error() != without.Error() {
		t.Errorf("%v, without the filter %v", err, without)
	}
}

// Events without a field of the filter, as a recording may have, are an error.
func TestFilterLacks(t *testing.T) {
	for filter, want := range map[Filter]string{
		{PGID: 7}:                   "--pgid 7: the recording has no field pgid of odd:words: record again with this version of trace",
		{PIDNS: 7, PID: 3}:          "--pidns 7: the recording has no field pidns of odd:words: record again with this version of trace",
		{Cgroup: "/a"}:              "<nil>",
		{PID: 3, Comm: "no leader"}: "<nil>",
	} {
		_, err := compile("program", "odd:words", langtest.Catalog, Options{Filter: filter})
		if fmt.Sprint(err) != want {
			t.Errorf("%+v: %v, want %s", filter, err, want)
		}
	}
}

// Elements of keys are named after their fields, or as the program names them anywhere.
func TestColumnNames(t *testing.T) {
	for src, want := range map[string]string{
		"nvme:complete_rq { @[ctrl, size + 1] = count() }":                                      "ctrl|size + 1",
		"nvme:complete_rq { @[device = ctrl, op = opcode] = count() }":                          "device|op",
		"nvme:complete_rq { @[device = ctrl, opcode] = count(); delete(@[ctrl, op = opcode]) }": "device|op",
		"nvme:complete_rq { @[pid, pid, pid] = count() }":                                       "pid|pid_2|pid_3",
		"nvme:complete_rq { $k = (pid, ctrl); @[$k] = 1 }":                                      "$k.0|$k.1",
		"begin { print(@[who = 1]) } nvme:complete_rq { @[pid] = count() }":                     "who",
		"nvme:complete_rq { @ = count() }":                                                      "",
		"nvme:complete_rq { @[pid == 1] = count(); @[first = pid == 2] = count() }":             "first",
	} {
		p, err := compile("program", src, langtest.Catalog, Options{})
		if err != nil {
			t.Errorf("%s:\n%v", src, err)
		} else if got := strings.Join(p.Maps[0].Names, "|"); got != want {
			t.Errorf("%s: got %q, want %q", src, got, want)
		}
	}
}

// Messages that depend on the catalog or on options.
func TestOtherMessages(t *testing.T) {
	complete, setup := langtest.Fixture("nvme:complete_rq"), langtest.Fixture("nvme:setup_rq")
	all := func() []*event.Probe { return langtest.Catalog }
	for _, test := range []struct {
		src     string
		catalog []*event.Probe
		options Options
		want    string
	}{
		{"pid == 7", []*event.Probe{complete, setup}, Options{}, "every event has these fields, so the probe is unknown"},
		{"pid == 7", []*event.Probe{complete, setup}, Options{}, "; candidates are nvme:complete_rq, nvme:setup_rq"},
		{"nvme:setup_rq", nil, Options{Known: all}, "help: it has no events"},
		{"begin { print(cpid) }", langtest.Catalog, Options{Known: all}, "cpid is the process of the command of -c, and a recording has none"},
		{"begin { print(cpid) }", langtest.Catalog, Options{Known: all}, "help: compare pid with its number, or comm with its name"},
		{"begin { print(1) }", langtest.Catalog, Options{Params: map[string]string{"x": "1"}}, "the program has no param x: it has no params"},
		{"param r = 0; profile:$r { @ = count() }", langtest.Catalog, Options{}, "profile:$r is not a rate"},
		{"param r = 0; profile:$r { @ = count() }", langtest.Catalog, Options{}, "help: a rate must be between 1 and 1000000"},
	} {
		if _, err := compile("program", test.src, test.catalog, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.src, err, test.want)
		}
	}
}

// TestWhileNamesTheRange checks that the warning about a while shows what to write.
func TestWhileNamesTheRange(t *testing.T) {
	p, err := compile("program", "begin { while (false) { } }", langtest.Catalog, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "for ($i : 0..10) { … } runs over a range"; len(p.Warnings) != 1 || p.Warnings[0].Help != want {
		t.Errorf("got %v, want the help %q", p.Warnings, want)
	}
}

// TestWarnings checks the warnings about programs that run.
func TestWarnings(t *testing.T) {
	const while = "While loops are deprecated and may be removed in the future."
	for _, test := range []struct {
		source string
		want   []string
	}{
		{"begin { return; print(1) } end { for ($i : 0..3) { break; print(2) } }", []string{"Unreachable statement", "Unreachable statement"}},
		{"begin { @[1] = 2; has_key(@, 1); _ = has_key(@, 1); 1 + 1; { 3 } }", []string{"Return value discarded", "Return value discarded", "Return value discarded"}},
		{"begin { while (false) { } while (true) { break } }", []string{while, while}},
		{"nvme:* { 1; @ = count() }", []string{"Return value discarded"}},
		{"let @a = hash(5); begin { print(1) }", []string{"Unused map: @a"}},
		{"config = { max_strlen = 64; max_map_keys = 5 } begin { print(1) }", []string{"max_strlen has no effect"}},
		{"begin { $x = 1; $x == 1 ? print(1) : print(2) }", nil},
	} {
		p, err := compile("program", test.source, langtest.Catalog, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range p.Warnings {
			got = append(got, strings.TrimPrefix(w.Msg, "WARNING: "))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.source, got, test.want)
		}
	}
}
