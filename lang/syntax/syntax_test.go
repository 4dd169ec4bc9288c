package syntax

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expr-lang/expr/ast"
)

// programTree returns the tree of a program in one line.
func programTree(p *Program) string {
	return strings.NewReplacer("\n", "; ", "\t", "").Replace(Dump(p))
}

// programs holds every construct of the language: its tree, and how it is printed if not as written.
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
	{"a // comment\n&& b", "(a && b)", "// comment\na && b"},
	{"#!/usr/bin/env trace\n# comment\na\n", "a", "#!/usr/bin/env trace\n# comment\na"},

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
	{"nvme:a / x && // why\n y / // done\nnvme:b;", "nvme:a (x && y); nvme:b -", "// why\nnvme:a / x && y / // done\nnvme:b"},
}

// blocks holds the constructs around and in blocks, in the same way.
var blocks = []struct{ src, tree, printed string }{
	// operands
	{"@ > @x", "(@ > @x)", ""},
	{"@x[a] ?? @y[a, -b, (c, d)]", "(@x[a] ?? @y[a (- b) (tuple c d)])", ""},
	{"$x_1 == $y", "($x_1 == $y)", ""},
	{"$kv.0 + @t.1.0 + @x[1].2 + (a, b).0 + t.3", "((((($kv .0) + ((@t .1) .0)) + (@x[1] .2)) + ((tuple a b) .0)) + (t .3))", ""},
	{"(5).0 + (-$x).1 + -$x.1 + (a ? b : c).0", "((((5 .0) + ((- $x) .1)) + (- ($x .1))) + ((a ? b : c) .0))", ""},
	{"a in $kv.0..5", "(a in (($kv .0) .. 5))", ""},
	{"((a, b), c) == (a, (b, c))", "((tuple (tuple a b) c) == (tuple a (tuple b c)))", ""},
	{"(uint8)x + (int)y * (int32)(z)", "((uint8 x) + ((int32 y) * (int32 z)))", "(uint8)x + (int32)y * (int32)z"},
	{"(int8)-x ** 2 - -(uint16)(a + b).0", "((int8 (- (x ** 2))) - (- (uint16 ((a + b) .0))))", ""},
	{"((uint8)x).0 + (int16 + 1)", "(((uint8 x) .0) + (int16 + 1))", "((uint8)x).0 + (int16 + 1)"},
	{"len(comm) > 3 && f()", "((len(comm) > 3) && f())", ""},
	{"f(a, min = 1us, max = (1, 2),)", "f(a min=1000 max=(tuple 1 2))", "f(a, min = 1us, max = (1, 2))"},
	{"quantile(x, 50, 99.9, 1_0.25, p = 0.5)", "quantile(x 50 99.9f 10.25f p=0.5f)", ""},
	{"any([1, 2], # > a) && f(g(#) + #.0)", "(any([1 2] (# > a)) && f((g(#) + (# .0))))", ""},
	{"any(a,\n# comment\nb)", "any(a b)", "# comment\nany(a, b)"},
	{"kstack == ustack && kstack(5) != x", "((kstack == ustack) && (kstack(5) != x))", ""},
	{"a /* one */ + /* two\n */ b", "(a + b)", "/* one */\n/* two\n */\na + b"},
	{"f(if, for, return, param, let, config, else)", "f(if for return param let config else)", ""},
	{"param + let / config > else.if", "((param + (let / config)) > else.if)", ""},

	// probes
	{"begin {}", "begin -; {; }", ""},
	{"BEGIN{}END{}", "begin -; {; }; end -; {; }", "begin {}\n\nend {}"},
	{"begin, end\n{\n}", "begin,end -; {; }", "begin, end {}"},
	{"interval:1s,interval:s:2,interval:ms:10,interval:us:5,interval:1.5ms,interval:10µs", "interval:1s,interval:2s,interval:10ms,interval:5us,interval:1.5ms,interval:10µs -",
		"interval:1s, interval:2s, interval:10ms, interval:5us, interval:1.5ms, interval:10µs"},
	{"interval:hz:10,interval:hz:1,interval:hz:3,interval:2hz,interval:hz:1000000", "interval:100ms,interval:1s,interval:333333333ns,interval:500ms,interval:1us -",
		"interval:100ms, interval:1s, interval:333333333ns, interval:500ms, interval:1us"},
	{"i:s:1,i:1s,i:ms:100,i:us:7,i:hz:4,i:$every,i:s:$n", "interval:1s,interval:1s,interval:100ms,interval:7us,interval:250ms,interval:$every,interval:s:$n -",
		"interval:1s, interval:1s, interval:100ms, interval:7us, interval:250ms, interval:$every, interval:s:$n"},
	{"p:hz:99,p:99hz,p:s:1,p:ms:10,p:us:100,p:10ms,profile:s:1,p:$r,p:hz:$r", "profile:99hz,profile:99hz,profile:1hz,profile:100hz,profile:10000hz,profile:100hz,profile:1hz,profile:$r,profile:hz:$r -",
		"profile:99hz, profile:99hz, profile:1hz, profile:100hz, profile:10000hz, profile:100hz, profile:1hz, profile:$r, profile:hz:$r"},
	{"profile:*,profile:hz", "profile:*,profile:hz -", "profile:*, profile:hz"},
	{"a:b:100ms,a:*:$p,a:b:2hz / x > 1 / {}", "a:b:100ms,a:*:$p,a:b:500ms (x > 1); {; }", "a:b:100ms, a:*:$p, a:b:500ms / x > 1 / {}"},
	{"interval:$every{}", "interval:$every -; {; }", "interval:$every {}"},
	{"interval:s:$n, interval:ms:$n, interval:us:$n {}", "interval:s:$n,interval:ms:$n,interval:us:$n -; {; }", ""},
	{"profile:99hz,profile:hz:99,profile:ms:10,profile:10ms,profile:s:1,profile:$n", "profile:99hz,profile:99hz,profile:100hz,profile:100hz,profile:1hz,profile:$n -",
		"profile:99hz, profile:99hz, profile:100hz, profile:100hz, profile:1hz, profile:$n"},
	{"nvme:a / x / y / end {}", "nvme:a (x / y); end -; {; }", "nvme:a / x / y /\nend {}"},

	// params and maps
	{`param lat_min_us = 65us "only what takes longer"`, `param lat_min_us 65000 "only what takes longer"`, ""},
	{`param a = -1; param b = "x";param c=true`, `param a (- 1) ""; param b "x" ""; param c true ""`, "param a = -1\nparam b = \"x\"\nparam c = true"},
	{"param i,interval = 1s", `param i,interval 1000000000 ""`, "param i, interval = 1s"},
	{"let @x = lru(10000)\nlet @ = hash(1)", "let @x lru 10000; let @ hash 1", ""},
	{"ib:a\nparam x = 1\nib:b\nlet @x = lru(1)", "param x 1 \"\"; let @x lru 1; ib:a -; ib:b -", ""},

	// where a clause and a statement end
	{"ib:a / x /\n{ }\nib:b\n/ y /\n\n{\n}\nib:c\n\nib:d", "ib:a x; {; }; ib:b y; {; }; ib:c -; ib:d -", "ib:a / x / {}\n\nib:b / y / {}\n\nib:c\n\nib:d"},
	{"ib:a/x/{};ib:b{} ib:c / y /{}", "ib:a x; {; }; ib:b -; {; }; ib:c y; {; }", "ib:a / x / {}\n\nib:b {}\n\nib:c / y / {}"},
	{"x > 1 { f() }", "(x > 1); {; f(); }", "x > 1 {\n\tf()\n}"},
	{"x > 1\n{ ; f();; g()\n\n\n;h() ; }", "(x > 1); {; f(); g(); h(); }", "x > 1 {\n\tf()\n\tg()\n\th()\n}"},
	{"x { $y = a /\n b\n - c\n\tf(a,\n b\n, c\n)\n return }", "x; {; $y = ((a / b) - c); f(a b c); return; }", "x {\n\t$y = a / b - c\n\tf(a, b, c)\n\treturn\n}"},
	{"x { @a++ // one\n }", "x; {; @a ++ -; }", "x {\n\t@a++ // one\n}"},

	// statements
	{"x { @ = count(); @x[a, b] = 1; $x = @x[1] }", "x; {; @ = count(); @x[a b] = 1; $x = @x[1]; }", "x {\n\t@ = count()\n\t@x[a, b] = 1\n\t$x = @x[1]\n}"},
	{"x { $a+=1; $a-=1; $a*=1; $a/=1; $a%=1; $a&=1; $a|=1; $a^=1; $a<<=1; $a>>=1 }",
		"x; {; $a += 1; $a -= 1; $a *= 1; $a /= 1; $a %= 1; $a &= 1; $a |= 1; $a ^= 1; $a <<= 1; $a >>= 1; }",
		"x {\n\t$a += 1\n\t$a -= 1\n\t$a *= 1\n\t$a /= 1\n\t$a %= 1\n\t$a &= 1\n\t$a |= 1\n\t$a ^= 1\n\t$a <<= 1\n\t$a >>= 1\n}"},
	{"x { @x[1]++; ++@; --$v; $v-- }", "x; {; @x[1] ++ -; @ ++ -; $v -- -; $v -- -; }", "x {\n\t@x[1]++\n\t@++\n\t$v--\n\t$v--\n}"},
	{"x { if (a) { f() } else if b && c { } else\n{ return } g() }", "x; {; if a; {; f(); }; else; {; if (b && c); {; }; else; {; return; }; }; g(); }",
		"x {\n\tif (a) {\n\t\tf()\n\t} else if (b && c) {} else {\n\t\treturn\n\t}\n\tg()\n}"},
	{"x { if (a) > 1 { } if (uint8)a\n{ }\nelse { if b { } } }", "x; {; if (a > 1); {; }; if (uint8 a); {; }; else; {; if b; {; }; }; }",
		"x {\n\tif (a > 1) {}\n\tif ((uint8)a) {} else {\n\t\tif (b) {}\n\t}\n}"},
	{"x { for ($kv : @x) { print($kv.0) } for ($i : 0..$n + 1) { } }", "x; {; for $kv @x; {; print(($kv .0)); }; for $i (0 .. ($n + 1)); {; }; }",
		"x {\n\tfor ($kv : @x) {\n\t\tprint($kv.0)\n\t}\n\tfor ($i : 0..$n + 1) {}\n}"},
	{"x { for ($kv : @x, by = \"value\") { } }", `x; {; for $kv @x by "value"; {; }; }`, "x {\n\tfor ($kv : @x, by = \"value\") {}\n}"},

	// one-liners in bpftrace's style
	{"BEGIN { @start = nsecs; } END { clear(@start); }", "begin -; {; @start = nsecs; }; end -; {; clear(@start); }", "begin {\n\t@start = nsecs\n}\n\nend {\n\tclear(@start)\n}"},
	{"nvme:complete_rq /pid == 123/{@[comm,kstack]=count();}", "nvme:complete_rq (pid == 123); {; @[comm kstack] = count(); }", "nvme:complete_rq / pid == 123 / {\n\t@[comm, kstack] = count()\n}"},
	{"ib:x /@start[tid]/ { @ns[comm] = hist(nsecs - @start[tid]); delete(@start[tid]); }",
		"ib:x @start[tid]; {; @ns[comm] = hist((nsecs - @start[tid])); delete(@start[tid]); }",
		"ib:x / @start[tid] / {\n\t@ns[comm] = hist(nsecs - @start[tid])\n\tdelete(@start[tid])\n}"},
	{"interval:s:1 { time(\"%H:%M:%S\\n\"); print(@, 10); clear(@); exit(); }", "interval:1s -; {; time(\"%H:%M:%S\\n\"); print(@ 10); clear(@); exit(); }",
		"interval:1s {\n\ttime(\"%H:%M:%S\\n\")\n\tprint(@, 10)\n\tclear(@)\n\texit()\n}"},
	{"ib:x { @bytes = lhist(size, 0, 2000, 200); }", "ib:x -; {; @bytes = lhist(size 0 2000 200); }", "ib:x {\n\t@bytes = lhist(size, 0, 2000, 200)\n}"},
	{"profile:hz:99 { @[kstack(3)] = count(); }", "profile:99hz -; {; @[kstack(3)] = count(); }", "profile:99hz {\n\t@[kstack(3)] = count()\n}"},
}

