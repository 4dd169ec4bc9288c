//go:build linux

package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trace/lang/metrics/family"
	"trace/scripts"
)

// mistakeOf returns why a configuration is refused, with file for its name, or "".
func mistakeOf(t *testing.T, text string) string {
	t.Helper()
	file := configured(t, text)
	err := Main(t.Context(), Settings{Options: Options{Config: file, Log: slog.New(slog.DiscardHandler)}, Check: true}, io.Discard)
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), file, "file")
}

// Two metrics may not share a name: of a series, or of a family in OpenMetrics. The mistake has both places.
func TestClashes(t *testing.T) {
	const help = "\nhelp: give one of them another name: maps: {%s: {metric: NAME}}"
	two := func(a, programA, b, programB string) string {
		return fmt.Sprintf("programs:\n- name: %s\n  program: 'syscall:enter { %s }'\n- name: %s\n  program: 'syscall:enter { %s }'\n", a, programA, b, programB)
	}
	for _, test := range []struct{ text, want string }{
		{two("s", "@lat_x = count()", "s_lat", "@x = count()"), "file:4:9: @x of program s_lat would have the name trace_s_lat_x_total, which @lat_x of program s has, at file:2:9\n    - name: s_lat\n            ^~~~~" + fmt.Sprintf(help, "x")},
		{two("s", "@lat_x = count()", "t", "@x = count()") + "  maps: {x: {metric: s_lat_x}}", "file:6:22: @x of program t would have the name trace_s_lat_x_total, which @lat_x of program s has, at file:2:9"},
		{two("s", "@a = hist(elapsed)", "t", "@ = gauge(1)") + "  maps: {'@': {metric: s_a_seconds_count}}", "file:6:24: @ of program t would have the name trace_s_a_seconds_count, which @a of program s has, at file:2:9"},
		{two("s", "@a = hist(1)", "s_a", "@sum = gauge(1)"), "would have the name trace_s_a_sum, which"},
		{two("s_a", "@bucket = gauge(1)", "s", "@a = hist(1)"), "would have the name trace_s_a_bucket, which"},
		{two("s", "@a = stats(1)", "s_a", "@count = gauge(1)"), "would have the name trace_s_a_count, which"},
		{two("s", "@a = stats(1)", "s_a", "@created = gauge(1)"), "would have the name trace_s_a_created, which"},
		{two("s", "@a = count()", "s_a", "@created = gauge(1)"), "would have the name trace_s_a_created, which"},
		{two("s", "@a = count()", "s_a", "@ = gauge(1)"), "would have the name trace_s_a, which"},
		{two("s", "@a = count()", "s_a", "@total = gauge(1)"), "would have the name trace_s_a_total, which"},
		{two("s", "@a = count(); @b = count()", "t", "@ = count()") + "- {name: u, program: 'begin { @a = count(); @b = count() }', maps: {a: {metric: x}, b: {metric: x}}}", "file:6:97: @b of program u would have the name trace_x_total, which @a of program u has, at file:6:81"},
		{two("events", "@ = count()", "t", "@ = count()"), "file:2:9: @ of program events would have the name trace_events_total, which trace itself has\n    - name: events\n            ^~~~~~" + fmt.Sprintf(help, `"@"`)},
		{two("otlp", "@lost = count()", "t", "@ = count()"), "would have the name trace_otlp_lost_total, which trace itself has"},
		{two("program", "@up = gauge(1)", "t", "@ = count()"), "would have the name trace_program_up, which trace itself has"},
		{two("map", "@keys = gauge(1)", "t", "@ = count()"), "would have the name trace_map_keys, which trace itself has"},
		{two("config", "@last_reload_successful = gauge(1)", "t", "@ = count()"), "would have the name trace_config_last_reload_successful, which trace itself has"},
		// What only looks alike is none.
		{two("s", "@a = count()", "s_a", "@sum = gauge(1); @count = count(); @bucket = count()"), ""},
		{two("s", "@a = gauge(1)", "s_a", "@created = gauge(1)"), ""},
		{two("s", "@a = hist(1)", "s_a", "@sum = count(); @sums = gauge(1)"), ""},
		{two("s", "@lat_x = count()", "s_lat", "@x = gauge(1)") + "  maps: {x: {metric: s_lat_y}}", ""},
		{two("s", "@lat_x[kstack] = count()", "s_lat", "@x = count()"), ""}, // a profile has no name
		{two("events", "@x = count()", "otlp", "@ = count()"), ""},
	} {
		if got := mistakeOf(t, test.text); !strings.HasPrefix(got, test.want) && !strings.Contains(strings.SplitN(got, "\n", 2)[0], test.want) || test.want == "" && got != "" {
			t.Errorf("%s: got %s\nwant %s", test.text, got, test.want)
		}
	}
}

