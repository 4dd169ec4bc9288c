package syntax

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expr-lang/expr/ast"
)

// tree writes an expression with every bracket.
func tree(n ast.Node) string {
	switch n := n.(type) {
	case nil:
		return "-"
	case *ast.ConstantNode:
		return fmt.Sprint(n.Value.(Int).Value)
	case *ast.StringNode:
		return fmt.Sprintf("%q", n.Value)
	case *ast.UnaryNode:
		return "(" + n.Operator + " " + tree(n.Node) + ")"
	case *ast.BinaryNode:
		return "(" + tree(n.Left) + " " + n.Operator + " " + tree(n.Right) + ")"
	case *ast.ConditionalNode:
		return "(" + tree(n.Cond) + " ? " + tree(n.Exp1) + " : " + tree(n.Exp2) + ")"
	case *ast.ArrayNode:
		var all []string
		for _, e := range n.Nodes {
			all = append(all, tree(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return n.String()
}

func programTree(p *Program) string {
	if p.Expr != nil {
		return tree(p.Expr)
	}
	var all []string
	for _, c := range p.Clauses {
		var refs []string
		for _, r := range c.Probes {
			refs = append(refs, r.String())
		}
		all = append(all, strings.Join(refs, ",")+" "+tree(c.Pred))
	}
	return strings.Join(all, "; ")
}

// programs holds every construct of the language: what it means, and how it is printed if not as it is written.
var programs = []struct{ src, tree, printed string }{
	// literals
	{"42", "42", ""},
	{"0", "0", ""},
	{"1_000", "1000", ""},
	{"0xffff_8880_0000_0000", "18446612682070032384", ""},
	{"18446744073709551615", "18446744073709551615", ""},
	{"0o17", "15", ""},
	{"0b101", "5", ""},
	{"[1ns, 10us, 10µs, 5ms, 1s, 2m, 1h, 1.5ms, 0.25us]", "[1 10000 10000 5000000 1000000000 120000000000 3600000000000 1500000 250]", ""},
	{"[1B, 0B, 4KiB, 1KB, 1MB, 1MiB, 2GB, 2GiB, 1.5KiB, 1TB, 1TiB, 1PiB]", "[1 0 4096 1000 1000000 1048576 2000000000 2147483648 1536 1000000000000 1099511627776 1125899906842624]", ""},
	{`"a b"`, `"a b"`, ""},
	{`'it"s'`, `"it\"s"`, `"it\"s"`},
	{`"\n\t\\\"\x00\xff\u00e9"`, `"\n\t\\\"\x00\xffé"`, `"\n\t\\\"\x00\xffé"`},
	{"`raw \\n \"`", `"raw \\n \""`, `"raw \\n \""`},
	{"[true, false, nil]", "[true false nil]", ""},
	{"[]", "[]", ""},
	{"a_1.b.c2", "a_1.b.c2", ""},

	// precedence
	{"a || b && c", "(a || (b && c))", ""},
	{"a or b and not c", "(a || (b && (! c)))", "a || b && !c"},
	{"(a || b) && c", "((a || b) && c)", ""},
	{"not a == b", "(! (a == b))", "!(a == b)"},
	{"not a and b", "((! a) && b)", "!a && b"},
	{"!a == b", "((! a) == b)", ""},
	{"a == b < c", "(a == (b < c))", ""},
	{"flags & 1 == 1", "((flags & 1) == 1)", ""},
	{"a | b ^ c & d << e + f * -g ** h ?? i", "(a | (b ^ (c & (d << (e + (f * (- (g ** (h ?? i)))))))))", ""},
	{"a - b - c", "((a - b) - c)", ""},
	{"a - (b - c)", "(a - (b - c))", ""},
	{"a / b % c * d", "(((a / b) % c) * d)", ""},
	{"a >> 1 << 2", "((a >> 1) << 2)", ""},
	{"2 ** 3 ** 2", "(2 ** (3 ** 2))", ""},
	{"(2 ** 3) ** 2", "((2 ** 3) ** 2)", ""},
	{"2 ** -1", "(2 ** (- 1))", "2 ** (-1)"},
	{"-2 ** 2", "(- (2 ** 2))", ""},
	{"(-2) ** 2", "((- 2) ** 2)", ""},
	{"- -a + ~-b", "((- (- a)) + (~ (- b)))", ""},
	{"!!a", "(! (! a))", ""},
	{"latency ?? 0 > 1ms", "((latency ?? 0) > 1000000)", ""},
	{"a ?? b ?? c", "((a ?? b) ?? c)", ""},
	{"a ? b : c ? d : e", "(a ? b : (c ? d : e))", ""},
	{"(a ? b : c) ? d : e", "((a ? b : c) ? d : e)", ""},
	{"a ? b ? c : d : e", "(a ? (b ? c : d) : e)", ""},
	{"a?b:c", "(a ? b : c)", "a ? b : c"},
	{"a || b ? c : d", "((a || b) ? c : d)", ""},

	// comparisons, lists, ranges, strings
	{"a != b", "(a != b)", ""},
	{"a <= 1 && a >= 2 && a < 3 && a > 4", "((((a <= 1) && (a >= 2)) && (a < 3)) && (a > 4))", ""},
	{"opcode in [read, write]", "(opcode in [read write])", ""},
	{"opcode in [read, write,]", "(opcode in [read write])", "opcode in [read, write]"},
	{"opcode not in [read]", "(! (opcode in [read]))", "!(opcode in [read])"},
	{"not opcode in [read]", "(! (opcode in [read]))", "!(opcode in [read])"},
	{"a in 1..b+2", "(a in (1 .. (b + 2)))", "a in 1..b + 2"},
	{"a in b..c", "(a in (b .. c))", ""},
	{"a in [1..3, 7]", "(a in [(1 .. 3) 7])", ""},
	{`comm contains "a" && comm startsWith 'b'`, `((comm contains "a") && (comm startsWith "b"))`, `comm contains "a" && comm startsWith "b"`},
	{`comm not endsWith "a" or comm matches "^b"`, `((! (comm endsWith "a")) || (comm matches "^b"))`, `!(comm endsWith "a") || comm matches "^b"`},
	{"latency == nil || nil != latency", "((latency == nil) || (nil != latency))", ""},

	// layout
	{"qp.state==RTR", "(qp.state == RTR)", "qp.state == RTR"},
	{"a /\n b", "(a / b)", "a / b"},
	{"a // comment\n&& b", "(a && b)", "a && b"},
	{"#!/usr/bin/env trace\n# comment\na\n", "a", "a"},

	// clauses
	{"nvme:complete_rq", "nvme:complete_rq -", ""},
	{"nvme:*_rq, ib:modify_q?,*:*", "nvme:*_rq,ib:modify_q?,*:* -", "nvme:*_rq, ib:modify_q?, *:*"},
	{"nvme:64b,\n  ib:x\n/ a /", "nvme:64b,ib:x a", "nvme:64b, ib:x / a /"},
	{"nvme:a / latency > 1ms /", "nvme:a (latency > 1000000)", ""},
	{"nvme:a/latency/2>1/", "nvme:a ((latency / 2) > 1)", "nvme:a / latency / 2 > 1 /"},
	{"nvme:a / x / y / ; ib:b", "nvme:a (x / y); ib:b -", "nvme:a / x / y /\nib:b"},
	{"nvme:a / x / ib:b / y /\nib:c", "nvme:a x; ib:b y; ib:c -", "nvme:a / x /\nib:b / y /\nib:c"},
	{"nvme:a / (x /\n y) /", "nvme:a (x / y)", "nvme:a / x / y /"},
	{"nvme:a / c ? x / y:z /", "nvme:a (c ? (x / y) : z)", "nvme:a / c ? x / y : z /"},
	{"nvme:a / c ? d : x / ib:z", "nvme:a (c ? d : x); ib:z -", "nvme:a / c ? d : x /\nib:z"},
	{"nvme:a / x && // why\n y / // done\nnvme:b;", "nvme:a (x && y); nvme:b -", "nvme:a / x && y /\nnvme:b"},
}

func TestParseAndString(t *testing.T) {
	for _, test := range programs {
		p, err := Parse("program", test.src)
		if err != nil {
			t.Errorf("%s:\n%v", test.src, err)
			continue
		}
		if got := programTree(p); got != test.tree {
			t.Errorf("%s:\n got %s\nwant %s", test.src, got, test.tree)
		}
		want := test.printed
		if want == "" {
			want = test.src
		}
		if got := p.String(); got != want {
			t.Errorf("%s: printed as\n%s\nwant\n%s", test.src, got, want)
		}
		stable(t, p)
	}
}

// stable checks that what p prints parses to the same tree.
func stable(t *testing.T, p *Program) {
	t.Helper()
	again, err := Parse("program", p.String())
	if err != nil {
		t.Fatalf("%q is printed as %q:\n%v", p.Source.Text, p, err)
	}
	if programTree(again) != programTree(p) || again.String() != p.String() {
		t.Errorf("%q is printed as %q\n got %s\nwant %s", p.Source.Text, p, programTree(again), programTree(p))
	}
}

// TestErrors reads testdata/errors.txt: programs, each followed by its errors after a line of dashes.
func TestErrors(t *testing.T) {
	path := filepath.Join("testdata", "errors.txt")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for test := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n====\n") {
		src, want, _ := strings.Cut(test, "\n----\n")
		_, err := Parse("program", src)
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s\n--- got\n%s\n--- want\n%s", src, got, want)
		}
	}
}

func TestPositions(t *testing.T) {
	_, err := Parse("f.trace", "\n\tnvme:a / (\"é\" + 1")
	errs, ok := err.(ErrorList)
	if !ok || len(errs) != 1 {
		t.Fatalf("got %v", err)
	}
	if e := errs[0]; e.Line != 2 || e.Col != 19 || e.EndCol != 19 {
		t.Errorf("got %d:%d-%d", e.Line, e.Col, e.EndCol)
	}

	for _, src := range []string{"", "\n \n", "// nothing", "#!/usr/bin/trace\n"} {
		if _, err := Parse("program", src); err == nil || !strings.Contains(err.Error(), "the program is empty") {
			t.Errorf("%q: got %v", src, err)
		}
	}

	p, err := Parse("program", "x + (a - b) * c")
	if err != nil {
		t.Fatal(err)
	}
	product := p.Expr.(*ast.BinaryNode).Right
	if at := SpanOf(product); p.Source.Text[at.From:at.To] != "(a - b) * c" {
		t.Errorf("the product is %q", p.Source.Text[at.From:at.To])
	}
}

// TestLimit gives the parser what would use up the stack, were there no limit.
func TestLimit(t *testing.T) {
	for _, s := range []string{"(", "[", "-", "!", "not ", "a?", "a:b/(", "a**", "a??", "a+", "a?b:", "a:b,", "a:b;"} {
		src := strings.Repeat(s, 1e6)
		if _, err := Parse("program", src); err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("%s…: got %.200v", s, err)
		}
	}
	src := "a" + strings.Repeat("+a", maxTokens/2-1)
	p, err := Parse("program", src)
	if err != nil {
		t.Fatal(err)
	}
	stable(t, p)
}

func FuzzParse(f *testing.F) {
	for _, test := range programs {
		f.Add(test.src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		p, err := Parse("program", src)
		if err != nil {
			if _, ok := err.(ErrorList); !ok || err.Error() == "" {
				t.Errorf("%T %v", err, err)
			}
			return
		}
		stable(t, p)
	})
}
