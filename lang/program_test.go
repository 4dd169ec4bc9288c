package lang

import (
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"trace/lang/output"
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
		p, err := Compile("program", test.src, catalog, Options{})
		if err != nil {
			t.Errorf("%s:\n%v", test.src, err)
			continue
		}
		var all []string
		for _, c := range p.Clauses() {
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
	for src, want := range cases(t, "errors.txt") {
		_, err := Compile("program", src, catalog, Options{})
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s\n--- got\n%s\n--- want\n%s", src, got, want)
		}
	}
}

// TestDump reads testdata/programs.txt: programs, each followed by its typed tree after a line of dashes.
func TestDump(t *testing.T) {
	for src, want := range cases(t, "programs.txt") {
		p, err := Compile("program", src, catalog, Options{})
		if err != nil {
			t.Errorf("%s\n%v", src, err)
			continue
		}
		if got := p.Dump(); got != want {
			t.Errorf("%s\n--- got\n%s\n--- want\n%s", src, got, want)
		}
	}
}

// cases reads programs and what is expected of them from a file of testdata.
func cases(t testing.TB, file string) iter.Seq2[string, string] {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(src, want string) bool) {
		for test := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n====\n") {
			src, want, _ := strings.Cut(test, "\n----\n")
			if !yield(src, want) {
				return
			}
		}
	}
}

