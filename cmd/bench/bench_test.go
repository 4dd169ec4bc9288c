package main

import (
	"math"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 100}, 3},
	} {
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.values, got, test.want)
		}
	}
}

func TestTable(t *testing.T) {
	rows := []row{
		{figure: "a", unit: "ns", digits: 1, scale: 1, ours: []float64{30, 29, 31}, peer: "p", theirs: []float64{40, 60, 50}, target: 0.6},
		{figure: "b", unit: "ns", scale: 1, ours: []float64{31}, peer: "p", theirs: []float64{50}, target: 0.6},
		{figure: "c", unit: "M/s", digits: 2, scale: 1e-6, ours: []float64{5e6}, peer: "p", theirs: []float64{2e6}, target: 2.5, atLeast: true},
		{figure: "d", unit: "M/s", scale: 1e-6, ours: []float64{4e6}, peer: "p", theirs: []float64{2e6}, target: 2.5, atLeast: true},
		{figure: "e", unit: "ns", scale: 1, peer: "p", theirs: []float64{2}, target: 1},
		{figure: "f", unit: "ns", scale: 1, ours: []float64{2}, peer: "p", target: 1},
		{figure: "g", unit: "MB", digits: 1, scale: 1, ours: []float64{20.5}, target: 20},
		{figure: "h", unit: "ns", scale: 1, ours: []float64{1}, peer: "p", theirs: []float64{2}},
	}
	want := `
| a | 30.0 ns (29.0..31.0) | p | 50.0 ns (40.0..60.0) | 0.60 | ≤ 0.6 | yes |
| b | 31 ns | p | 50 ns | 0.62 | ≤ 0.6 | **no** |
| c | 5.00 M/s | p | 2.00 M/s | 2.50 | ≥ 2.5 | yes |
| d | 4 M/s | p | 2 M/s | 2.00 | ≥ 2.5 | **no** |
| e | – | p | 2 ns | – | ≤ 1 | not measured |
| f | 2 ns | p | – | – | ≤ 1 | not measured |
| g | 20.5 MB | – | – | – | ≤ 20 MB | **no** |
| h | 1 ns | p | 2 ns | 0.50 | – | – |
`
	var got strings.Builder
	table(&got, rows)
	if !strings.HasSuffix(got.String(), want) {
		t.Errorf("got\n%s\nwant at the end\n%s", got.String(), want)
	}
}

func TestLineCounter(t *testing.T) {
	const text = "42 a 42\n7 b 42\n42 c 1\n421 d 2\n 42 e\n42 f 1\n"
	for size := 1; size <= len(text); size++ {
		c := newLineCounter(42)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := c.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if all, own := c.all.Load(), c.own.Load(); all != 6 || own != 3 {
			t.Errorf("in pieces of %d: %d lines, %d of thread 42; want 6, 3", size, all, own)
		}
	}
}

// The outputs are bpftrace's.
func TestCounted(t *testing.T) {
	outputs := []string{
		"\n\n@: 4500123\n",
		"\n\n@[7]: 9\n@[42]: 4500123\n@[421]: 3\n",
		"\n\n@[7]:\n[64, 128)              1 |@@@|\n\n@[42]:\n[0]                    2 |   |\n[64, 128)        4500123 |@@@|\n\n",
	}
	for i, output := range outputs {
		w := counting()[i]
		if n, err := w.counted(output, 42); err != nil || n != 4500123 {
			t.Errorf("%s: got %d, %v", w.name, n, err)
		}
		if n, err := w.counted("\n\n", 42); err == nil {
			t.Errorf("%s: got %d from nothing", w.name, n)
		}
	}
}

func TestWatcher(t *testing.T) {
	w := newWatcher()
	for _, piece := range []string{"WARNING: not Attached 1\nAtta", "ched 1 pr"} {
		select {
		case <-w.attached:
			t.Fatalf("seen as attached after %q", w)
		default:
		}
		if _, err := w.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-w.attached:
	default:
		t.Errorf("not seen as attached after %q", w)
	}
}

func TestDisturbed(t *testing.T) {
	if (load{before: 100, after: 102}).disturbed() {
		t.Error("2 % is a disturbance")
	}
	if !(load{before: 130, after: 100}).disturbed() || !(load{before: 100, after: 130}).disturbed() {
		t.Error("30 % is none")
	}
	if got := (load{before: 100, traced: 141, after: 102}).added(); math.Abs(got-40) > 1e-9 {
		t.Errorf("added %v ns, want 40", got)
	}
}

func TestEachOperation(t *testing.T) {
	type stats = map[ebpf.ProgramID]ebpf.ProgramStats
	before := stats{1: {Runtime: 100, RunCount: 1}, 2: {Runtime: 50, RunCount: 7}}
	after := stats{1: {Runtime: 300, RunCount: 11}, 2: {Runtime: 150, RunCount: 16}, 3: {Runtime: 5, RunCount: 1}}
	if ns, ran := eachOperation(before, after); ns != 30.5 || !ran {
		t.Errorf("%v ns, %v", ns, ran)
	}
	if _, ran := eachOperation(after, after); ran {
		t.Error("nothing ran")
	}
}

func TestReadCommands(t *testing.T) {
	const printed = "BenchmarkNvmeLatency/C \t1000\t 4328763 ns/op\t       802.3 accounted-ns/command\t       -0.9 added-ns/command\nPASS\n"
	var f figures
	if text, err := f.readCommands(printed); err != nil || text != "802.3 ns" || f.accounted[0] != 802.3 || f.added[0] != -0.9 {
		t.Errorf("%q, %v, %+v", text, err, f)
	}
	if _, err := f.readCommands("PASS\n"); err == nil {
		t.Error("there are figures in nothing")
	}
}
