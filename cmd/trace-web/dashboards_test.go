package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"trace"
	"trace/lang/metrics/family"
	"trace/lang/serve/config"
)

// named are names of metrics, as queries have them, with their labels.
type named map[string][]string

func (m named) add(families []family.Family) {
	for _, f := range families {
		switch f.Kind {
		case family.Distribution: // the last one with native buckets
			m[f.Name+"_bucket"], m[f.Name+"_count"], m[f.Name] = append([]string{"le"}, f.Labels...), f.Labels, f.Labels
		case family.Summary:
			m[f.Name+"_sum"], m[f.Name+"_count"] = f.Labels, f.Labels
		default:
			m[f.Name] = f.Labels
		}
	}
}

// metricsOf returns what a configuration exports: its programs run on a recording of all their probes.
func metricsOf(t *testing.T, file string) named {
	t.Helper()
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	host, err := trace.OpenRecording("../../scripts/testdata/triage.rec")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	all := named{}
	all.add(family.About())
	for _, spec := range c.Programs {
		p, err := host.Compile(spec.Text.Name, spec.Text.Content, spec.Params)
		if err != nil {
			t.Fatal(err)
		}
		run, err := p.Start(t.Context(), trace.Output(io.Discard, "text"))
		if err != nil {
			t.Fatal(err)
		}
		<-run.Done()
		s, err := run.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		described := family.Config{Program: spec.Name, Maps: map[string]family.MapConfig{}}
		for name, m := range spec.Maps {
			described.Maps[name] = family.MapConfig{Metric: m.Metric, Help: m.Help}
		}
		exporter := family.New(described)
		if err := exporter.Check(s.Tables); err != nil {
			t.Error(err)
		}
		all.add(exporter.Families(s))
		run.Close()
	}
	return all
}

// documented adds the metrics of the service itself, whose table another test compares with the service.
func (m named) documented(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(trace_\\w+)` \\| \\w+ \\| `?([^`|]*)`? \\|").FindAllStringSubmatch(string(text), -1) {
		m[row[1]] = strings.Fields(row[2])
	}
}

var (
	metricNames = regexp.MustCompile(`\btrace_\w+`)
	grouping    = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matching    = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
)

// check compares the names in a query with the metrics. A label in it must be on each of its metrics, le on buckets; instance is
// Prometheus' own.
func (m named) check(t *testing.T, where, query string) {
	t.Helper()
	labels := map[string]bool{}
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for l := range strings.SplitSeq(g[1], ", ") {
			labels[l] = true
		}
	}
	for _, l := range matching.FindAllStringSubmatch(query, -1) {
		labels[l[1]] = true
	}
	delete(labels, "instance")
	delete(labels, "__name__")
	for _, name := range metricNames.FindAllString(query, -1) {
		has, is := m[name]
		if !is {
			t.Errorf("%s: there is no metric %s: %s", where, name, query)
			continue
		}
		for l := range labels {
			if !slices.Contains(has, l) && (l != "le" || strings.HasSuffix(name, "_bucket")) {
				t.Errorf("%s: %s has no label %s, it has %v: %s", where, name, l, has, query)
			}
		}
	}
}

// Each query of the dashboards and the rules finds metrics and labels of the configuration that is installed beside them, and each map of that
// configuration is on a dashboard.
func TestQueriesFindMetrics(t *testing.T) {
	all := metricsOf(t, "deploy/trace.yaml")
	all.documented(t)
	files, err := filepath.Glob("deploy/grafana/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v: dashboards are %v", err, files)
	}
	shown := ""
	for _, file := range files {
		for where, query := range queriesOf(t, file) {
			all.check(t, where, query)
			shown += query + "\n"
		}
	}
	for _, r := range rulesOf(t) {
		// The colons of recorded metrics, which PromQL joins to a name.
		all.check(t, r.Record+r.Alert, regexp.MustCompile(`\w+:\w+:\w+`).ReplaceAllString(r.Expr, "1"))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if regexp.MustCompile(`^trace_(rdma|nvme|host)_\w+_(total|bucket|count)$`).MatchString(name) && !strings.Contains(shown, name) {
			t.Errorf("no dashboard shows %s", name)
		}
	}
}

// queriesOf returns the queries of a dashboard, by what they are for.
func queriesOf(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			Title   string
			Targets []struct {
				Expr, LegendFormat string
				Exemplar           bool
			}
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	queries := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Type == "query" { // label_values(SERIES, LABEL)
			queries[file+", variable "+v.Name] = regexp.MustCompile(`label_values\((.*), (\w+)\)$`).ReplaceAllString(v.Query, "by ($2) $1")
		}
	}
	row := ""
	for _, p := range d.Panels {
		if len(p.Targets) == 0 {
			row = p.Title
		}
		for _, target := range p.Targets {
			where := file + ", " + row + ": " + p.Title + ": " + target.LegendFormat
			queries[where] = target.Expr
			if slowest := strings.HasPrefix(target.Expr, "histogram_quantile(0.99"); target.Exemplar != slowest { // once a panel is enough
				t.Errorf("%s: exemplars are shown: %v, want %v", where, target.Exemplar, slowest)
			}
		}
	}
	return queries
}

