package exec

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/lang/syntax"
	"trace/probes/event"
	"trace/probes/symbols"
)

func TestMatch(t *testing.T) {
	p, err := compile("program", "nvme:complete_rq / latency > 1ms /; nvme:complete_rq / size == 4KiB /; nvme:*", langtest.Catalog, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		probe string
		e     langtest.Table
		want  string
	}{
		{"nvme:complete_rq", langtest.Table{"latency": uint64(2e6), "size": uint64(4096)}, "true true true"},
		{"nvme:complete_rq", langtest.Table{"latency": uint64(1e6), "size": uint64(4096)}, "false true true"},
		{"nvme:complete_rq", langtest.Table{"size": uint64(1)}, "false false true"},
		{"nvme:setup_rq", langtest.Table{"size": uint64(4096)}, "false false true"},
		{"ib:modify_qp", langtest.Table{}, "false false false"},
	} {
		var got []string
		for _, c := range p.Clauses {
			ok, err := match(c, langtest.Fixture(test.probe), test.e)
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
		for src := range langtest.Cases(f, filepath.Join("../check/testdata", file)) {
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src string) {
		p, err := compile("program", src, langtest.Catalog, check.Options{})
		if err != nil {
			checkErrors(t, src, err)
			return
		}
		p.Dump()
		runEvents(t, p)
	})
}

// runEvents runs the clauses on events in user space: the engine must understand the typed tree.
func runEvents(t *testing.T, p *ir.Program) {
	m := &machine{
		stores: map[*ir.Map]mapStore{}, sink: output.NewPrinter(io.Discard, output.Text, event.NewWallClock(time.Unix(0, 0))),
		clock: func() uint64 { return 2 }, started: 1, ctx: t.Context(),
	}
	for _, info := range p.Maps {
		m.stores[info] = newUserStore(info, 100)
	}
	var err error
	if m.symbols, err = openSymbols(symbols.NewNames(1), newPatience(t.Context(), nil, t.Context(), false), p); err != nil {
		t.Fatal(err)
	}
	defer m.symbols.close()
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			b, err := compileBody(c.Sites[probe])
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			for _, e := range []langtest.Table{{"nsecs": uint64(3)}, full(probe)} {
				if err := m.run(b, &scope{setting: m.setting(2), event: e}); err != nil {
					t.Errorf("%s on %v: %v", c, e, err)
				}
			}
		}
	}
}

// checkErrors checks that err is a list of mistakes within src.
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
func full(p *event.Probe) langtest.Table {
	e := langtest.Table{}
	for _, f := range p.Fields {
		e[f.Name] = map[event.Kind]any{event.Int: int64(-1), event.Uint: uint64(1), event.Bool: true,
			event.String: "fio", event.GID: strings.Repeat("\xfe", 16)}[f.Type.Kind]
	}
	return e
}

// match reports whether the clause is for events of p and its predicate holds for e.
func match(c *ir.Clause, p *event.Probe, e event.Source) (bool, error) {
	b, ok := c.Sites[p]
	if !ok {
		return false, nil
	}
	if b.Pred == nil {
		return true, nil
	}
	v, err := newEvaluator(b.Pred)
	if err != nil {
		return false, err
	}
	holds, err := v.eval(&scope{event: e})
	return holds == true, err
}
