package ir

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"trace/lang/format"
	"trace/probes/event"
)

// Dump returns the typed tree as text: the maps and, for each site, the variables, the predicate and the statements. The type
// follows each value that is not a literal; a question mark marks a value that may be absent.
func (p *Program) Dump() string {
	d := &dumper{}
	for _, m := range p.Maps {
		d.line("%s", m.describe())
	}
	for _, c := range p.Clauses {
		for _, place := range c.Places() {
			d.site(c, c.Sites[place])
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

func (d *dumper) site(c *Clause, b *Site) {
	head := c.Kind.String()
	switch {
	case b.Probe != nil && c.Hz != 0:
		head = fmt.Sprintf("%s:%dhz", b.Probe.Group, c.Hz)
	case b.Probe != nil && c.Period != 0:
		head = b.Probe.String() + ":" + PeriodText(c.Period)
	case b.Probe != nil:
		head = b.Probe.String()
	case c.Kind == OnInterval:
		head += ":" + PeriodText(c.Period)
	case c.Kind.Tried():
		head = c.Name
	}
	if b.Pred != nil {
		head += " / " + b.Pred.String() + " /"
	}
	if b.Prints {
		head += " prints"
	}
	d.line("%s", head)
	d.indent++
	for _, v := range c.Vars {
		d.line("%s#%d %s", v.Name, v.Index, TypeText(v.Type, v.Elems, v.Optional))
	}
	d.stmts(b.Stmts)
	d.indent--
}

// PeriodText returns a period in its shortest form: 1m, where package time writes 1m0s.
func PeriodText(p Period) string {
	text := p.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (d *dumper) stmts(stmts []Stmt) {
	for _, s := range stmts {
		d.stmt(s)
	}
}

func (d *dumper) block(stmts []Stmt) {
	d.indent++
	d.stmts(stmts)
	d.indent--
}

func (d *dumper) stmt(s Stmt) {
	switch s := s.(type) {
	case *SetStmt:
		value := exprTexts(s.Value)
		if s.Map.IsTuple {
			value = "(" + value + ")"
		}
		operator := "="
		if s.Adds {
			operator = "+="
		}
		d.line("%s %s %s", mapText(s.Map, s.Key), operator, value)
	case *UpdateStmt:
		arg := ""
		if s.Arg != nil {
			arg = s.Arg.String()
		}
		d.line("%s = %s(%s)", mapText(s.Map, s.Key), s.Map.FuncName(), arg)
	case *LetStmt:
		d.line("%s#%d = %s", s.V.Name, s.V.Index, s.Value)
	case *IfStmt:
		d.line("if %s", s.Cond)
		d.block(s.Then)
		if s.Else != nil {
			d.line("else")
			d.block(s.Else)
		}
	case *ForStmt:
		if s.Map != nil {
			d.line("for %s#%d : %s%s", s.V.Name, s.V.Index, s.Map.Name, strings.TrimSuffix(" by "+s.By, " by "))
		} else {
			d.line("for %s#%d : %s..%s", s.V.Name, s.V.Index, s.Lo, s.Hi)
		}
		d.block(s.Body)
	case *WhileStmt:
		d.line("while")
		d.block(s.Before)
		d.line("holds %s", s.Cond)
		d.block(s.Body)
	case *JumpStmt:
		d.line("%s", s)
	case *CallStmt:
		d.line("%s", s.text())
	case *ReturnStmt:
		if s.Value != nil {
			d.line("return %s", s.Value)
			return
		}
		d.line("return")
	}
}

// String returns the statement as text.
func (s *JumpStmt) String() string {
	if s.Continue {
		return "continue"
	}
	return "break"
}

func (s *CallStmt) text() string {
	var args []string
	if s.Map != nil {
		args = append(args, mapText(s.Map, s.Key))
	}
	if s.Top != 0 || s.Div != 0 {
		args = append(args, fmt.Sprintf("top %d div %d", s.Top, s.Div))
	}
	if s.By != "" {
		args = append(args, "by "+s.By)
	}
	if len(s.Args) > 0 {
		args = append(args, exprTexts(s.Args))
	}
	return s.Fn + "(" + strings.Join(args, ", ") + ")"
}

func mapText(m *Map, key []*Expr) string {
	if len(key) == 0 {
		return m.Name
	}
	return m.Name + "[" + exprTexts(key) + "]"
}

func exprTexts(all []*Expr) string {
	texts := make([]string, len(all))
	for i, e := range all {
		texts[i] = e.String()
	}
	return strings.Join(texts, ", ")
}

// String returns the tree of e in one line.
func (e *Expr) String() string {
	switch e.Op {
	case OpLit, OpTuple, OpList, OpHasKey:
		return e.untyped()
	}
	return e.untyped() + ":" + TypeText(e.Type, e.Elems, e.Optional)
}

// untyped returns the tree of e without the type of its root.
func (e *Expr) untyped() string {
	switch e.Op {
	case OpLit:
		return e.literalText()
	case OpField:
		return e.Field.Name
	case OpVar:
		return fmt.Sprintf("%s#%d", e.Variable.Name, e.Variable.Index)
	case OpLookup:
		return mapText(e.Map, e.Args)
	case OpHasKey:
		return "has_key(" + mapText(e.Map, e.Args) + ")"
	case OpLen:
		return "len(" + e.Map.Name + ")"
	case OpByte:
		return fmt.Sprintf("%s[%d]", e.Args[0].untyped(), e.Index)
	case OpMember:
		return fmt.Sprintf("%s.%d", e.Args[0].untyped(), e.Index)
	case OpCall:
		return e.Fn + "(" + exprTexts(e.Args) + ")"
	case OpStack:
		return fmt.Sprintf("%s(%d)", e.Fn, e.Frames)
	case OpSelf:
		return e.Fn
	case OpElement, OpElapsed, OpNow, OpCommand, OpOwn:
		return e.Op.String()
	case OpSlot:
		return fmt.Sprintf("slot%d", e.Index)
	}
	return e.Op.String() + "(" + exprTexts(e.Args) + ")"
}

func (e *Expr) literalText() string {
	switch v := e.Val.(type) {
	case *regexp.Regexp:
		return strconv.Quote(v.String())
	case string:
		return strconv.Quote(v)
	default:
		return fmt.Sprint(v)
	}
}

// TypeText returns a type as text, like s4, u8, ns, bytes, bool, str16, gid or the name of an enum. The number is the size in
// bytes.
func TypeText(t event.Type, elems []event.Type, optional bool) string {
	text := kindText(t)
	if elems != nil {
		var all []string
		for _, elem := range elems {
			all = append(all, TypeText(elem, nil, false))
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
			event.Nanoseconds: "ns", event.Bytes: "bytes", event.Errno: "errno", event.Cgroup: "cgroup", event.Hex: "hex", Instant: "time",
		}[t.Unit]
	}
	return text
}

// describe returns one line about a map.
func (m *Map) describe() string {
	text := m.Name
	if len(m.Key) > 0 {
		text += "[" + columnsText(m.Key, m.KeyForm) + "]"
	}
	value := columnsText(m.Value, m.ValueForm)
	switch {
	case m.Agg != nil:
		value = m.FuncName() + "(" + value + aggText(m) + ")"
	case m.IsTuple:
		value = "(" + value + ")"
	}
	text += " = " + value
	if m.MaxKeys != 0 {
		text += fmt.Sprintf(" keys %d", m.MaxKeys)
	}
	if m.Lru {
		text += " lru"
	}
	return text
}

func columnsText(all []Column, form *format.Form) string {
	return string(format.TextStyle.Parts(nil, form, len(all), func(b []byte, i int) []byte {
		return append(b, TypeText(all[i].Type, nil, all[i].Optional)...)
	}))
}

func aggText(m *Map) string {
	if params := m.Agg.Params(); params != "" {
		return "; " + params
	}
	return ""
}
