package lang

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"trace/probes/event"
)

// source is what an expression reads: an [event.Event], or a table in tests.
type source interface {
	// Get returns the value of f, or false if it is absent.
	Get(f *event.Field) (v any, ok bool)
}

// record is an event with values that the kernel has computed.
type record interface {
	// Value returns value number i, or false if it is absent.
	Value(i int) (v any, ok bool)
}

// evaluator computes an expression in user space, on expr's VM. One goroutine at a time may use it.
type evaluator struct {
	// simple computes an expression that has nothing for the VM to choose or to call; then there is no program.
	simple  func(*scope) any
	program *vm.Program
	vm      vm.VM // kept for its stack
	// scope is what the functions of the program read.
	scope *scope
}

// newEvaluator compiles an expression for the VM.
//
// The VM runs the calls, jumps and variables; what an operator computes is never left to it, as expr divides in floating
// point, compares unsigned numbers as signed ones and stops at nil. So every operator becomes a call of its [function],
// and only the choices (`&&`, `||`, `??`, `?:`), which evaluate no more than they need, and the loops over lists become
// expr's own.
func newEvaluator(e *expr) (*evaluator, error) {
	if simple := simple(e); simple != nil {
		return &evaluator{simple: simple}, nil
	}
	v := &evaluator{}
	l := &lowering{evaluator: v, functions: conf.FunctionsTable{}}
	config := conf.CreateNew()
	config.Functions = l.functions
	var err error
	if v.program, err = compiler.Compile(&parser.Tree{Node: l.lower(e)}, config); err != nil {
		return nil, fmt.Errorf("compile for expr's VM: %w", err)
	}
	return v, nil
}

// eval returns the value of the expression, nil if it is absent.
func (v *evaluator) eval(sc *scope) (any, error) {
	if v.simple != nil {
		return v.simple(sc), nil
	}
	v.scope = sc
	result, err := v.vm.Run(v.program, nil)
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // without the place in a source, which the VM does not have
	}
	return result, err
}

// leaf returns the function of an expression that only reads the scope, or nil.
func leaf(e *expr) func(*scope) any {
	switch e.op {
	case opLit:
		return func(*scope) any { return e.val }
	case opField:
		return func(sc *scope) any { return sc.field(e.field) }
	case opVar:
		return func(sc *scope) any { return sc.vars[e.variable.index] }
	case opSlot:
		return func(sc *scope) any {
			v, ok := sc.event.(record).Value(e.index)
			if !ok {
				return nil
			}
			return v
		}
	case opStack:
		return func(sc *scope) any { return sc.stack(e.stackUse()) }
	case opNow:
		return func(sc *scope) any { return sc.machine.now() }
	case opCommand:
		return func(sc *scope) any { return uint64(sc.machine.command) }
	case opElapsed:
		return func(sc *scope) any { return sc.nsecs(e.field) - sc.machine.started }
	}
	return nil
}

// simple returns the function of a leaf, of an operator on leaves, or of `&&` and `||` of those; else nil. It needs no VM, which takes
// longer than most predicates, and where the VM needs it, it is one call without operands.
func simple(e *expr) func(*scope) any {
	if read := leaf(e); read != nil {
		return read
	}
	compute := function(e)
	if decided := deciding(e); decided != nil {
		return shortCircuit(simple(e.args[0]), simple(e.args[1]), decided, compute)
	}
	if compute == nil {
		return nil
	}
	operands := make([]any, len(e.args))
	reads := make([]func(*scope) any, len(e.args))
	for i, arg := range e.args {
		if reads[i] = leaf(arg); reads[i] == nil {
			return nil
		}
	}
	return func(sc *scope) any {
		for i, read := range reads {
			operands[i] = read(sc)
		}
		return compute(operands)
	}
}

// shortCircuit returns the function of && or || of two simple operands, or nil.
func shortCircuit(left, right func(*scope) any, decided test, compute func([]any) any) func(*scope) any {
	if left == nil || right == nil {
		return nil
	}
	operands := make([]any, 2)
	return func(sc *scope) any {
		a := left(sc)
		if decided(a) {
			return a
		}
		operands[0], operands[1] = a, right(sc)
		return compute(operands)
	}
}

// deciding returns the test of the left operand that makes the right one needless, for && and ||.
func deciding(e *expr) test {
	switch e.op {
	case "&&":
		return isFalse
	case "||":
		return isTrue
	}
	return nil
}

