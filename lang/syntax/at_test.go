package syntax

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expr-lang/expr/ast"
)

// String returns a place in one line, without empty fields.
func (p Place) String() string {
	names := [...]string{"nowhere", "start", "probe", "head", "predicate", "statement", "expression"}
	b := []byte(names[p.Position])
	add := func(label string, words ...string) {
		if words != nil && words[0] != "" {
			b = fmt.Appendf(b, " %s=%s", label, strings.Join(words, ","))
		}
	}
	var probes []string
	for _, ref := range p.Probes {
		probes = append(probes, ref.String())
	}
	add("word", p.Word)
	add("of", probes...)
	add("in", p.Function)
	add("to", p.Compared)
	add("maps", p.Maps...)
	add("vars", p.Variables...)
	return string(b)
}

// | marks the place.
func TestAt(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"|", "start"},
		{" \n# a comment\n|", "start"},
		{"nv|", "start word=nv"},
		{"nvme:comp|", "start word=nvme:comp"},
		{"qp.|", "start word=qp."},
		{"latency|", "start word=latency"},
		{"la|tency", "start word=la"},

		{"nvme:*, |", "probe of=nvme:*"},
		{"nvme:*,|", "probe of=nvme:*"},
		{"nvme:*,\n  ib:m|", "probe word=ib:m of=nvme:*"},
		{"nvme:*\n|", "probe"},
		{"nvme:*; b|", "probe word=b"},
		{"nvme:* / a /\n|", "probe"},
		{"nvme:* / a / ib:*|", "probe word=ib:*"},
		{"begin { exit() } |", "probe"},
		{"begin { exit() }; param x = 1\nn|", "probe word=n vars=$x"},
		{"nvme:* |", "head of=nvme:*"},
		{"nvme:* / a / |", "head of=nvme:*"},
		{"BEGIN, interval:s:$x, ib:a? |", "head of=begin,interval:s:$x,ib:a?"},

		{"nvme:* / |", "predicate of=nvme:*"},
		{"nvme:*/la|", "predicate word=la of=nvme:*"},
		{"nvme:*\n/ a &&\n la|", "predicate word=la of=nvme:*"},
		{"nvme:* / a / la|", "predicate word=la of=nvme:*"}, // a quotient
		{"nvme:* / (a /\nla|", "predicate word=la of=nvme:*"},
		{"nvme:* / a ? b /\n c : d|", "predicate word=d of=nvme:*"},
		{"nvme:* / a == == la|", "predicate word=la of=nvme:*"},
		{"latency > 1ms && qp.st|", "predicate word=qp.st"},
		{"count(@x, la|", "predicate word=la in=count maps=@x"},

		{"begin {|", "statement of=begin"},
		{"begin { @x = 1; pr|", "statement word=pr of=begin maps=@x"},
		{"begin { @x = 1\npr|", "statement word=pr of=begin maps=@x"},
		{"begin { @x = 1\n|", "statement of=begin maps=@x"},
		{"begin { if (a) { b() } |", "statement of=begin"},
		{"begin { if (a) { b() } else { @|", "statement word=@ of=begin"},
		{"begin { @x = f(a\nprint|", "statement word=print of=begin maps=@x"},
		{"latency { @x|", "statement word=@x"},
		{"begin { @x = |", "expression of=begin maps=@x"},
		{"begin { @x = a +\n|", "expression of=begin maps=@x"},
		{"begin { @x = a\n  and b|", "expression word=b of=begin maps=@x"},
		{"begin { if (|", "expression of=begin"},
		{"begin { for ($kv : @|", "expression word=@ of=begin vars=$kv"},
		{"begin { @[a, b|", "expression word=b of=begin maps=@"},
		{"begin { @y = @x; print(@|", "expression word=@ of=begin in=print maps=@y,@x"},
		{"begin { print(f(a), (b|", "expression word=b of=begin in=print"},
		{"begin { print(c ? a|", "expression word=a of=begin in=print"},
		{"begin { print(@x[|", "expression of=begin maps=@x"},
		{"begin { print(@x, |", "expression of=begin in=print maps=@x"},
		{"begin { $a = 1; $|", "statement word=$ of=begin vars=$a"},
		{"begin { $a = 1; @x = $|", "expression word=$ of=begin maps=@x vars=$a"},
		{"param n = 1\nbegin { $a = 1 }\nend { @x = $|", "expression word=$ of=end maps=@x vars=$n"},
		{"param i, interval = 1s\ninterval:$interval { |", "statement of=interval:$interval vars=$interval"},

		{"a / ret == -EI|", "predicate word=EI to=ret"},
		{"a != |", "predicate to=a"},
		{"x && qp.state == |", "predicate to=qp.state"},
		{"a == b|", "predicate word=b to=a"},
		{"a == b |", "predicate"},
		{"a == b || |", "predicate"},
		{"a in [b, c|", "predicate word=c to=a"},
		{"a not in [|", "predicate to=a"},
		{"a in [b] |", "predicate"},
		{"a in |", "predicate"},
		{"f(a == b, |", "predicate in=f"},

		{`a == "b|`, "nowhere"},
		{"a matches `x\n|", "nowhere"},
		{"begin { printf(\"\\d {|\n", "nowhere of=begin"},
		{"begin { print(\"\\d {\") \n exit() }\nn|", "probe word=n"},
		{"a // b|", "nowhere"},
		{"a // b  |", "nowhere"},
		{"# b|", "nowhere"},
		{"a /* b|", "nowhere"},
		{"a /* b */|", "predicate"},
		{"a // b\n|", "predicate"},
		{"a > 10|", "nowhere"},
		{"a > 10m|", "nowhere"},
		{"begin { @x = $kv.|", "expression word=$kv. of=begin maps=@x"},
		{"param na|", "nowhere word=na"},
		{"param x = 1\nparam y = |", "nowhere vars=$x"},
		{"let @x = l|", "nowhere word=l maps=@x"},

		// Braces and quotes in comments and strings do not count.
		{"begin { @x = count() }  // {\nib:|", "probe word=ib: maps=@x"},
		{"begin { @x = count() }  // it's one\nib:|", "probe word=ib: maps=@x"},
		{"begin { @x = count() } /* { */ ib:|", "probe word=ib: maps=@x"},
		{"begin { printf(\"}\"); |", "statement of=begin"},
		{"# it's {\nib:* / a == '{' / { @ = \"`\" }\n|", "probe maps=@"},
		// A mistake in a clause does not hide the next.
		{"begin { ) ]\nnvme:|", "probe word=nvme:"},
		{"begin { print((( }\nnvme:* / |", "predicate of=nvme:*"},
		{"nvme:* / (a {\n@x = c|", "expression word=c of=nvme:* maps=@x"},
		{"} } ib:* { |", "statement of=ib:*"},
		{"a b c\nib:* / |", "predicate of=ib:*"},
	} {
		bar := strings.LastIndexByte(c.src, '|')
		place := At(c.src[:bar]+c.src[bar+1:], bar)
		if got := place.String(); got != c.want {
			t.Errorf("%q is %s, not %s", c.src, got, c.want)
		}
	}
}

