package lang

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trace/lang/syntax"
	"trace/probes"
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
	data, err := os.ReadFile(filepath.Join("testdata", "errors.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for test := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n====\n") {
		src, want, _ := strings.Cut(test, "\n----\n")
		_, err := Compile("program", src, catalog, Options{})
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s\n--- got\n%s\n--- want\n%s", src, got, want)
		}
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
	data, err := os.ReadFile(filepath.Join("testdata", "errors.txt"))
	if err != nil {
		f.Fatal(err)
	}
	for test := range strings.SplitSeq(string(data), "\n====\n") {
		src, _, _ := strings.Cut(test, "\n----\n")
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		p, err := Compile("program", src, catalog, Options{})
		if err != nil {
			if list, ok := err.(syntax.ErrorList); !ok || len(list) == 0 || strings.Contains(err.Error(), "bug in trace") {
				t.Errorf("%T %v", err, err)
			}
			return
		}
		for _, c := range p.Clauses() {
			for _, probe := range c.Probes {
				for _, e := range []table{{}, full(probe)} {
					if _, err := c.match(probe, e); err != nil {
						t.Errorf("%s on %v: %v", c, e, err)
					}
				}
			}
		}
	})
}

// full is an event of p without absent fields.
func full(p *probes.Probe) table {
	e := table{}
	for _, f := range p.Fields {
		e[f.Name] = map[probes.Kind]any{probes.Int: int64(-1), probes.Uint: uint64(1), probes.Bool: true,
			probes.String: "fio", probes.GID: strings.Repeat("\xfe", 16)}[f.Type.Kind]
	}
	return e
}
