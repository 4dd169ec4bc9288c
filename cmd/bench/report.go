package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A row of the table compares a figure of trace with a peer's, or with a limit.
type row struct {
	figure  string
	unit    string
	digits  int
	scale   float64 // of the values, for the unit
	ours    []float64
	peer    string // "" if there is only the limit
	theirs  []float64
	target  float64 // 0: there is none
	atLeast bool
}

// table writes the rows as Markdown.
func table(w io.Writer, rows []row) {
	fmt.Fprintln(w, "| figure | trace | compared with | its figure | ratio | target | met |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n",
			r.figure, r.text(r.ours), r.against(), r.text(r.theirs), r.ratioText(), r.targetText(), r.met())
	}
}

func (r row) text(values []float64) string {
	return spread(values, r.scale, r.digits, r.unit)
}

// spread writes the median of values, and from where to where they go.
func spread(values []float64, scale float64, digits int, unit string) string {
	if len(values) == 0 {
		return "–"
	}
	text := func(v float64) string { return fmt.Sprintf("%.*f", digits, v*scale) }
	middle := strings.TrimSpace(text(median(values)) + " " + unit)
	if len(values) == 1 {
		return middle
	}
	return fmt.Sprintf("%s (%s..%s)", middle, text(slices.Min(values)), text(slices.Max(values)))
}

// median returns the middle of values, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (r row) against() string {
	if r.peer == "" {
		return "–"
	}
	return r.peer
}

// compared returns the figure for the target, and whether it is known: the ratio, or without a peer the figure itself.
func (r row) compared() (float64, bool) {
	switch {
	case len(r.ours) == 0:
		return 0, false
	case r.peer == "":
		return median(r.ours) * r.scale, true
	case len(r.theirs) == 0:
		return 0, false
	}
	return median(r.ours) / median(r.theirs), true
}

func (r row) ratioText() string {
	ratio, known := r.compared()
	if !known || r.peer == "" {
		return "–"
	}
	return fmt.Sprintf("%.2f", ratio)
}

func (r row) targetText() string {
	if r.target == 0 {
		return "–"
	}
	sign, unit := "≤", ""
	if r.atLeast {
		sign = "≥"
	}
	if r.peer == "" {
		unit = " " + r.unit
	}
	return fmt.Sprintf("%s %v%s", sign, r.target, unit)
}

func (r row) met() string {
	v, known := r.compared()
	switch {
	case !known:
		return "not measured"
	case r.target == 0:
		return "–"
	case v == r.target, v < r.target != r.atLeast:
		return "yes"
	}
	return "**no**"
}

// rows are the comparisons, in the order of the table.
func (b *bench) rows(binary int64) []row {
	var rows []row
	ns := func(figure string, ours []float64, peer string, theirs []float64, target float64) row {
		return row{figure: figure, unit: "ns", digits: 1, scale: 1, ours: ours, peer: peer, theirs: theirs, target: target}
	}
	all := counting()
	for _, w := range append(all, timed()) {
		rows = append(rows, ns(w.name, b.of(w, "trace").added, "bpftrace", b.of(w, "bpftrace").added, w.target))
	}
	for _, w := range all {
		rows = append(rows, ns(w.name, b.of(w, "trace").added, "C", b.of(w, "C").added, targetC))
	}
	quantile, ownHist := quantiles()
	rows = append(rows, ns(quantile.name, b.of(quantile, "trace").added, "trace, "+ownHist.name, b.of(ownHist, "trace").added, quantile.target))
	rows = append(rows, ns(quantile.name, b.of(quantile, "trace").added, "bpftrace, "+ownHist.name, b.of(ownHist, "bpftrace").added, 0.6))
	count, f, r, wait := all[0], flood(), recorded(), waits()
	rows = append(rows, ns(wait.name, b.of(wait, "trace").accounted, "bpftrace", b.of(wait, "bpftrace").accounted, wait.target))
	nvme := commands()
	rows = append(rows, ns(nvme.name, b.of(nvme, "trace").accounted, "C", b.of(nvme, "C").accounted, nvme.target))
	ours, theirs := b.of(count, "trace"), b.of(count, "bpftrace")
	return append(rows,
		row{figure: "start to attached", unit: "ms", digits: 1, scale: 1, ours: ours.start, peer: "bpftrace", theirs: theirs.start, target: 0.12},
		row{figure: "peak resident memory", unit: "MB", digits: 1, scale: 1, ours: ours.peak, peer: "bpftrace", theirs: theirs.peak, target: 0.25},
		row{figure: f.name, unit: "M lines/s", digits: 2, scale: 1e-6, ours: b.of(f, "trace").delivered, peer: "bpftrace",
			theirs: b.of(f, "bpftrace").delivered, target: f.target, atLeast: true},
		row{figure: r.name, unit: "M events/s", digits: 2, scale: 1e-6, ours: b.of(r, "trace").delivered, peer: "calls made",
			theirs: b.of(r, "trace").made, target: r.target, atLeast: true},
		row{figure: "static binary", unit: "MB", digits: 1, scale: 1, ours: []float64{megabytes(binary)}, target: 20})
}

// details writes what the rows leave out, for each workload and peer.
func (b *bench) details(w io.Writer, peers []string) {
	fmt.Fprintln(w, "| program | peer | ns added | ns by the kernel's account | start, ms | peak memory, MB | its own word |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, load := range append(costly(), commands()) {
		for _, p := range peers {
			f := b.of(load, p)
			if len(f.added) == 0 {
				continue
			}
			fmt.Fprintf(w, "| %s | %s |", load.name, p)
			for _, values := range [][]float64{f.added, f.accounted, f.start, f.peak} {
				fmt.Fprintf(w, " %s |", spread(values, 1, 1, ""))
			}
			fmt.Fprintf(w, " %s |\n", f.attached)
		}
	}
}

// lost writes how much of the flood was not printed.
func (b *bench) lost(w io.Writer, peers []string) {
	for _, p := range peers {
		if f := b.of(flood(), p); len(f.lost) > 0 {
			fmt.Fprintf(w, "- Calls of the flood that %s did not print: %s.\n", p, spread(f.lost, 1, 1, "%"))
		}
	}
}
