package syntax

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/expr-lang/expr/ast"
)

// TestRandom prints random trees, with everything nested in everything that can hold it, and parses them again.
func TestRandom(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(1, 2))}
	for range 5000 {
		p := g.program()
		again, err := Parse("program", p.String())
		if err != nil {
			t.Fatalf("%s\n%v", p, err)
		}
		if !Equal(again, p) || again.String() != p.String() {
			t.Fatalf("printed as\n%s\n%s\ngot\n%s\nwant\n%s", p, again, Dump(again), Dump(p))
		}
		stable(t, again)
	}
}

type generator struct{ *rand.Rand }

func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

func (g generator) program() *Program {
	if g.IntN(2) == 0 {
		p := &Program{Expr: g.expr(4)}
		if g.IntN(2) == 0 {
			p.Body = g.block(2)
		}
		return p
	}
	p := &Program{}
	for range g.IntN(2) {
		minus := &ast.UnaryNode{Operator: "-", Node: g.number()}
		p.Params = append(p.Params, &Param{Name: "param", Default: pick[ast.Node](g, g.number(), minus, g.str()), Help: pick(g, "", "a\n\"")})
		p.Lets = append(p.Lets, &Let{Map: g.mapName(), Kind: pick(g, "lru", "hash"), MaxKeys: g.number()})
	}
	for range 1 + g.IntN(3) {
		c := &Clause{}
		for range 1 + g.IntN(2) {
			c.Probes = append(c.Probes, pick(g, ProbeRef{Group: "ib", Name: "*_q?"}, ProbeRef{Group: "*", Name: "*"}, ProbeRef{Group: "end"},
				ProbeRef{Group: "interval", Name: "$x"}, ProbeRef{Group: "profile", Name: "99hz"}))
		}
		if g.IntN(2) == 0 {
			c.Pred = g.expr(4)
		}
		if g.IntN(3) > 0 {
			c.Body = g.block(2)
		}
		p.Clauses = append(p.Clauses, c)
	}
	return p
}

func (g generator) block(depth int) *Block {
	b := &Block{}
	for range g.IntN(4) {
		b.Stmts = append(b.Stmts, g.stmt(depth))
	}
	return b
}

func (g generator) stmt(depth int) Stmt {
	if depth > 0 {
		switch g.IntN(4) {
		case 0:
			return &If{Cond: g.expr(2), Then: g.block(depth - 1), Else: pick(g, nil, g.block(depth-1))}
		case 1:
			limits := &ast.BinaryNode{Operator: "..", Left: g.expr(2), Right: g.expr(2)}
			return &For{Var: "$i", In: pick[ast.Node](g, limits, &MapRef{Name: g.mapName()}), Body: g.block(depth - 1)}
		}
	}
	target := pick[ast.Node](g, &ast.IdentifierNode{Value: "$v"}, g.mapRef(2))
	switch g.IntN(10) {
	case 4:
		return &Jump{Word: pick(g, "break", "continue")}
	case 5:
		return &Discard{Value: g.expr(2), Meant: true}
	case 6:
		inner := &Declare{Var: "$w", Type: g.typ(Type{}), Value: pick(g, nil, g.expr(2))}
		if depth == 0 {
			return inner
		}
		value := &BlockExpr{Body: &Block{Stmts: []Stmt{inner}}, Value: &Step{Target: target, Op: pick(g, "++", "--"), Before: g.IntN(2) == 0}}
		return &Declare{Var: "$v", Value: value}
	case 7:
		if depth > 0 {
			return pick[Stmt](g, &While{Cond: g.expr(2), Body: g.block(depth - 1)}, &Unroll{Times: g.expr(2), Body: g.block(depth - 1)}, &Nested{Body: g.block(depth - 1)})
		}
	case 8:
		return &Return{Value: g.expr(2)}
	case 0:
		return &Assign{Target: target, Op: pick(g, "++", "--")}
	case 1:
		return &Call{Call: g.call(3)}
	case 2:
		return &Return{}
	}
	return &Assign{Target: target, Op: pick(g, "=", "+=", "-=", "/=", "<<=", ">>=", "^="), Value: g.expr(3)}
}

var operatorNames = strings.Fields("|| && == != < <= > >= in contains startsWith endsWith matches .. | ^ & << >> + - * / % ** ??")

// expr returns an expression of at most depth levels.
func (g generator) expr(depth int) ast.Node {
	if depth == 0 {
		return g.leaf()
	}
	sub := func() ast.Node { return g.expr(g.IntN(depth)) }
	switch g.IntN(9) {
	case 0:
		return &ast.UnaryNode{Operator: pick(g, "-", "!", "~"), Node: sub()}
	case 1:
		return &ast.ConditionalNode{Ternary: true, Cond: sub(), Exp1: sub(), Exp2: sub()}
	case 2:
		return &ast.ArrayNode{Nodes: g.exprs(0, depth-1)}
	case 3:
		return &Tuple{Elems: g.exprs(2, depth-1)}
	case 4:
		return &Member{Of: sub(), Index: g.IntN(12)}
	case 5:
		return &Cast{To: g.typ(Type{Name: "int8"}), Of: sub()}
	case 6:
		return pick[ast.Node](g, g.call(depth-1), g.mapRef(depth-1))
	}
	return &ast.BinaryNode{Operator: pick(g, operatorNames...), Left: sub(), Right: sub()}
}

func (g generator) exprs(least, depth int) (all []ast.Node) {
	for range least + g.IntN(3) {
		all = append(all, g.expr(depth))
	}
	return all
}

func (g generator) call(depth int) *ast.CallNode {
	args := g.exprs(0, depth)
	switch g.IntN(4) {
	case 0:
		args = append(args, &NamedArg{Name: pick(g, "min", "if", "int8"), Value: g.expr(depth)})
	case 1:
		args = append(args, &ast.ConstantNode{Value: Float{99.9, "99.9"}}, &ast.PointerNode{})
	}
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: pick(g, "f", "count", "int8", "param")}, Arguments: args}
}

func (g generator) mapRef(depth int) *MapRef {
	m := &MapRef{Name: g.mapName()}
	if g.IntN(2) == 0 {
		m.Key = g.exprs(1, depth)
	}
	return m
}

func (g generator) mapName() string { return pick(g, "@", "@x", "@_1") }

func (g generator) number() ast.Node {
	text := pick(g, "0", "7", "1.5ms", "4KiB", "0xff", "1_000")
	v, _, _ := parseNumber(text)
	return &ast.ConstantNode{Value: Int{v, text}}
}

func (g generator) str() ast.Node {
	return &ast.StringNode{Value: pick(g, "", "a b", "\x00\xff\n\"'`", "// #", fmt.Sprint(g.Uint64()))}
}

func (g generator) leaf() ast.Node {
	name := pick(g, "a", "qp.state", "$v", "param", "let", "if", "else", "int8", "struct_x", "kstack")
	return pick[ast.Node](g, &ast.IdentifierNode{Value: name}, g.number(), g.number(), g.str(), &MapRef{Name: g.mapName()}, &ast.NilNode{}, &ast.BoolNode{Value: true})
}

// typ returns a type. It may be the other one, or the type of a value.
func (g generator) typ(other Type) Type {
	return pick(g, other, TypeCalled("uint8"), TypeCalled("uint64"), TypeCalled("bool"), TypeCalled("string"), Type{Like: &ast.IdentifierNode{Value: "$a"}})
}
