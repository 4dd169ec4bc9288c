package check

import (
	"fmt"
	"path"
	"strconv"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// Filter restricts the clauses on events to some tasks, as if each predicate began with its conditions. A zero field restricts
// nothing.
type Filter struct {
	// PID is a process, Comm the name of threads, PGID a process group and PIDNS the inode number of a pid namespace.
	PID   int
	Comm  string
	PGID  int
	PIDNS uint32
	// Cgroup is the path of a cgroup; cgroups below it count too. It is compared as text and is for recorded events. Live runs use
	// Options.Below of package plan.
	Cgroup string
}

// condition is one condition of a filter: its flag on the command line, its field and its expression.
type condition struct {
	flag, field string
	holds       ast.Node
}

func (f Filter) conditions() (all []condition) {
	if f.PID != 0 {
		all = append(all, condition{fmt.Sprintf("-p %d", f.PID), "pid", fieldIs("pid", numberNode(f.PID))})
	}
	if f.Comm != "" {
		all = append(all, condition{"--comm " + f.Comm, "comm", fieldIs("comm", &ast.StringNode{Value: f.Comm})})
	}
	if f.PGID != 0 {
		all = append(all, condition{fmt.Sprintf("--pgid %d", f.PGID), "pgid", fieldIs("pgid", numberNode(f.PGID))})
	}
	if f.PIDNS != 0 {
		all = append(all, condition{fmt.Sprintf("--pidns %d", f.PIDNS), "pidns", fieldIs("pidns", numberNode(int(f.PIDNS)))})
	}
	if f.Cgroup != "" {
		all = append(all, condition{"--cgroup " + f.Cgroup, "cgroup", isBelow(path.Clean(f.Cgroup))})
	}
	return all
}

// fieldNode names a field of the event. Without "event." the word could be a name of a value.
func fieldNode(name string) ast.Node { return &ast.IdentifierNode{Value: "event." + name} }

func numberNode(n int) ast.Node {
	return &ast.ConstantNode{Value: syntax.Int{Value: uint64(n), Text: strconv.Itoa(n)}}
}

func fieldIs(name string, value ast.Node) ast.Node {
	return &ast.BinaryNode{Operator: "==", Left: fieldNode(name), Right: value}
}

// isBelow is true for the cgroup at p and all cgroups below it.
func isBelow(p string) ast.Node {
	inside := p + "/"
	if p == "/" {
		inside = p
	}
	self := &ast.CallNode{Callee: &ast.IdentifierNode{Value: "string"}, Arguments: []ast.Node{fieldNode("cgroup")}}
	return &ast.BinaryNode{
		Operator: "||", Left: &ast.BinaryNode{Operator: "==", Left: self, Right: &ast.StringNode{Value: p}},
		Right: &ast.BinaryNode{Operator: "startsWith", Left: fieldNode("cgroup"), Right: &ast.StringNode{Value: inside}},
	}
}

// lacks returns an error if the probes of a clause lack a field of the filter. Old recordings may.
func (f Filter) lacks(clauses []*ir.Clause) error {
	for _, one := range f.conditions() {
		for _, c := range clauses {
			for _, p := range c.Probes {
				if p.Field(one.field) == nil {
					return fmt.Errorf("%s: the recording has no field %s of %s: record again with this version of trace", one.flag, one.field, p)
				}
			}
		}
	}
	return nil
}

// notSelf is true for the events of processes other than trace itself.
func (c *checker) notSelf() *ir.Expr {
	return ir.Operation(ir.OpNe, ir.Boolean, c.fieldNamed("pid"), &ir.Expr{Op: ir.OpOwn, Type: ir.Natural64})
}

// notBefore is true for the events of the command of -c from its execve on, and for the events of other processes. Until then, its process
// is a copy of trace that waits.
func (c *checker) notBefore() *ir.Expr {
	name := &ir.Expr{Op: ir.OpLit, Type: event.Type{Kind: event.String, Size: len(c.options.Waiting) + 1}, Val: c.options.Waiting}
	other := ir.Operation(ir.OpNe, ir.Boolean, c.fieldNamed("pid"), &ir.Expr{Op: ir.OpCommand, Type: ir.Natural64})
	renamed := ir.Operation(ir.OpNe, ir.Boolean, c.fieldNamed("comm"), name)
	pass := ir.Operation(ir.OpOr, ir.Boolean, other, renamed)
	call := c.fieldNamed("nr")
	execve := literal(uint64(0))
	if enum := event.EnumOf(&call.Type); enum != nil {
		number, _ := enum.Value("execve")
		execve = literal(number)
		execve.Type.Enum = enum
	}
	return ir.Operation(ir.OpOr, ir.Boolean, pass, ir.Operation(ir.OpEq, ir.Boolean, call, execve))
}

// fieldNamed returns a field that the probe has, and that the program need not have named.
func (c *checker) fieldNamed(name string) *ir.Expr {
	f := c.probe.Field(name)
	return &ir.Expr{Op: ir.OpField, Type: f.Type, Field: f, Optional: f.Optional}
}
