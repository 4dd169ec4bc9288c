package exec

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"trace/lang/ir"
	"trace/lang/plan"
	"trace/probes/event"
)

// valuer is an event with values that the kernel has computed.
type valuer interface {
	// Value returns value number i, or false if it is absent.
	Value(i int) (v any, ok bool)
}

// evaluator computes an expression in user space, on expr's VM. Only one goroutine at a time may use it.
type evaluator struct {
	// simple computes an expression without choices and calls. program is nil then.
	simple  func(*scope) any
	program *vm.Program
	vm      vm.VM // kept for its stack
	// scope is the input of the program's functions.
	scope *scope
}

// newEvaluator compiles an expression for the VM.
//
// The VM runs calls, jumps and variables. It computes no operator, because expr divides in floating point, compares unsigned
// numbers as signed ones and stops at nil. So every operator becomes a call of its [ir.Function]. Only the choices (`&&`, `||`,
// `??`, `?:`), which evaluate no more than they need, and the loops over lists become expr's own.
func newEvaluator(e *ir.Expr) (*evaluator, error) {
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

// eval returns the value of the expression, or nil if it is absent.
func (v *evaluator) eval(sc *scope) (any, error) {
	if v.simple != nil {
		return v.simple(sc), nil
	}
	v.scope = sc
	result, err := v.vm.Run(v.program, nil)
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // without the position in the text, which the VM does not have
	}
	return result, err
}

// leaf returns the function of an expression that only reads the scope, or nil.
func leaf(e *ir.Expr) func(*scope) any {
	switch e.Op {
	case ir.OpLit:
		return func(*scope) any { return e.Val }
	case ir.OpField:
		return func(sc *scope) any { return sc.field(e.Field) }
	case ir.OpVar:
		return func(sc *scope) any { return sc.vars[e.Variable.Index] }
	case ir.OpSlot:
		naming := ir.NamingOf(e.Type)
		return func(sc *scope) any {
			v, ok := sc.event.(valuer).Value(e.Index)
			switch {
			case !ok:
				return nil
			case naming != nil:
				return naming.Text(event.To[int64](v))
			}
			return v
		}
	case ir.OpStack:
		return func(sc *scope) any { return sc.stack(e.StackUse()) }
	case ir.OpNow:
		return func(sc *scope) any { return sc.now() }
	case ir.OpCommand:
		return func(sc *scope) any { return uint64(sc.machine.command) }
	case ir.OpOwn:
		return func(*scope) any { return uint64(os.Getpid()) }
	case ir.OpSignal: // only the second run of a comparison comes here
		return func(*scope) any { return nil }
	case ir.OpSelf:
		read := self(e)
		return func(*scope) any { return read() }
	case ir.OpElapsed:
		return func(sc *scope) any { return sc.elapsed(e.Field) }
	}
	return nil
}