// lowering turns a typed tree into one for expr's compiler.
type lowering struct {
	evaluator *evaluator
	functions conf.FunctionsTable
	variables int
}

func (l *lowering) lower(e *expr) ast.Node {
	if e.op == opLit {
		return &ast.ConstantNode{Value: e.val}
	}
	if compute := simple(e); compute != nil {
		return l.call(func(sc *scope, _ []any) (any, error) { return compute(sc), nil })
	}
	switch e.op {
	case "&&", "||":
		return l.shortCircuit(e, deciding(e))
	case "??":
		return &ast.BinaryNode{Operator: "??", Left: l.lower(e.args[0]), Right: l.lower(e.args[1])}
	case opCond:
		return &ast.ConditionalNode{Cond: l.condition(e.args[0]), Exp1: l.lower(e.args[1]), Exp2: l.lower(e.args[2])}
	case opElement:
		return &ast.PointerNode{}
	case opCall:
		if loops(e.fn) {
			return l.loop(e)
		}
	}
	args := make([]ast.Node, len(e.args))
	for i, arg := range e.args {
		args[i] = l.lower(arg)
	}
	return l.call(impure(e), args...)
}

// impure returns the function of e, which may read the machine and may fail.
func impure(e *expr) func(*scope, []any) (any, error) {
	switch e.op {
	case opLookup:
		return func(sc *scope, key []any) (any, error) { return sc.machine.lookup(e, key) }
	case opHasKey:
		return func(sc *scope, key []any) (any, error) { return sc.machine.hasKey(e.m, key) }
	case opLen:
		return func(sc *scope, _ []any) (any, error) { return sc.machine.len(e.m) }
	case opCall:
		return library(e)
	}
	compute := function(e)
	return func(_ *scope, x []any) (any, error) { return compute(x), nil }
}

// shortCircuit makes `let a = left; decided(a) ? a : op(a, right)`. expr's own && and || want no absent operand.
func (l *lowering) shortCircuit(e *expr, decided test) ast.Node {
	return l.let(e.args[0], func(a ast.Node) ast.Node {
		return &ast.ConditionalNode{Cond: l.test(decided, a), Exp1: a, Exp2: l.call(impure(e), a, l.lower(e.args[1]))}
	})
}

// let computes x once for what then makes of it.
func (l *lowering) let(x *expr, then func(ast.Node) ast.Node) ast.Node {
	l.variables++
	a := &ast.IdentifierNode{Value: "a" + strconv.Itoa(l.variables)}
	return &ast.VariableDeclaratorNode{Name: a.Value, Value: l.lower(x), Expr: then(a)}
}

// loop makes one of expr's loops over a list; an absent list is absent. In place of a condition absent is false.
func (l *lowering) loop(e *expr) ast.Node {
	return l.let(e.args[0], func(list ast.Node) ast.Node {
		body := &ast.PredicateNode{}
		if e.fn == "map" {
			body.Node = l.lower(e.args[1])
		} else {
			body.Node = l.condition(e.args[1])
		}
		loop := &ast.BuiltinNode{Name: e.fn, Arguments: []ast.Node{list, body}}
		result := l.call(func(_ *scope, x []any) (any, error) { return fromExpr(e, x[0]), nil }, loop)
		return &ast.ConditionalNode{Cond: l.test(isAbsent, list), Exp1: &ast.NilNode{}, Exp2: result}
	})
}

// test is a question about a value that itself is never absent.
type test func(v any) bool

func isTrue(v any) bool   { return v == true }
func isFalse(v any) bool  { return v == false }
func isAbsent(v any) bool { return v == nil }

func (l *lowering) condition(e *expr) ast.Node { return l.test(isTrue, l.lower(e)) }

func (l *lowering) test(t test, n ast.Node) ast.Node {
	return l.call(func(_ *scope, x []any) (any, error) { return t(x[0]), nil }, n)
}

// call makes a call of f.
func (l *lowering) call(f func(*scope, []any) (any, error), args ...ast.Node) ast.Node {
	v := l.evaluator
	name := "f" + strconv.Itoa(len(l.functions))
	l.functions[name] = &builtin.Function{Name: name, Func: func(x ...any) (any, error) { return f(v.scope, x) }}
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: args}
}
