package lang

import (
	"fmt"
	"strconv"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"trace/probes"
)

// event is what a filter reads: a [probes.Event], or a table in tests.
type event interface {
	// Get returns the value of f, or false if it is absent.
	Get(f *probes.Field) (v any, ok bool)
}

// filter decides in user space, on expr's VM, whether an event passes a predicate. The nil filter passes everything.
type filter struct {
	program *vm.Program
	vm      vm.VM // kept for its stack
}

// everything is the filter of a clause without a predicate.
var everything *filter

// newFilter compiles a condition for the VM.
//
// The VM runs the calls, jumps and variables; what an operator computes is never left to it, as expr divides in floating
// point, compares unsigned numbers as signed ones and stops at nil. So every operator becomes a call of its [function],
// and only the choices (`&&`, `||`, `??`, `?:`) become expr's own, which evaluate no more than they need.
func newFilter(condition *expr) (*filter, error) {
	l := &lowering{functions: conf.FunctionsTable{}}
	l.define("get", get)
	l.define("isTrue", func(x []any) any { return x[0] == true })
	l.define("isFalse", func(x []any) any { return x[0] == false })
	config := conf.CreateNew()
	config.Functions = l.functions
	program, err := compiler.Compile(&parser.Tree{Node: l.lower(condition)}, config)
	if err != nil {
		return nil, fmt.Errorf("compile for expr's VM: %w", err)
	}
	return &filter{program: program}, nil
}

// pass evaluates the predicate; absent is no.
func (f *filter) pass(e event) (bool, error) {
	if f == everything {
		return true, nil
	}
	v, err := f.vm.Run(f.program, e)
	return v == true, err
}

// get reads the field x[1] of the event x[0].
func get(x []any) any {
	v, ok := x[0].(event).Get(x[1].(*probes.Field))
	if !ok {
		return nil
	}
	return v
}

// lowering turns a typed tree into one for expr's compiler.
type lowering struct {
	functions conf.FunctionsTable
	variables int
}

func (l *lowering) lower(e *expr) ast.Node {
	switch e.op {
	case opLit:
		return &ast.ConstantNode{Value: e.val}
	case opField:
		return l.call("get", &ast.IdentifierNode{Value: "$env"}, &ast.ConstantNode{Value: e.field})
	case "&&":
		return l.shortCircuit(e, "isFalse", false)
	case "||":
		return l.shortCircuit(e, "isTrue", true)
	case "??":
		return &ast.BinaryNode{Operator: "??", Left: l.lower(e.args[0]), Right: l.lower(e.args[1])}
	case opCond:
		return &ast.ConditionalNode{Cond: l.call("isTrue", l.lower(e.args[0])), Exp1: l.lower(e.args[1]), Exp2: l.lower(e.args[2])}
	}
	args := make([]ast.Node, len(e.args))
	for i, arg := range e.args {
		args[i] = l.lower(arg)
	}
	return l.call(l.operator(e), args...)
}

// shortCircuit makes `let a = left; decided(a) ? result : op(a, right)`. expr's own && and || want no absent operand.
func (l *lowering) shortCircuit(e *expr, decided string, result bool) ast.Node {
	l.variables++
	a := &ast.IdentifierNode{Value: "a" + strconv.Itoa(l.variables)}
	return &ast.VariableDeclaratorNode{
		Name:  a.Value,
		Value: l.lower(e.args[0]),
		Expr: &ast.ConditionalNode{
			Cond: l.call(decided, a),
			Exp1: &ast.BoolNode{Value: result},
			Exp2: l.call(l.operator(e), a, l.lower(e.args[1])),
		},
	}
}

// operator returns the name of the function of e. Only arithmetic has two, one for each sign.
func (l *lowering) operator(e *expr) string {
	name := e.op
	if e.typ.Kind == probes.Int {
		name += " signed"
	}
	if l.functions[name] == nil {
		l.define(name, function(e))
	}
	return name
}

func (l *lowering) define(name string, f func([]any) any) {
	l.functions[name] = &builtin.Function{Name: name, Func: func(x ...any) (any, error) { return f(x), nil }}
}

func (l *lowering) call(name string, args ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: args}
}
