package run_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/run"
)

// tried runs the tests or the benchmarks of a program. It returns what they print, and what is reported besides, without digits of
// times.
func tried(t *testing.T, kind ir.ClauseKind, f output.Format, program string) (printed string, failed bool) {
	t.Helper()
	trials, err := run.NewTrials(run.Options{Name: "program", Text: program, Format: f}, kind)
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	var out, notes bytes.Buffer
	data := run.NewStream(t.Context(), nil, &out)
	ended, err := trials.Run(t.Context(), run.Outputs{Data: data, Note: func(n run.Note) {
		if m, is := n.(run.Message); is {
			notes.WriteString(m.Text + "\n")
		}
	}})
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	defer ended.Close()
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`\x1b\[\d+m|\d+ (ns|μs|ms|s)\b`).ReplaceAllString(notes.String()+out.String(), "")
	text = regexp.MustCompile(`("duration"|"average"|"iters"):[1-9]\d*`).ReplaceAllString(text, "$1:N")
	return regexp.MustCompile(`(?m) [1-9]\d* +[1-9]\d*$`).ReplaceAllString(text, " N N"), ended.Report.TrialsFailed
}

// A test that passed shows nothing of what it printed. The begin and end clauses run around all of them, and other clauses do not.
const tests = `begin { @n = 5; print("begin") }
test:sums { print("hidden"); @n += 2; return @n - 7 }
test:returns { print(@n); printf("\n%d\n", 2); return 1 }
test:asserts { assert(@n == 8, "not 8") }
test:exits { exit(3) }
test:leaves { exit(); errorf("never") }
test:low-bits { return 4294967296 }
test:absent / false / { return 1 }
bench:b { print("never") }
interval:1s { print("never") }
end { print(@n) }`

func TestTests(t *testing.T) {
	const want = `begin
[==========] Running 7 tests.
[ RUN      ] sums
[       OK ] sums ()
[ RUN      ] returns
@n: 7
2
[  FAILED  ] returns ()
[ RUN      ] asserts
program:4:16-40: ERROR: assert failed: not 8
[  FAILED  ] asserts ()
[ RUN      ] exits
[  FAILED  ] exits ()
[ RUN      ] leaves
[       OK ] leaves ()
[ RUN      ] low-bits
[       OK ] low-bits ()
[ RUN      ] absent
[       OK ] absent ()
[==========] 7 tests ran.
[  PASSED  ] 4 tests.
[  FAILED  ] 3 tests, listed below:
[  FAILED  ] returns
[  FAILED  ] asserts
[  FAILED  ] exits
@n: 7
`
	if got, failed := tried(t, ir.OnTest, output.Text, tests); got != want || !failed {
		t.Errorf("failed: %v\n%s", failed, got)
	}
	if got, failed := tried(t, ir.OnTest, output.Text, "test:a { @ = 1 }"); failed || strings.Contains(got, "FAILED") || strings.Contains(got, "@") {
		t.Errorf("failed: %v\n%s", failed, got)
	}
}

func TestTestsAsJSON(t *testing.T) {
	const want = `{"type":"test_result","data":{"a":{"duration":N,"passed":true,"output":"x\u000a"}}}
{"type":"test_result","data":{"b":{"duration":N,"passed":false,"output":""}}}
`
	if got, failed := tried(t, ir.OnTest, output.JSON, `test:a { print("x") } test:b { return 1 }`); got != want || !failed {
		t.Errorf("failed: %v\n%s", failed, got)
	}
}

// A benchmark that fails or returns a value has no result.
func TestBenchmarks(t *testing.T) {
	const program = `bench:quick { @ = count(); print("hidden") } bench:skipped { return 1 } bench:wrong { errorf("x") } test:t { print("never") }
bench:slow { for ($i : 0..100000) { @sum = sum($i) } } end { print(@ > 10) }`
	const want = `ERROR: Benchmark 'wrong' failed.
Benchmark                                Time(ns)       Iterations
------------------------------------------------------------------
quick                                    N N
slow                                     N N
true
`
	if got, failed := tried(t, ir.OnBench, output.Text, program); got != want || !failed {
		t.Errorf("failed: %v\n%s", failed, got)
	}
	const asJSON = `{"type":"benchmark_result","data":{"a":{"average":N,"iters":N}}}` + "\n"
	if got, failed := tried(t, ir.OnBench, output.JSON, `bench:a { @ = 1 }`); got != asJSON || failed {
		t.Errorf("failed: %v\n%s", failed, got)
	}
}

func TestTrialsRefuse(t *testing.T) {
	for _, c := range []struct {
		kind          ir.ClauseKind
		f             output.Format
		program, want string
	}{
		{ir.OnTest, output.CSV, "test:a {}", "-f csv has no results of tests: use -f text or -f json"},
		{ir.OnTest, output.HTML, "test:a {}", "has no results of tests"},
		{ir.OnTest, output.Text, "bench:a {}", "no probe is attached: --test runs the probes test:NAME, --bench the probes bench:NAME, and none of them the others"},
		{ir.OnBench, output.Text, "test:a {} interval:1s {}", "no probe is attached"},
	} {
		if _, err := run.NewTrials(run.Options{Text: c.program, Format: c.f}, c.kind); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %s: %v", c.program, c.f, err)
		}
	}
	rec := must(run.OpenRecordings("../../scripts/testdata/nvme_latency.rec"))
	defer rec.Close()
	if _, err := run.NewReplay(run.Options{Text: "test:a {}"}, rec); err == nil || !strings.Contains(err.Error(), "no probe is attached") {
		t.Error(err)
	}
}
