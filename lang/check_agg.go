package lang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/codegen"
	"trace/lang/syntax"
	"trace/probes/event"
)

// aggregator is an aggregation of the language.
type aggregator struct {
	fn    codegen.Func
	usage string
	// how many arguments there are, without those that have names; most is -1 for any number.
	least, most int
}

var aggregators = map[string]aggregator{
	"count":    {codegen.Count, "count()", 0, 0},
	"sum":      {codegen.Sum, "sum(x)", 1, 1},
	"avg":      {codegen.Avg, "avg(x)", 1, 1},
	"min":      {codegen.Min, "min(x)", 1, 1},
	"max":      {codegen.Max, "max(x)", 1, 1},
	"stats":    {codegen.Stats, "stats(x)", 1, 1},
	"hist":     {codegen.Hist, "hist(x), hist(x, k) for 2^k buckets in each power of two, or hist(x, k, min = 20us, shift = 10)", 1, 2},
	"lhist":    {codegen.LHist, "lhist(x, min, max, step)", 4, 4},
	"quantile": {codegen.Quantile, "quantile(x, 50, 99, 99.9)", 2, -1},
	"rate":     {codegen.Rate, "rate() or rate(x)", 0, 1},
	"gauge":    {codegen.Gauge, "gauge(x)", 1, 1},
}

// Limits of the arguments: those of bpftrace, and of a shift of 64 bits.
const (
	maxHistBits = 5
	maxShift    = 63
	maxSteps    = 1000
)

// many tells whether the value is more than one number.
func (a *aggArgs) many() bool {
	switch a.agg.Func {
	case codegen.Stats, codegen.Hist, codegen.LHist, codegen.Quantile:
		return true
	}
	return false
}

// aggregationCall returns n and its name if it is the call of an aggregation.
func aggregationCall(n ast.Node) (call *ast.CallNode, fn string) {
	call, ok := n.(*ast.CallNode)
	if !ok {
		return nil, ""
	}
	fn = callee(call)
	if _, ok := aggregators[fn]; !ok {
		return nil, ""
	}
	return call, fn
}

// aggregate types the call of an aggregation for a map.
func (c *checker) aggregate(m *mapUses, n *ast.CallNode, fn string) *updateStmt {
	args, named := arguments(n)
	how, at := aggregators[fn], syntax.SpanOf(n)
	if len(args) < how.least || how.most >= 0 && len(args) > how.most {
		c.fail(at, fmt.Sprintf("%s() has %s", fn, argumentCount(len(args))), "write "+how.usage)
		return nil
	}
	out := &updateStmt{m: m.info}
	shown := &expr{typ: natural64, span: at}
	ok := true
	if len(args) > 0 {
		out.arg = c.aggregated(fn, args[0])
		if ok = out.arg != nil; ok {
			shown.typ = shownType(how.fn, out.arg.typ)
		}
	}
	agg := &aggArgs{fn: fn, agg: codegen.Agg{Func: how.fn}}
	ok = c.parameters(agg, args, named, how) && ok
	if !ok || !c.kept(m, fn+"()", agg, at) || !c.holds(&m.value, []*expr{shown}, false, m.info.name, at) {
		return nil
	}
	if out.arg != nil {
		out.arg = conform(&m.value, []*expr{out.arg})[0]
	}
	return out
}

func argumentCount(n int) string {
	switch n {
	case 0:
		return "no argument here"
	case 1:
		return "1 argument here"
	}
	return fmt.Sprintf("%d arguments here", n)
}

// aggregated types the value that is aggregated. A boolean counts as 0 or 1.
func (c *checker) aggregated(fn string, n ast.Node) *expr {
	e := c.expr(n, nil)
	switch {
	case e == nil:
		return nil
	case e.typ.Kind == event.Bool:
		number := operation(opCast, natural64, e)
		number.index, number.span = 64, e.span
		e = number
	case !event.IsNumber(e.typ) && e.typ.Kind != pending:
		return c.fail(e.span, fmt.Sprintf("%s() wants a number, and this is %s", fn, describe(e)), aggregatedHelp(e))
	case isName(e.typ) && fn != "min" && fn != "max": // these show one of the values, by its name
		return c.fail(e.span, fmt.Sprintf("%s() wants a number, and this is a name of %s", fn, e.typ.Enum.Name),
			fmt.Sprintf("to count by it, make it a key: @[%s] = count(); its number is %s", e.word(), e.asNumber()))
	}
	if fn == "gauge" {
		return signed(e)
	}
	return e
}

func aggregatedHelp(e *expr) string {
	if e.typ.Kind == event.String || e.typ.Kind == event.GID {
		return "to count by it, make it a key: @[x] = count()"
	}
	return ""
}

// isName tells whether values of a type are names, which have no order and no sum. Error numbers and flags are numbers.
func isName(t event.Type) bool {
	return event.IsNumber(t) && t.Enum != nil && !t.Enum.Flags && t.Unit != event.Errno && t.Unit != event.Cgroup
}

// word is an expression in advice.
func (e *expr) word() string {
	switch e.op {
	case opField:
		return e.field.Name
	case opVar:
		return e.variable.name
	}
	return "x"
}

// asNumber is the number of a name in advice.
func (e *expr) asNumber() string {
	if e.typ.Kind == event.Int {
		return "(int64)" + e.word()
	}
	return "(uint64)" + e.word()
}