type rule struct{ Record, Alert, Expr string }

func rulesOf(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile("deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var f struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// The rules are right, and raise their alerts for the series in rules_test.yaml.
func TestRules(t *testing.T) {
	folder, err := filepath.Abs("deploy/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	out := inDebian(t, debian(t, "prometheus"), folder, "cd /given; promtool check rules rules.yaml; promtool test rules rules_test.yaml")
	if n := len(rulesOf(t)); strings.Count(out, "SUCCESS") != 2 || n == 0 {
		t.Errorf("%d rules\n%s", n, out)
	}
}

// Each query of a histogram answers, once, whether Prometheus keeps its classic buckets, its native ones, or both.
func TestBothKindsOfBuckets(t *testing.T) {
	root := debian(t, "prometheus")
	all, queries := metricsOf(t, "deploy/trace.yaml"), histogramQueries(t)
	if len(queries) < 40 {
		t.Fatalf("%d queries of histograms: %v", len(queries), queries)
	}
	var tests []map[string]any
	for _, kept := range []struct{ classic, native bool }{{classic: true}, {native: true}, {classic: true, native: true}} {
		tests = append(tests, map[string]any{
			"name": fmt.Sprintf("%+v", kept), "interval": "1m", "input_series": all.histograms(kept.classic, kept.native), "promql_expr_test": queries,
		})
	}
	text, err := yaml.Marshal(map[string]any{"evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "test.yaml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := inDebian(t, root, folder, "promtool test rules /given/test.yaml || true"); !strings.Contains(out, "SUCCESS") {
		t.Errorf("promtool: %s", out)
	}
}

// histograms returns series of each histogram for promtool: 100 values a second, all above 1 and at most 2.
func (m named) histograms(classic, native bool) (series []map[string]string) {
	add := func(name, values string, labels ...string) {
		series = append(series, map[string]string{"series": name + "{" + strings.Join(labels, ", ") + "}", "values": values})
	}
	for name, has := range m {
		base, is := strings.CutSuffix(name, "_bucket")
		if !is {
			continue
		}
		labels := []string{`instance="n1"`}
		for _, l := range has[1:] { // the first is le
			labels = append(labels, l+`="a"`)
		}
		if classic {
			for le, values := range map[string]string{"1": "0x20", "2": "0+6000x20", "+Inf": "0+6000x20"} {
				add(name, values, slices.Concat(labels, []string{`le="` + le + `"`})...)
			}
			add(base+"_count", "0+6000x20", labels...)
		}
		if native {
			add(base, "{{schema:0 count:0 buckets:[0 0]}}+{{schema:0 count:6000 buckets:[0 6000]}}x20", labels...)
		}
	}
	return series
}

// expected is a query and what promtool expects of it after ten minutes.
type expected struct {
	Expr    string           `yaml:"expr"`
	At      string           `yaml:"eval_time"`
	Samples []map[string]any `yaml:"exp_samples"`
}

// histogramQueries returns the queries of dashboards and rules that read histograms, as they are with the series above.
func histogramQueries(t *testing.T) (all []expected) {
	t.Helper()
	files, err := filepath.Glob("deploy/grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, file := range files {
		maps.Copy(queries, queriesOf(t, file))
	}
	for _, r := range rulesOf(t) {
		queries["rule "+r.Record+r.Alert] = r.Expr
	}
	variable := regexp.MustCompile(`"\$\w+"`)
	values := regexp.MustCompile(`^by (\(\w+\)) (.*)$`) // of a variable, see queriesOf
	for _, query := range queries {
		if !regexp.MustCompile(`_seconds(_bucket|_count|\(_count\))`).MatchString(query) {
			continue
		}
		query, want := strings.ReplaceAll(variable.ReplaceAllString(query, `".*"`), "$__rate_interval", "5m"), 1
		switch {
		case values.MatchString(query):
			query = values.ReplaceAllString(query, "count(count by $1 ($2))")
		case strings.Contains(query, "histogram_quantile"):
			query = "count((" + query + ") > 1 <= 2)"
		default:
			query, want = "sum("+query+")", 100
		}
		all = append(all, expected{query, "10m", []map[string]any{{"labels": "{}", "value": want}}})
	}
	return all
}
