package check

import (
	"fmt"
	"strings"
	"testing"

	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/syntax"
	"trace/probes/event"
)

// TestArguments checks what a program gets from the words after it and from the flags of getopt().
func TestArguments(t *testing.T) {
	o := Options{Arguments: []string{"42", "read", "-5", "10ms", "5 // no", "true"}, Params: map[string]string{"n": "7"}}
	for expr, want := range map[string]string{
		"$1": "42", "$2": `"read"`, "$3": "-5", "$4": "10000000", "$5": `"5 // no"`, "$6": `"true"`, "$7": "0", "$#": "6",
		`$7 == ""`: "true", `"a" != $7`: "true", "str($1)": `"42"`, "str($7)": `""`, "str($2 + 1)": `"ead"`, "str($2 + 9)": `""`,
		`getopt("n", 1)`: "7", `getopt("n", 1, "help")`: "7", `getopt("b")`: "false", `getopt("s", "x")`: `"x"`, `getopt("x-y", 1ms)`: "1000000",
		"nr == $2": "==(nr:u4 syscall_nr, 0):bool",
	} {
		p, err := compile("program", "syscall:enter { @ = "+expr+"; $n = getopt(\"n\", 1) }", langtest.Catalog, o)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		if got := p.Clauses[0].Sites[langtest.Fixture("syscall:enter")].Stmts[0].(*ir.SetStmt).Value[0].String(); got != want {
			t.Errorf("%s is %s, want %s", expr, got, want)
		}
	}
}

// What $# rules out is not used, so it does not miss an argument. Events of a recording are recorded.
func TestUnusedArgument(t *testing.T) {
	for src, want := range map[string]string{
		"begin { print($# > 0 ? $1 : 5) }": "<nil>", "begin { if ($# > 0 && $1 > 2) { exit() } }": "<nil>",
		"begin { print($# > 0 ? 5 : $1) }": "Positional parameter $1 is empty or not provided", "begin { print($1) }": "Positional parameter $1 is empty or not provided",
	} {
		p, err := compile("program", src, langtest.Catalog, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.Warnings.Err()); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", src, got, want)
		}
	}
	for recorded, known := range map[string]func() []*event.Probe{"true": func() []*event.Probe { return nil }, "false": nil} {
		p, err := compile("program", "begin { @ = recorded }", langtest.Catalog, Options{Known: known})
		if err != nil || p.Clauses[0].Sites[nil].Stmts[0].(*ir.SetStmt).Value[0].String() != recorded {
			t.Errorf("%v, %v, want %s", p, err, recorded)
		}
	}
}

func TestTakesArguments(t *testing.T) {
	for src, want := range map[string]bool{
		"begin { print($1) }": true, "begin { if ($# > 1) { exit() } }": true, "interval:s:$2 { exit() }": true, "macro m { $3 } begin { print(m) }": true,
		"pid == $1": true, "pid == 1 { @ = $1 }": true, `param x = 1 begin { $a = $x; print(getopt("n", 1)) } interval:s:$x { exit() }`: false,
	} {
		tree, err := syntax.Parse("program", strings.ReplaceAll(src, " begin", "\nbegin"))
		if err != nil {
			t.Fatal(err)
		}
		if got := TakesArguments(tree); got != want {
			t.Errorf("%s: %v, want %v", src, got, want)
		}
	}
}

// TestOptions checks the flags that getopt() declares, with the params.
func TestOptions(t *testing.T) {
	tree, err := syntax.Parse("program", `param p = 1; macro m(x) { x + getopt("m", 5) } begin { print(getopt("a", 10ms, "the a")); print(getopt("b")); print(getopt("a", 10ms)); print(m(getopt("s", "x"))) }`)
	if err != nil {
		t.Fatal(err)
	}
	params, err := Params(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range params {
		got = append(got, fmt.Sprintf("%s=%s %q", p.Name, p.Default, p.Help))
	}
	const want = `p=1 ""; m=5 ""; a=10ms "the a"; b=false ""; s="x" ""`
	if all := strings.Join(got, "; "); all != want {
		t.Errorf("got  %s\nwant %s", all, want)
	}
}

// Params may stand behind --, among the arguments.
func TestFlags(t *testing.T) {
	declared := []ir.Param{{Name: "n"}, {Name: "on"}, {Name: "s"}}
	for _, set := range []map[string]string{nil, {"n": "1"}} {
		params, rest := Flags(declared, set, []string{"a", "--n=7", "--on", "--s=", "--other=1", "-5", "n"})
		if want := fmt.Sprint(map[string]string{"n": "7", "on": "true", "s": ""}, []string{"a", "--other=1", "-5", "n"}); fmt.Sprint(params, rest) != want {
			t.Errorf("got %v %v, want %s", params, rest, want)
		}
	}
}

// A mistake that is one only because of what the command line has names that.
func TestArgumentThatIsAText(t *testing.T) {
	const program = "interval:1s / elapsed > $1 && 2 > $2 / { exit() }"
	_, err := compile("program", program, langtest.Catalog, Options{Arguments: []string{"foo", "5"}})
	if want := `help: $1 is "foo", as the command line has it`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := compile("program", program, langtest.Catalog, Options{Arguments: []string{"5s", "5"}}); err != nil {
		t.Errorf("with numbers: %v", err)
	}
}
