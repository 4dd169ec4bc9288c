package syntax

import "github.com/expr-lang/expr/ast"

// Walk calls visit for n and, if it returns true, walks its operands in the order of the text. The name of a called function is not
// a node of its own, so every visited identifier is a value.
func Walk(n ast.Node, visit func(ast.Node) bool) {
	if !visit(n) {
		return
	}
	for _, operand := range operands(n) {
		Walk(operand, visit)
	}
}

func operands(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.UnaryNode:
		return []ast.Node{n.Node}
	case *ast.BinaryNode:
		return []ast.Node{n.Left, n.Right}
	case *ast.ConditionalNode:
		return []ast.Node{n.Cond, n.Exp1, n.Exp2}
	case *ast.ArrayNode:
		return n.Nodes
	case *ast.CallNode:
		return n.Arguments
	case *MapRef:
		return n.Key
	case *Tuple:
		return n.Elems
	case *Member:
		return []ast.Node{n.Of}
	case *Cast:
		if n.To.Like != nil {
			return []ast.Node{n.To.Like, n.Of}
		}
		return []ast.Node{n.Of}
	case *Step:
		return []ast.Node{n.Target}
	case *BlockExpr:
		var all []ast.Node
		WalkStmts(n.Body, func(s Stmt) { all = append(all, Exprs(s)...) })
		return append(all, n.Value)
	case *NamedArg:
		return []ast.Node{n.Value}
	}
	return nil
}

// Walk walks every expression of the program.
func (p *Program) Walk(visit func(ast.Node) bool) {
	all := func(n ast.Node, body *Block) {
		if n != nil {
			Walk(n, visit)
		}
		WalkStmts(body, func(s Stmt) {
			for _, e := range Exprs(s) {
				Walk(e, visit)
			}
		})
	}
	all(p.Expr, p.Body)
	for _, m := range p.Macros {
		all(nil, m.Body)
	}
	for _, c := range p.Clauses {
		all(c.Pred, c.Body)
	}
}

// WalkStmts calls visit for every statement of the block, and after each for the statements in its blocks. The block may be nil.
func WalkStmts(b *Block, visit func(Stmt)) {
	if b == nil {
		return
	}
	for _, s := range b.Stmts {
		visit(s)
		for _, b := range inner(s) {
			WalkStmts(b, visit)
		}
	}
}