// At agrees with what the parser has read at a place: in the bundled scripts and in random programs.
func TestAtAgreesWithParser(t *testing.T) {
	scripts, err := filepath.Glob("../../scripts/*.trace")
	if err != nil || scripts == nil {
		t.Fatalf("no scripts: %v", err)
	}
	for _, name := range scripts {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		agree(t, name, string(src))
	}
	g := generator{rand.New(rand.NewPCG(3, 4))}
	for range 1000 {
		agree(t, "random", g.program().String())
	}
}

func agree(t *testing.T, name, src string) {
	t.Helper()
	prog, err := Parse(name, src)
	if err != nil {
		t.Fatal(err)
	}
	is := func(at int, want ...Position) Place {
		place := At(src, at)
		if !slices.Contains(want, place.Position) {
			t.Fatalf("%s: %s, not one of %v:\n%s<here>%s", name, place, want, src[:at], src[at:])
		}
		return place
	}
	exprs := func(want Position, all ...ast.Node) {
		for _, n := range all {
			if n == nil {
				continue
			}
			Walk(n, func(n ast.Node) bool {
				if _, ok := n.(*ast.IdentifierNode); ok {
					if place := is(SpanOf(n).To, want, Start); place.Word != Print(n) {
						t.Fatalf("%s: %s at the end of %s:\n%s", name, place, Print(n), src)
					}
				}
				return true
			})
		}
	}
	block := func(b *Block) {
		WalkStmts(b, func(s Stmt) {
			is(s.Pos().From, Statement)
			switch s := s.(type) {
			case *Assign:
				exprs(Expression, s.Value)
			case *If:
				exprs(Expression, s.Cond)
			case *Call:
				exprs(Expression, s.Call.Arguments...)
			}
		})
	}
	for _, c := range prog.Clauses {
		for i, ref := range c.Probes {
			if place := is(ref.Span.To, Probe, Start); place.Word != src[ref.Span.From:ref.Span.To] || len(place.Probes) != i {
				t.Fatalf("%s: %s after %s", name, place, ref)
			}
		}
		exprs(Predicate, c.Pred)
		block(c.Body)
	}
	exprs(Predicate, prog.Expr)
	block(prog.Body)
	for _, c := range prog.Comments {
		is(c.Span.From+len(c.Text)-len(strings.TrimLeft(c.Text, "/*#")), Nowhere)
	}
}

func FuzzAt(f *testing.F) {
	for _, src := range []string{
		"nvme:* / a ? b : c in [d, -e] / { @x[a] = f(b, $c); if (d) { e() } }", "param i, n = 1s \"h\"\nlet @x = lru(1)\nend { print(@x) }",
		"a /* b */ // c\n# d\n\"\\d\" `e", "qp.state == RTR { @ = count() } }{[(?:",
	} {
		f.Add(src, len(src)/2)
	}
	f.Fuzz(func(t *testing.T, src string, offset int) {
		place := At(src, offset)
		offset = max(0, min(offset, len(src)))
		if !strings.HasSuffix(src[:offset], place.Word) {
			t.Errorf("the word %q does not end at the place", place.Word)
		}
		if again := At(src[:offset]+"$#", offset); again.String() != place.String() {
			t.Errorf("%s with another end, %s", again, place)
		}
	})
}