// shownType is the type of what is printed of values of type t. Only a value that is one of them keeps its name.
func shownType(fn codegen.Func, t event.Type) event.Type {
	if fn == codegen.Min || fn == codegen.Max || t.Kind == pending {
		return t
	}
	shown := event.Type{Kind: t.Kind, Size: 8}
	if t.Unit == event.Nanoseconds || t.Unit == event.Bytes {
		shown.Unit = t.Unit
	}
	return shown
}

// arguments parts those that have names from the others.
func arguments(n *ast.CallNode) (args []ast.Node, named []*syntax.NamedArg) {
	for _, arg := range n.Arguments {
		if a, ok := arg.(*syntax.NamedArg); ok {
			named = append(named, a)
		} else {
			args = append(args, arg)
		}
	}
	return args, named
}

// parameters reads what an aggregation is given besides the value.
func (c *checker) parameters(a *aggArgs, args []ast.Node, named []*syntax.NamedArg, how aggregator) bool {
	switch how.fn {
	case codegen.Hist:
		return c.histParameters(a, args[1:], named)
	case codegen.LHist:
		return c.noneNamed(a.fn, named) && c.lhistParameters(a, args)
	case codegen.Quantile:
		return c.noneNamed(a.fn, named) && c.percentiles(a, args[1:])
	}
	return c.noneNamed(a.fn, named)
}

// noneNamed makes sure that no argument has a name.
func (c *checker) noneNamed(fn string, named []*syntax.NamedArg) bool {
	for _, arg := range named {
		c.fail(syntax.SpanOf(arg), fmt.Sprintf("%s() has no argument called %s", fn, arg.Name), "")
	}
	return len(named) == 0
}

func (c *checker) histParameters(a *aggArgs, args []ast.Node, named []*syntax.NamedArg) bool {
	ok := true
	number := func(n ast.Node, what string, lo, hi int64) int64 {
		v, valid := c.constant(n, what, lo, hi)
		ok = ok && valid
		return v
	}
	for _, n := range args {
		a.agg.Bits = int(number(n, "k of hist()", 0, maxHistBits))
	}
	for _, arg := range named {
		switch arg.Name {
		case "min":
			a.agg.Low = number(arg.Value, "min of hist()", minInt64, maxInt64)
		case "shift":
			a.agg.Shift = int(number(arg.Value, "shift of hist()", 0, maxShift))
		default:
			names := []string{"min", "shift"}
			c.fail(syntax.SpanOf(arg), fmt.Sprintf("hist() has no argument called %s", arg.Name), "it has "+strings.Join(names, " and "))
			ok = false
		}
	}
	return ok
}

func (c *checker) lhistParameters(a *aggArgs, args []ast.Node) bool {
	values, ok := make([]int64, 3), true
	for i, what := range []string{"min of lhist()", "max of lhist()", "step of lhist()"} {
		v, valid := c.constant(args[i+1], what, minInt64, maxInt64)
		values[i], ok = v, ok && valid
	}
	if !ok {
		return false
	}
	low, high, step := values[0], values[1], values[2]
	switch {
	case high <= low:
		return c.fail(syntax.SpanOf(args[2]), "max of lhist() is not above min", "write lhist(x, min, max, step)") != nil
	case step <= 0:
		return c.fail(syntax.SpanOf(args[3]), "step of lhist() is not above 0", "write lhist(x, min, max, step)") != nil
	case (uint64(high)-uint64(low)-1)/uint64(step)+1 > maxSteps:
		return c.fail(syntax.SpanOf(args[3]), fmt.Sprintf("lhist() has at most %d buckets, and this makes %d", maxSteps,
			(uint64(high)-uint64(low)-1)/uint64(step)+1), "take a larger step") != nil
	}
	a.agg.Low, a.agg.High, a.agg.Step = low, high, step
	return true
}

// percentiles reads those of quantile().
func (c *checker) percentiles(a *aggArgs, args []ast.Node) bool {
	ok := true
	for _, n := range args {
		p, valid := c.percentile(n)
		a.percentiles, ok = append(a.percentiles, p), ok && valid
	}
	return ok
}

func (c *checker) percentile(n ast.Node) (p float64, ok bool) {
	if k, isConstant := n.(*ast.ConstantNode); isConstant {
		if f, isFloat := k.Value.(syntax.Float); isFloat {
			if f.Value > 100 {
				c.fail(syntax.SpanOf(n), "a percentile is at most 100", "")
				return 0, false
			}
			return f.Value, true
		}
	}
	i, ok := c.constant(n, "a percentile", 0, 100)
	return float64(i), ok
}

const (
	minInt64 = -1 << 63
	maxInt64 = 1<<63 - 1
)

// constant types an argument that has to be a literal number in a range.
func (c *checker) constant(n ast.Node, what string, lo, hi int64) (v int64, ok bool) {
	e := c.expr(n, nil)
	switch {
	case e == nil:
		return 0, false
	case e.op != opLit || !event.IsNumber(e.typ):
		c.fail(e.span, what+" has to be a literal number", "")
		return 0, false
	case event.Compare(e.val, lo) < 0 || event.Compare(e.val, hi) > 0:
		msg := fmt.Sprintf("%s is between %d and %d", what, lo, hi)
		if lo == minInt64 {
			msg = what + " does not fit 64 bits with a sign"
		}
		c.fail(e.span, msg, "")
		return 0, false
	}
	return event.To[int64](e.val), true
}

// aggregationNames are in the order of the alphabet.
func aggregationNames() []string {
	var names []string
	for name := range aggregators {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
