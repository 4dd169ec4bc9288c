package check

import (
	"fmt"
	"strings"
	"testing"

	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/syntax"
)

// doubling returns a program whose tuple has 2^n elements.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString("begin { $t0 = 1; ")
	for i := range n {
		fmt.Fprintf(&b, "$t%d = ($t%d, $t%[2]d); ", i+1, i)
	}
	return b.String() + "}"
}

// around returns an expression with another one around it n times.
func around(inner, before, after string, n int) string {
	return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
}

// list returns n values between commas.
func list(value string, n int) string { return strings.TrimSuffix(strings.Repeat(value+", ", n), ", ") }

// TestBounds compiles programs that are as large as they may be, and such that are larger.
func TestBounds(t *testing.T) {
	const tuple, key = "a tuple has more than 256 elements", "a key has more than 256 elements"
	const operations, expressions = "the expression becomes too large", "the clause becomes too large"
	const states = "the patterns of the program become too large"
	for _, test := range []struct{ name, src, want string }{
		{"a tuple of 256", doubling(8), ""},
		{"a tuple of 512", doubling(9), tuple},
		{"a tuple of 2^1000", doubling(1000), tuple},
		{"a tuple of a map", "begin { @t = (1, 2); " + strings.Replace(doubling(9), "begin { $t0 = 1", "$t0 = (@t, 1)", 1), tuple},
		{"256 in a row", "begin { $t = (" + list("1", 256) + ") }", ""},
		{"257 in a row", "begin { $t = (" + list("1", 257) + ") }", tuple},
		{"nested", "begin { $t = " + around("1", "(", ", 1)", 255) + " }", ""},
		{"nested deeper", "begin { $t = " + around("1", "(", ", 1)", 256) + " }", tuple},
		{"a record", "begin { $t = (a = (" + list("1", 200) + "), b = (" + list("1", 57) + ")) }", tuple},
		{"a key of 256", "nvme:complete_rq { @[" + list("pid", 256) + "] = count() }", ""},
		{"a key of 257", "nvme:complete_rq { @[" + list("pid", 257) + "] = count() }", key},
		{"a tuple in a key", "begin { $t = (" + list("1", 256) + "); @[$t, 1] = 1 }", key},
		{"what topk ranks", "nvme:complete_rq { @[" + list("pid", 256) + "] = topk(pid, 3) }", key},
		{"an element of a map", "begin { $t = (" + list("1", 200) + "); @[$t] = $t; for ($kv : @) { $x = $kv } }", "a map has more than 256 elements"},

		{"a condition for each element", "nvme:complete_rq / " + around("pid == 1", "((", ") ? (1, 2) : (3, 4)) == (1, 2)", 5) + " /", ""},
		{"one of many operations", "nvme:complete_rq / " + around("pid == 1", "((", ") ? (1, 2) : (3, 4)) == (1, 2)", 100) + " /", operations},
		{"a choice of many operations", "begin { $p = rand; $x = " + around("$p", "((", " ? (1, 2) : (3, 4)).0 + 0)", 100) + " }", operations},
		{"a tuple of a map in its key", "begin { @x[1, 1] = (1, 1); $y = " + around("(1, 1)", "@x[", "]", 100) + " }", operations},
		{"a long sum", "nvme:complete_rq / pid" + strings.Repeat(" + pid", 4000) + " == 1 /", ""},
		{"a long list", "nvme:complete_rq / (pid, tid) in [" + list("(1, 2)", 1500) + "] /", ""},

		{"++ in ++", "begin { @a[1] = 1; $x = " + around("1", "@a[", "]++", 3) + " }", ""},
		{"++ in too many", "begin { @a[1] = 1; $x = " + around("1", "@a[", "]++", 100) + " }", expressions},

		{"a long pattern", `nvme:complete_rq / comm matches "` + strings.Repeat("a{1000}", 40) + `" /`, ""},
		{"one of too many states", `nvme:complete_rq / comm matches "` + strings.Repeat("a{1000}", 60) + `" /`, states},
		{"patterns of too many states", "begin { " + strings.Repeat(`if (comm matches "a{1000}b") { print(1) } `, 500) + "}", ""}, // it is one
		{"too many patterns", "begin { " + patterns(60) + "}", states},
		{"a pattern with a mistake", `nvme:complete_rq / comm matches "(a" /`, "missing closing )"},
	} {
		_, err := compile("program", test.src, langtest.Catalog, Options{})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "program:1:") || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %.300v, want %q", test.name, err, test.want)
		}
	}
}

// patterns returns statements with n patterns.
func patterns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `if (comm matches "a{1000}%d") { print(1) } `, i)
	}
	return b.String()
}

// TestTypesTakeLong checks a clause when most of what may be typed is typed, as in a program that reads each map before it sets it.
func TestTypesTakeLong(t *testing.T) {
	for left, want := range map[int]string{100: "<nil>", 10: "finding the types of the program takes too long"} {
		tree, err := syntax.Parse("program", "begin { @a = @b; @b = @c; @c = 1 }")
		if err != nil {
			t.Fatal(err)
		}
		r := &resolver{text: tree.Text, catalog: langtest.Catalog, typedInAll: maxTypedInAll - left}
		r.check(&ir.Program{Text: tree.Text, Clauses: r.clauses(tree.Clauses[0])}, nil)
		if got := fmt.Sprint(r.errs.Err()); !strings.Contains(got, want) {
			t.Errorf("with %d left: got %s", left, got)
		}
	}
}

// TestManyMistakes compiles programs with more mistakes than are shown.
func TestManyMistakes(t *testing.T) {
	for _, src := range []string{
		"begin { " + strings.Repeat("$x = wrong; ", 1000) + "}", "*:* { " + strings.Repeat("$x = wrong; ", 1000) + "}", "begin { " + strings.Repeat("$x = 1 + \"\"; ", 1000) + "}",
	} {
		_, err := compile("program", src, langtest.Catalog, Options{})
		if got := strings.Count(fmt.Sprint(err), "program:1:"); got != 26 || !strings.Contains(err.Error(), "too many mistakes") {
			t.Errorf("%.30s: got %d mistakes", src, got)
		}
	}
}