func TestParams(t *testing.T) {
	const src = `param l, lat = 10ms "the least latency"; param size = 4KiB; param n = -5; param on = true; param dev = "nvme0"
nvme:complete_rq / latency > $lat && size > $size && ctrl == $dev && $on && tag > $n /`
	cat := []*event.Probe{probe("nvme", "complete_rq", field("ctrl", str16), field("size", size), field("tag", s64), optional("latency", ns))}
	params, err := Params("program", src)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range params {
		got = append(got, fmt.Sprintf("%s=%s %v %s %q", strings.TrimPrefix(p.Short+","+p.Name, ","), p.Default, p.Value, typeText(p.Type, nil, false), p.Help))
	}
	want := `l,lat=10ms 10000000 u8 ns "the least latency"; size=4KiB 4096 u8 bytes ""; n=-5 -5 s8 ""; on=true true bool ""; dev="nvme0" nvme0 str5 ""`
	if got := strings.Join(got, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, test := range []struct{ name, value, want string }{
		{"lat", "1.5us", "1500"}, {"lat", "0", "0"}, {"size", "1MB", "1000000"}, {"size", "512", "512"}, {"n", "0x10", "16"}, {"n", "-7", "-7"},
		{"on", "false", ""}, {"dev", "nvme1", `"nvme1"`}, {"dev", "", `""`},
		{"lat", "5", "want a duration like 10ms"}, {"lat", "5KiB", "want a duration like 10ms"}, {"lat", "", "want a duration like 10ms"},
		{"size", "5ms", "want a size like 4KiB"}, {"n", "1.5", "want a whole number"}, {"n", "5ms", "want a whole number"},
		{"n", "5 // no", "want a whole number"}, {"n", "nvme:*", "want a whole number"}, {"n", "-9223372036854775809", "want a whole number"},
		{"on", "maybe", "want true or false"}, {"dev", "a\x00", "want a string without NUL bytes"},
		{"late", "5ms", "the program has no param called late: it has lat, size, n, on, dev"},
	} {
		p, err := Compile("program", src, cat, Options{Params: map[string]string{test.name: test.value}})
		got := fmt.Sprint(err)
		if err == nil {
			got = p.Dump()
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("--%s=%s: got %s, want %s", test.name, test.value, got, test.want)
		}
	}
}

// TestOtherTypes is about a field that is of another sort in another probe.
func TestOtherTypes(t *testing.T) {
	cat := []*event.Probe{probe("a", "x", field("f", u64)), probe("a", "y", field("f", str16))}
	for src, want := range map[string]string{
		"a:* { @ = f }":         "program:1:7: @ is a string here and a number for another probe of the clause",
		"a:* { @[f] = 1 }":      "program:1:7: the key of @ is a string here and a number for another probe of the clause",
		"a:* { $x = f }":        "program:1:7: $x is a string here and a number for another probe of the clause",
		"a:x { $x = f } a:y {}": "<nil>",
	} {
		_, err := Compile("program", src, cat, Options{})
		if got, _, _ := strings.Cut(fmt.Sprint(err), "\n"); got != want {
			t.Errorf("%s: got %s, want %s", src, got, want)
		}
	}
}

func TestPID(t *testing.T) {
	p, err := Compile("program", "nvme:setup_rq; odd:words / size > 1 /; begin { print(1) }", catalog, Options{PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	const want = `nvme:setup_rq / ==(pid:u4, 7):bool / prints
odd:words / &&(==(pid:u4, 7):bool, >(size:u8, 1):bool):bool / prints
begin
	print(1)`
	if got := p.Dump(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMatch(t *testing.T) {
	p, err := Compile("program", "nvme:complete_rq / latency > 1ms /; nvme:complete_rq / size == 4KiB /; nvme:*", catalog, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		probe string
		e     table
		want  string
	}{
		{"nvme:complete_rq", table{"latency": uint64(2e6), "size": uint64(4096)}, "true true true"},
		{"nvme:complete_rq", table{"latency": uint64(1e6), "size": uint64(4096)}, "false true true"},
		{"nvme:complete_rq", table{"size": uint64(1)}, "false false true"},
		{"nvme:setup_rq", table{"size": uint64(4096)}, "false false true"},
		{"ib:modify_qp", table{}, "false false false"},
	} {
		var got []string
		for _, c := range p.Clauses() {
			ok, err := c.match(fixture(test.probe), test.e)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(ok))
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s %v: got %s, want %s", test.probe, test.e, got, test.want)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, test := range conditions {
		f.Add(test.src)
	}
	for _, file := range []string{"errors.txt", "programs.txt"} {
		for src := range cases(f, file) {
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src string) {
		p, err := Compile("program", src, catalog, Options{})
		if err != nil {
			checkErrors(t, src, err)
			return
		}
		p.Dump()
		runEvents(t, p)
	})
}

// runEvents runs the clauses on events in user space: the typed tree has to be one that the engine understands.
func runEvents(t *testing.T, p *Program) {
	m := &machine{
		stores: map[*mapInfo]mapStore{}, printer: output.NewPrinter(io.Discard, output.Text, time.Unix(0, 0)),
		now: func() uint64 { return 2 }, started: 1, ctx: t.Context(),
	}
	for _, info := range p.maps {
		m.stores[info] = newUserStore(info, 100)
	}
	for _, c := range p.Clauses() {
		for _, probe := range c.Probes {
			b, err := compileBody(c.bodies[probe])
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			for _, e := range []table{{"nsecs": uint64(3)}, full(probe)} {
				if err := m.run(b, &scope{event: e}); err != nil {
					t.Errorf("%s on %v: %v", c, e, err)
				}
			}
		}
	}
}

// checkErrors makes sure that err is a list of mistakes within src.
func checkErrors(t *testing.T, src string, err error) {
	list, ok := err.(syntax.ErrorList)
	if !ok || len(list) == 0 {
		t.Errorf("%T %v", err, err)
	}
	lines := strings.Split(src, "\n")
	for _, e := range list {
		if e.Line < 1 || e.Line > len(lines) || e.Col < 1 || e.EndCol < e.Col || e.EndCol > utf8.RuneCountInString(lines[e.Line-1])+1 {
			t.Errorf("%d:%d-%d is not within the program: %v", e.Line, e.Col, e.EndCol, e)
		}
	}
}

// full is an event of p without absent fields.
func full(p *event.Probe) table {
	e := table{}
	for _, f := range p.Fields {
		e[f.Name] = map[event.Kind]any{event.Int: int64(-1), event.Uint: uint64(1), event.Bool: true,
			event.String: "fio", event.GID: strings.Repeat("\xfe", 16)}[f.Type.Kind]
	}
	return e
}

// Groups are those of the probes that are named, if they are.
func TestGroups(t *testing.T) {
	for _, test := range []struct {
		program string
		want    []string
	}{
		{"syscall:enter", []string{"syscall"}},
		{"nvme:*_rq, ib:modify_qp /ret != 0/ { @ = count() } interval:1s { print(@) }", []string{"nvme", "ib", "interval"}},
		{"begin { @x = 1 }", []string{"begin"}},
		{"ret != 0", nil},
		{"i*:modify_qp", nil},
		{"nvme:timeout ib?:x", nil},
		{"syscall:enter {", nil},
		{"", nil},
	} {
		if got := Groups(test.program); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.program, got, test.want)
		}
	}
}

// Elements of keys are called like their fields, or as the program says, wherever that is.
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
		p, err := Compile("program", src, catalog, Options{})
		if err != nil {
			t.Errorf("%s:\n%v", src, err)
		} else if got := strings.Join(p.maps[0].names, "|"); got != want {
			t.Errorf("%s: got %q, want %q", src, got, want)
		}
	}
}