// A reload with such a mistake keeps what ran, and scrapes go on.
func TestClashAtReload(t *testing.T) {
	text := strings.ReplaceAll(counting, "$1", pid())
	s, change := running(t, text)
	attached(t, s)
	call(3)
	if err := change(text + "  - {name: call, program: 'begin { @s_n = count() }', maps: {s_n: {metric: calls_n}}}\n"); err == nil || !strings.Contains(err.Error(), "would have the name trace_calls_n_total, which @n of program calls has, at ") {
		t.Error(err)
	}
	if n := series(t, s, "trace_calls_n_total"); n == nil || n.Value != 3 {
		t.Errorf("%+v", n)
	}
	if ok := series(t, s, "trace_config_last_reload_successful"); ok.Value != 0 {
		t.Errorf("%+v", ok)
	}
}

// The scripts that come with trace, and the default configuration, clash with nothing, also together.
func TestScriptsDoNotClash(t *testing.T) {
	text, err := os.ReadFile("../../cmd/trace-web/deploy/trace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	all.Write(text)
	for _, s := range scripts.All() {
		fmt.Fprintf(&all, "  - {name: %s, script: %s, events: otlp}\n", s.Name, s.Name)
	}
	if got := mistakeOf(t, all.String()); got != "" {
		t.Error(got)
	}
}

// Of very many clashes the first ones are shown.
func TestManyClashes(t *testing.T) {
	var b strings.Builder
	b.WriteString("programs:\n")
	for i := range 50 {
		fmt.Fprintf(&b, "- {name: p%d, program: 'begin { @x = count() }', maps: {x: {metric: x}}}\n", i)
	}
	if got := mistakeOf(t, b.String()); strings.Count(got, "would have the name") != mostMistakes || !strings.HasSuffix(got, "\nand 29 more names are taken") {
		t.Error(got)
	}
}

// Of very many programs with mistakes not all are checked, and the check ends when the user wants it to.
func TestManyWrongPrograms(t *testing.T) {
	text := "programs:\n"
	for i := range 20_000 {
		text += fmt.Sprintf("- {name: p%d, program: 'x'}\n", i)
	}
	if got := mistakeOf(t, text); strings.Count(got, "\nprogram p") != mostMistakes-1 || !strings.HasSuffix(got, "\n19980 more programs were not checked") {
		t.Errorf("%.2000s", got)
	}
	good := configured(t, strings.ReplaceAll(text, "'x'", "'begin { @ = count() }'"))
	ctx, end := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	time.AfterFunc(time.Second, func() { end(interrupted) })
	began := time.Now()
	_, err := New(ctx, Options{Config: good, Log: slog.New(slog.DiscardHandler)})
	if took := time.Since(began); !errors.Is(err, interrupted) || took > 10*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	if _, err := load(ctx, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("it is read")
	}
}

// A program whose maps cannot be read, or not in time, takes no other one along: it is left out, counted and logged.
func TestScrapeWithout(t *testing.T) {
	var log lockedBuffer
	s, _ := running(t, strings.ReplaceAll(counting, "$1", pid()), &log)
	attached(t, s)
	call(5)
	programs, _ := s.now()
	other := programs[1]
	if err := other.run.Close(); err != nil {
		t.Fatal(err)
	}
	if n := series(t, s, "trace_calls_n_total"); n == nil || n.Value != 5 {
		t.Errorf("%+v", n)
	}
	if n := series(t, s, "trace_scrape_failures_total", "other"); n == nil || n.Value != 2 {
		t.Errorf("%+v", n)
	}
	if n := series(t, s, "trace_scrape_failures_total", "calls"); n == nil || n.Value != 0 {
		t.Errorf("%+v", n)
	}
	if !strings.Contains(log.String(), "a scrape is without its metrics: its maps: the run is closed") {
		t.Error(log.String())
	}
	// One that takes long is read once, however many scrapes wait for it.
	p := programs[0]
	p.exporter.Read(func() (family.Snapshot, error) {
		for range 3 {
			if _, err := p.families(t.Context(), 20*time.Millisecond); err == nil || err.Error() != "its maps are not read after 20ms" {
				t.Error(err)
			}
		}
		return p.run.Snapshot()
	})
	waitFor(t, "the maps", func() bool { all, err := p.families(t.Context(), time.Minute); return err == nil && len(all) > 0 })
}