func TestParseAndString(t *testing.T) {
	for _, test := range slices.Concat(programs, blocks) {
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

// stable checks that the printed text of p parses to the same tree, prints the same, and has all comments.
func stable(t *testing.T, p *Program) {
	t.Helper()
	again, err := Parse("program", p.String())
	if err != nil {
		t.Fatalf("%q is printed as %q:\n%v", p.Text.Content, p, err)
	}
	text, _ := Format("program", p.String())
	if !Equal(again, p) || text != p.String()+"\n" || len(again.Comments) != len(p.Comments) {
		t.Errorf("%q is printed as %q and then %q\n got %s\nwant %s", p.Text.Content, p, text, Dump(again), Dump(p))
	}
	for i, c := range p.Clauses {
		one, err := Parse("program", c.String())
		if err != nil || strings.Contains(c.String(), "\n") || Dump(one) != Dump(&Program{Clauses: p.Clauses[i : i+1]}) {
			t.Errorf("%q: the clause is printed as %q: %v", p.Text.Content, c, err)
		}
	}
}

// TestFormat reads testdata/format.txt: programs, each followed by its canonical text after a line of dashes.
func TestFormat(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "format.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for test := range strings.SplitSeq(string(data), "====\n") {
		src, want, _ := strings.Cut(test, "----\n")
		for _, text := range []string{src, want} {
			if got, err := Format("program", text); err != nil || got != want {
				t.Errorf("%s\n--- got %v\n%s\n--- want\n%s", text, err, got, want)
			}
		}
		p, err := Parse("program", src)
		if err != nil {
			t.Fatal(err)
		}
		stable(t, p)
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
	if at := SpanOf(product); p.Text.Content[at.From:at.To] != "(a - b) * c" {
		t.Errorf("the product is %q", p.Text.Content[at.From:at.To])
	}
}

// TestLimit parses texts that would exhaust the stack without a limit.
func TestLimit(t *testing.T) {
	for _, s := range []string{"(", "[", "- ", "!", "not ", "a?", "a:b/(", "a**", "a??", "a+", "a?b:", "a:b,", "a:b;", "f(", "@x[", "(a,", "(int)", "a{if b{", "a{if b{}else ", "a{@x=1;", "a.0+"} {
		src := strings.Repeat(s, 1e6)
		if _, err := Parse("program", src); err == nil || !strings.Contains(err.Error(), "too long") || !strings.Contains(err.Error(), "for a list of values, write x in [a, b, …]") {
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

// TestTooMany parses texts with more mistakes than are reported.
func TestTooMany(t *testing.T) {
	for _, src := range []string{"a:b { " + strings.Repeat("];", 1000) + "}", strings.Repeat("a:b 5;", 1000)} {
		_, err := Parse("program", src)
		errs, _ := err.(ErrorList)
		if len(errs) != MaxErrors+1 || errs[MaxErrors].Msg != "too many mistakes" {
			t.Errorf("%.20q: got %d mistakes", src, len(errs))
		}
	}
}

// TestLongWords parses words and strings that are as long as they may be, and such that are longer.
func TestLongWords(t *testing.T) {
	long := strings.Repeat("a", MaxString)
	for _, src := range []string{long[:MaxString], `"` + long[:MaxString-2] + `" == a`, "a:b / $" + long[:MaxString-1] + " /"} {
		if _, err := Parse("program", src); err != nil {
			t.Errorf("%.10s: %.300v", src, err)
		}
	}
	for _, src := range []string{long + "a", `"` + long + `" == a`, "a:b / $" + long + " /", "a == " + strings.Repeat("9", MaxString+1)} {
		if _, err := Parse("program", src); err == nil || !strings.Contains(err.Error(), "of more than 65536 bytes") {
			t.Errorf("%.10s: %.300v", src, err)
		}
	}
}

// TestImportsAreBounded imports files that together have too many words, or too long comments.
func TestImportsAreBounded(t *testing.T) {
	long := strings.Repeat("a:b { $x = 1 }\n", 400)
	for want, file := range map[string]string{
		"<nil>":                   "a:b { $x = 1 }",
		"the program is too long": long,
		"the program and the files that it imports have more than 4194304 bytes": "// " + strings.Repeat("a", 1<<20) + "\na:b { $x = 1 }",
	} {
		p, err := Parse("program", `import "many"; a:b { $x = 1 }`)
		if err != nil {
			t.Fatal(err)
		}
		err = p.Import(func(string, string) (all []Source, err error) {
			for i := range 5 {
				all = append(all, Source{Name: fmt.Sprint(i), Content: file})
			}
			return all, nil
		})
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got %.300v, want %s", err, want)
		}
	}
}

// TestNearest compares long words, too, but not those that cannot be near.
func TestNearest(t *testing.T) {
	long := strings.Repeat("a", MaxString)
	names := []string{"latency", "qp.state", "state", long}
	for word, want := range map[string]string{"latenci": "latency", "state": "qp.state", "stat": "state", "xyzzy": "", long: "", long[:100]: ""} {
		if got := Nearest(word, names); got != want {
			t.Errorf("%.10s: got %.10q, want %q", word, got, want)
		}
	}
}

func TestWalk(t *testing.T) {
	p, err := Parse("program", "f(a, n = -@x[b].0) ? [(c, (int8)d)] : e in 1..$v")
	if err != nil {
		t.Fatal(err)
	}
	var all, some []string
	Walk(p.Expr, func(n ast.Node) bool {
		all = append(all, Print(n))
		return true
	})
	Walk(p.Expr, func(n ast.Node) bool {
		if n, ok := n.(*ast.IdentifierNode); ok {
			some = append(some, n.Value)
		}
		_, key := n.(*MapRef)
		return !key
	})
	want := "f(a, n = -@x[b].0) ? [(c, (int8)d)] : e in 1..$v; f(a, n = -@x[b].0); a; n = -@x[b].0; -@x[b].0; @x[b].0; @x[b]; b; " +
		"[(c, (int8)d)]; (c, (int8)d); c; (int8)d; d; e in 1..$v; e; 1..$v; 1; $v"
	if got := strings.Join(all, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := strings.Join(some, " "); got != "a c d e $v" {
		t.Errorf("got %s", got)
	}
}

func TestStmts(t *testing.T) {
	p, err := Parse("program", "x { if a { f() } else if b { @x++ } else { return }; for ($i : 1..2) { if c { $v = 1 } } }")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	WalkStmts(p.Body, func(s Stmt) {
		at := s.Pos()
		got = append(got, PrintStmt(s)+" <- "+p.Text.Content[at.From:at.To])
	})
	want := []string{
		"if (a) { f() } else if (b) { @x++ } else { return } <- if a { f() } else if b { @x++ } else { return }",
		"f() <- f()",
		"if (b) { @x++ } else { return } <- if b { @x++ } else { return }",
		"@x++ <- @x++",
		"return <- return",
		"for ($i : 1..2) { if (c) { $v = 1 } } <- for ($i : 1..2) { if c { $v = 1 } }",
		"if (c) { $v = 1 } <- if c { $v = 1 }",
		"$v = 1 <- $v = 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	WalkStmts(nil, nil)
}

func TestComments(t *testing.T) {
	src := "#! run\nib:a / x && /* in */ y / { // one \n\tf() /* two */\n# three\r\n}\n// four"
	p, err := Parse("program", src)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.Comments {
		if src[c.Span.From:c.Span.To] != c.Text {
			t.Errorf("%q is at %q", c.Text, src[c.Span.From:c.Span.To])
		}
		got = append(got, c.Text)
	}
	if want := []string{"#! run", "/* in */", "// one", "/* two */", "# three", "// four"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, test := range slices.Concat(programs, blocks) {
		f.Add(test.src)
	}
	for _, name := range []string{"errors.txt", "format.txt"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for test := range strings.SplitSeq(string(data), "\n====\n") {
			src, _, _ := strings.Cut(test, "\n----\n")
			f.Add(src)
		}
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
		text, _ := Format("program", src)
		again, err := Parse("program", text)
		if err != nil {
			t.Fatalf("%q is formatted as %q:\n%v", src, text, err)
		}
		if twice, _ := Format("program", text); !Equal(again, p) || len(again.Comments) != len(p.Comments) || twice != text {
			t.Errorf("%q is formatted as %q and then %q", src, text, twice)
		}
	})
}

// Characters in a line that a terminal would interpret are shown as escapes, and the mistake is underlined at its new place.
func TestErrorIsVisible(t *testing.T) {
	text := Text{Name: "a\x1b[2J", Content: "\t\x1b[31m\xff == qp\u009b"}
	err := text.Error(Span{From: 11, To: 15}, "no \x1b", "")
	want := `a\x1b[2J:1:12: no \x1b` + "\n    \t" + `\x1b[31m\xff == qp\u009b` + "\n    \t" + strings.Repeat(" ", 16) + "^~~~~~~~"
	if got := err.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
