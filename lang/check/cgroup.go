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

// This file gives the paths of cgroups their meaning. A cgroup is a number for the kernel, its id, and the path of one that is there
// when the program is compiled becomes that number. A path that is not there yet has none: such a comparison is one of texts, in user
// space, where the id of an event has become a path. Which of the two it is depends on nothing but the program and the moment, so both
// engines agree.

// mountPoint begins what is no path of a cgroup, but of its directory.
const mountPoint = "/sys/fs/cgroup/"

// cgroup types a string literal beside a cgroup.
func (c *checker) cgroup(at syntax.Span, value string, want *event.Type) *ir.Expr {
	if !strings.HasPrefix(value, "/") {
		return c.fail(at, fmt.Sprintf("%q is no path of a cgroup", value), `a path is as in /proc/PID/cgroup, like "/system.slice/ssh.service"`)
	}
	if below, ok := strings.CutPrefix(value, mountPoint); ok {
		return c.fail(at, "the path of a cgroup begins where cgroups are mounted", fmt.Sprintf("write %q, as in /proc/PID/cgroup", "/"+below))
	}
	id := c.cgroupID(want, value)
	if id == 0 {
		return c.fail(at, fmt.Sprintf("there is no cgroup %s now", value), "only ==, != and in compare with one that may come")
	}
	e := literal(int64(id))
	e.Type.Unit, e.Type.Enum = want.Unit, want.Enum
	return e
}

// cgroupID returns the id of a path, 0 if there is no such cgroup. The host is asked once for each, so that all clauses mean the same.
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

// isPath tells whether a node is a path beside a cgroup.
func (c *checker) isPath(want *event.Type, n ast.Node) bool {
	if want == nil || want.Unit != event.Cgroup {
		return false
	}
	p, ok := c.stringLiteral(n)
	return ok && strings.HasPrefix(p, "/") && !strings.HasPrefix(p, mountPoint)
}

// unseenPath tells whether some of the operands beside a cgroup is the path of one that is not there.
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

// pathOf makes the path of a cgroup, and leaves all else as it is.
func pathOf(e *ir.Expr) *ir.Expr {
	if e == nil || !ir.IsCgroup(e) {
		return e
	}
	p := ir.Operation(ir.OpCall, event.Type{Kind: event.String, Size: computedSize}, e)
	p.Fn, p.Span = "string", e.Span
	return p
}
