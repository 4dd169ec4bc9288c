package check

import (
	"fmt"
	"path"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file gives paths of cgroups their meaning. To the kernel a cgroup is a number, its id. If the cgroup exists when the program
// is compiled, its path becomes that id. A path that does not exist yet has no id: it is compared as text, in user space, after the
// id of the event has been turned into a path. The choice depends only on the program and on the time of compilation, so both
// engines agree.

// mountPoint begins the path of a cgroup's directory, which is not the path of the cgroup.
const mountPoint = "/sys/fs/cgroup/"

// cgroup types a string literal that is compared with a cgroup.
func (c *checker) cgroup(at syntax.Span, value string, want *event.Type) *ir.Expr {
	if !strings.HasPrefix(value, "/") {
		return c.fail(at, fmt.Sprintf("%q is not the path of a cgroup", value), `write it like in /proc/PID/cgroup: "/system.slice/ssh.service"`)
	}
	if below, ok := strings.CutPrefix(value, mountPoint); ok {
		return c.fail(at, "the path of a cgroup starts below the mount point", fmt.Sprintf("write %q, like in /proc/PID/cgroup", "/"+below))
	}
	id := c.cgroupID(want, value)
	if id == 0 {
		return c.fail(at, fmt.Sprintf("cgroup %s does not exist", value), "only ==, != and in work with a cgroup that may be created later")
	}
	e := literal(int64(id))
	e.Type.Unit, e.Type.Enum = want.Unit, want.Enum
	return e
}

// cgroupID returns the id of a path, or 0 if there is no such cgroup. It looks up each path once, so that all clauses agree.
func (c *checker) cgroupID(t *event.Type, p string) uint64 {
	if id, asked := c.cgroups[p]; asked {
		return id
	}
	var id int64
	if t.Enum != nil {
		id, _ = t.Enum.Value(path.Clean(p))
	}
	c.cgroups[p] = uint64(id)
	return uint64(id)
}

// isPath reports whether n is a string literal that is compared with a cgroup.
func (c *checker) isPath(want *event.Type, n ast.Node) bool {
	if want == nil || want.Unit != event.Cgroup {
		return false
	}
	p, ok := c.stringLiteral(n)
	return ok && strings.HasPrefix(p, "/") && !strings.HasPrefix(p, mountPoint)
}

// unseenPath reports whether one of the operands is the path of a cgroup that does not exist.
func (c *checker) unseenPath(want *event.Type, operands ...ast.Node) bool {
	unseen := false
	for _, n := range operands {
		if c.isPath(want, n) {
			p, _ := c.stringLiteral(n)
			unseen = c.cgroupID(want, p) == 0 || unseen
		}
	}
	return unseen
}

// pathOf converts the id of a cgroup to its path. It returns any other expression unchanged.
func pathOf(e *ir.Expr) *ir.Expr {
	if e == nil || !ir.IsCgroup(e) {
		return e
	}
	p := ir.Operation(ir.OpCall, event.Type{Kind: event.String, Size: computedSize}, e)
	p.Fn, p.Span = "string", e.Span
	return p
}

// cgroupType returns the type of the field cgroup, which all events have.
func (r *resolver) cgroupType() *event.Type {
	if with := r.having("cgroup"); with != nil {
		return &with[0].Field("cgroup").Type
	}
	return &event.Type{Kind: event.Uint, Size: 8, Unit: event.Cgroup}
}

// cgroupCalled types cgroupid("/sys/fs/cgroup/system.slice"): the cgroup of that folder.
func (c *checker) cgroupCalled(n *ast.CallNode) *ir.Expr {
	text, ok := c.literalArgument(n, `cgroupid("/sys/fs/cgroup/system.slice")`)
	if !ok {
		return nil
	}
	if below, is := strings.CutPrefix(path.Clean(text)+"/", mountPoint); is {
		text = "/" + strings.TrimSuffix(below, "/")
	}
	return c.cgroup(syntax.SpanOf(n), text, c.cgroupType())
}

// cgroupPath types cgroup_path(id): the path of a cgroup.
func (c *checker) cgroupPath(n *ast.CallNode) *ir.Expr {
	id := c.numberArgument(n, "cgroup_path(cgroup)")
	if id == nil || id.Type.Kind == ir.Pending {
		return id
	}
	of, want := *id, c.cgroupType()
	of.Type.Unit, of.Type.Enum = want.Unit, want.Enum
	return pathOf(&of)
}
