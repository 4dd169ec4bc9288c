package lang

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"trace/lang/format"
	"trace/probes/event"
)

// Dump returns the typed tree as text: the maps, and for each clause and probe the variables, the predicate and the statements.
// Behind each value that is no literal stands its type; a question mark says that it may be absent.
func (p *Program) Dump() string {
	d := &dumper{}
	for _, m := range p.maps {
		d.line("%s", m.describe())
	}
	for _, c := range p.clauses {
		for _, place := range c.places() {
			d.body(c, c.bodies[place])
		}
	}
	return strings.TrimSuffix(d.b.String(), "\n")
}

type dumper struct {
	b      strings.Builder
	indent int
}

func (d *dumper) line(format string, args ...any) {
	d.b.WriteString(strings.Repeat("\t", d.indent))
	fmt.Fprintf(&d.b, format+"\n", args...)
}

func (d *dumper) body(c *Clause, b *body) {
	head := c.kind.String()
	switch {
	case b.probe != nil && c.hz != 0:
		head = fmt.Sprintf("%s:%dhz", b.probe.Group, c.hz)
	case b.probe != nil:
		head = b.probe.String()
	case c.kind == onInterval:
		head += ":" + periodText(c.period)
	}
	if b.pred != nil {
		head += " / " + b.pred.String() + " /"
	}
	if b.prints {
		head += " prints"
	}
	d.line("%s", head)
	d.indent++
	for _, v := range c.vars {
		d.line("%s#%d %s", v.name, v.index, typeText(v.typ, v.elems, v.optional))
	}
	d.stmts(b.stmts)
	d.indent--
}

// periodText is like 1m, where package time says 1m0s.
func periodText(p period) string {
	text := p.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (d *dumper) stmts(stmts []stmt) {
	for _, s := range stmts {
		d.stmt(s)
	}
}

func (d *dumper) block(stmts []stmt) {
	d.indent++
	d.stmts(stmts)
	d.indent--
}

func (d *dumper) stmt(s stmt) {
	switch s := s.(type) {
	case *setStmt:
		value := exprTexts(s.value)
		if s.m.isTuple {
			value = "(" + value + ")"
		}
		d.line("%s %s %s", mapText(s.m, s.key), strings.TrimPrefix(s.op+"=", "="), value)
	case *updateStmt:
		arg := ""
		if s.arg != nil {
			arg = s.arg.String()
		}
		d.line("%s = %s(%s)", mapText(s.m, s.key), s.m.funcName(), arg)
	case *letStmt:
		d.line("%s#%d = %s", s.v.name, s.v.index, s.value)
	case *ifStmt:
		d.line("if %s", s.cond)
		d.block(s.then)
		if s.els != nil {
			d.line("else")
			d.block(s.els)
		}
	case *forStmt:
		if s.m != nil {
			d.line("for %s#%d : %s%s", s.v.name, s.v.index, s.m.name, strings.TrimSuffix(" by "+s.by, " by "))
		} else {
			d.line("for %s#%d : %s..%s", s.v.name, s.v.index, s.lo, s.hi)
		}
		d.block(s.body)
	case *callStmt:
		d.line("%s", s.text())
	case *returnStmt:
		d.line("return")
	}
}

func (s *callStmt) text() string {
	var args []string
	if s.m != nil {
		args = append(args, mapText(s.m, s.key))
	}
	if s.top != 0 || s.div != 0 {
		args = append(args, fmt.Sprintf("top %d div %d", s.top, s.div))
	}
	if s.by != "" {
		args = append(args, "by "+s.by)
	}
	if len(s.args) > 0 {
		args = append(args, exprTexts(s.args))
	}
	return s.fn + "(" + strings.Join(args, ", ") + ")"
}

func mapText(m *mapInfo, key []*expr) string {
	if len(key) == 0 {
		return m.name
	}
	return m.name + "[" + exprTexts(key) + "]"
}

func exprTexts(all []*expr) string {
	texts := make([]string, len(all))
	for i, e := range all {
		texts[i] = e.String()
	}
	return strings.Join(texts, ", ")
}

// String returns the tree of e in one line.
func (e *expr) String() string {
	switch e.op {
	case opLit, opTuple, opList, opHasKey:
		return e.untyped()
	}
	return e.untyped() + ":" + typeText(e.typ, e.elems, e.optional)
}

// untyped returns the tree of e without the type of its root.
func (e *expr) untyped() string {
	switch e.op {
	case opLit:
		return e.literalText()
	case opField:
		return e.field.Name
	case opVar:
		return fmt.Sprintf("%s#%d", e.variable.name, e.variable.index)
	case opLookup:
		return mapText(e.m, e.args)
	case opHasKey:
		return "has_key(" + mapText(e.m, e.args) + ")"
	case opLen:
		return "len(" + e.m.name + ")"
	case opMember:
		return fmt.Sprintf("%s.%d", e.args[0].untyped(), e.index)
	case opCall:
		return e.fn + "(" + exprTexts(e.args) + ")"
	case opStack:
		return fmt.Sprintf("%s(%d)", e.fn, e.index)
	case opElement, opElapsed, opNow, opCommand:
		return e.op
	case opSlot:
		return fmt.Sprintf("slot%d", e.index)
	}
	return e.op + "(" + exprTexts(e.args) + ")"
}

func (e *expr) literalText() string {
	switch v := e.val.(type) {
	case *regexp.Regexp:
		return strconv.Quote(v.String())
	case string:
		return strconv.Quote(v)
	default:
		return fmt.Sprint(v)
	}
}

// typeText is like s4, u8, ns, bytes, bool, str16, gid or the name of an enum; the number is that of the bytes.
func typeText(t event.Type, elems []event.Type, optional bool) string {
	text := kindText(t)
	if elems != nil {
		var all []string
		for _, elem := range elems {
			all = append(all, typeText(elem, nil, false))
		}
		text += "(" + strings.Join(all, " ") + ")"
	}
	if optional {
		text += "?"
	}
	return text
}

func kindText(t event.Type) string {
	switch t.Kind {
	case event.Bool:
		return "bool"
	case event.String:
		return fmt.Sprintf("str%d", t.Size)
	case event.GID:
		return "gid"
	case format.Tuple:
		return "tuple"
	case format.Array:
		return "list"
	case format.Stack:
		return "stack"
	}
	text := fmt.Sprintf("u%d", t.Size)
	if t.Kind == event.Int {
		text = fmt.Sprintf("s%d", t.Size)
	}
	if t.Enum != nil {
		text += " " + t.Enum.Name
	}
	if t.Unit != event.None {
		text += " " + map[event.Unit]string{
			event.Nanoseconds: "ns", event.Bytes: "bytes", event.Errno: "errno", event.Cgroup: "cgroup", event.Hex: "hex", instant: "time",
		}[t.Unit]
	}
	return text
}

// describe tells what a map is.
func (m *mapInfo) describe() string {
	text := m.name
	if len(m.key) > 0 {
		text += "[" + columnsText(m.key) + "]"
	}
	value := columnsText(m.value)
	switch {
	case m.agg != nil:
		value = m.funcName() + "(" + value + aggText(m) + ")"
	case m.isTuple:
		value = "(" + value + ")"
	}
	text += " = " + value
	if m.entries != 0 {
		text += fmt.Sprintf(" entries %d", m.entries)
	}
	if m.lru {
		text += " lru"
	}
	return text
}

func columnsText(all []column) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = typeText(c.typ, nil, c.optional)
	}
	return strings.Join(texts, ", ")
}

func aggText(m *mapInfo) string {
	if params := m.agg.Params(); params != "" {
		return "; " + params
	}
	return ""
}