// simple returns the function of a leaf, of an operator on leaves, or of `&&` and `||` of such operands; otherwise nil. It needs no
// VM, which takes longer than most predicates. Inside a larger expression it is one call without operands.
func simple(e *ir.Expr) func(*scope) any {
	if read := leaf(e); read != nil {
		return read
	}
	compute := ir.Function(e)
	if decided := deciding(e); decided != nil {
		return shortCircuit(simple(e.Args[0]), simple(e.Args[1]), decided, compute)
	}
	if compute == nil {
		return nil
	}
	operands := make([]any, len(e.Args))
	reads := make([]func(*scope) any, len(e.Args))
	for i, arg := range e.Args {
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

// deciding returns the test of the left operand that makes the right one unnecessary, for && and ||.
func deciding(e *ir.Expr) test {
	switch e.Op {
	case ir.OpAnd:
		return isFalse
	case ir.OpOr:
		return isTrue
	}
	return nil
}

// lowering converts a typed tree to a tree for expr's compiler.
type lowering struct {
	evaluator *evaluator
	functions conf.FunctionsTable
	variables int
}

func (l *lowering) lower(e *ir.Expr) ast.Node {
	if e.Op == ir.OpLit {
		return &ast.ConstantNode{Value: e.Val}
	}
	if compute := simple(e); compute != nil {
		return l.call(func(sc *scope, _ []any) (any, error) { return compute(sc), nil })
	}
	switch e.Op {
	case ir.OpAnd, ir.OpOr:
		return l.shortCircuit(e, deciding(e))
	case ir.OpCoalesce:
		return &ast.BinaryNode{Operator: "??", Left: l.lower(e.Args[0]), Right: l.lower(e.Args[1])}
	case ir.OpCond:
		return &ast.ConditionalNode{Cond: l.condition(e.Args[0]), Exp1: l.lower(e.Args[1]), Exp2: l.lower(e.Args[2])}
	case ir.OpElement:
		return &ast.PointerNode{}
	case ir.OpCall:
		if loops(e.Fn) {
			return l.loop(e)
		}
	}
	args := make([]ast.Node, len(e.Args))
	for i, arg := range e.Args {
		args[i] = l.lower(arg)
	}
	return l.call(impure(e), args...)
}

// impure returns the function of e, which may read the machine and may fail.
func impure(e *ir.Expr) func(*scope, []any) (any, error) {
	switch e.Op {
	case ir.OpLookup:
		return func(sc *scope, key []any) (any, error) { return sc.machine.lookup(e, key) }
	case ir.OpHasKey:
		return func(sc *scope, key []any) (any, error) { return sc.machine.hasKey(e.Map, key) }
	case ir.OpLen:
		return func(sc *scope, _ []any) (any, error) { return sc.machine.len(e.Map) }
	case ir.OpCall:
		return library(e)
	}
	compute := ir.Function(e)
	return func(_ *scope, x []any) (any, error) { return compute(x), nil }
}

// shortCircuit makes `let a = left; decided(a) ? a : op(a, right)`. expr's own && and || do not accept absent operands.
func (l *lowering) shortCircuit(e *ir.Expr, decided test) ast.Node {
	return l.let(e.Args[0], func(a ast.Node) ast.Node {
		return &ast.ConditionalNode{Cond: l.test(decided, a), Exp1: a, Exp2: l.call(impure(e), a, l.lower(e.Args[1]))}
	})
}

// let computes x once; then uses the result.
func (l *lowering) let(x *ir.Expr, then func(ast.Node) ast.Node) ast.Node {
	l.variables++
	a := &ast.IdentifierNode{Value: "a" + strconv.Itoa(l.variables)}
	return &ast.VariableDeclaratorNode{Name: a.Value, Value: l.lower(x), Expr: then(a)}
}

// loop makes one of expr's loops over a list. An absent list is absent. An absent condition is false. Options.Cut cuts the loop short.
func (l *lowering) loop(e *ir.Expr) ast.Node {
	return l.let(e.Args[0], func(list ast.Node) ast.Node {
		body := &ast.PredicateNode{}
		if e.Fn == "map" {
			body.Node = l.call(element(), l.lower(e.Args[1]), &ast.PointerNode{Name: "index"})
		} else {
			body.Node = l.call(func(sc *scope, x []any) (any, error) { return x[0] == true, sc.cut() }, l.lower(e.Args[1]))
		}
		loop := &ast.BuiltinNode{Name: e.Fn, Arguments: []ast.Node{list, body}}
		result := l.call(func(_ *scope, x []any) (any, error) { return fromExpr(e, x[0]), nil }, loop)
		return &ast.ConditionalNode{Cond: l.test(isAbsent, list), Exp1: &ast.NilNode{}, Exp2: result}
	})
}

// element returns what makes a value an element of a list. The strings of a list have no more bytes than one string may have; more are
// absent, and so is the list.
func element() func(*scope, []any) (any, error) {
	size := 0
	return func(sc *scope, x []any) (any, error) {
		if x[1] == 0 {
			size = 0
		}
		if s, is := x[0].(string); is {
			size += len(s)
		}
		if !fits(1, size) {
			return nil, sc.cut()
		}
		return x[0], sc.cut()
	}
}

// test is a question about a value. Its answer is never absent.
type test func(v any) bool

func isTrue(v any) bool   { return v == true }
func isFalse(v any) bool  { return v == false }
func isAbsent(v any) bool { return v == nil }

func (l *lowering) condition(e *ir.Expr) ast.Node { return l.test(isTrue, l.lower(e)) }

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

// cgroup is the source of the names of what a cgroup runs. It is the cgroup's id.
type cgroup uint64

// Get returns a name; ok is false if there is none.
func (id cgroup) Get(f *event.Field) (value any, ok bool) {
	name := f.Type.Enum.NameOf(int64(id))
	return name, name != ""
}

// An Answer is the answer to a question about the cgroup with an id. known is false if a name that the answer needs is absent. It may be called
// from several goroutines.
type Answer = func(id uint64) (yes, known bool)

// Questions returns the answers to the questions of the code, by the names of their maps, for [probes.AttachOptions].
func (r *Run) Questions() map[string]Answer { return r.questions }

// answersTo compiles questions.
func answersTo(questions []plan.Question) (map[string]Answer, error) {
	all := map[string]Answer{}
	for _, q := range questions {
		e, err := newEvaluator(q.Condition)
		if err != nil {
			return nil, err
		}
		var mu sync.Mutex
		all[q.Name] = func(id uint64) (yes, known bool) {
			mu.Lock()
			defer mu.Unlock()
			v, err := e.eval(&scope{event: cgroup(id)})
			yes, known = v.(bool)
			return yes, known && err == nil
		}
	}
	return all, nil
}
