package check

import (
	"fmt"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file makes the advice about values of the wrong sort.

// named describes a value more closely than describe does: a value of an enum is a name.
func named(e *ir.Expr) string {
	if enum := event.EnumOf(&e.Type); enum != nil && e.Type.Unit != event.Cgroup {
		return "a name of " + enum.Name
	}
	return describe(e)
}

// asText returns the advice that makes a string of a field, or "".
func asText(e *ir.Expr) string {
	if e.Op != ir.OpField || e.Type.Kind == event.Bool {
		return ""
	}
	return fmt.Sprintf("write string(%s)", e.Field.Name)
}

// besideNumber returns the advice for a string that is compared with a number, or "".
func besideNumber(word string, number *ir.Expr) string {
	if tree, err := syntax.Parse("", word); err == nil && tree.Expr != nil {
		switch v, _, _ := literalValue(tree.Expr); v.(type) {
		case int64, uint64:
			return "write the number without quotes: " + word
		}
	}
	if number.Op == ir.OpField && number.Field.Common && (number.Field.Name == "pid" || number.Field.Name == "tid") {
		return fmt.Sprintf("the name of the process is comm: comm == %q", word)
	}
	return ""
}

// besideWorkload returns the advice for the name of a workload that is compared with a number.
func besideWorkload(name string, number *ir.Expr) string {
	switch {
	case name == "namespace":
		return "namespace is the Kubernetes namespace, a text; the number of an NVMe namespace is nsid"
	case number.Op == ir.OpLit:
		return fmt.Sprintf("%s is a text: write \"%v\"", name, number.Val)
	}
	return ""
}

// describe names the sort of a value. Values of the same sort can be compared.
func describe(e *ir.Expr) string { return format.SortOf(e.Type) }

// wordOf returns an expression as advice writes it.
func wordOf(e *ir.Expr) string {
	switch e.Op {
	case ir.OpField:
		return e.Field.Name
	case ir.OpVar:
		return e.Variable.Name
	}
	return "x"
}

// asNumber returns the number of a name as advice writes it.
func asNumber(e *ir.Expr) string {
	if e.Type.Kind == event.Int {
		return "(int64)" + wordOf(e)
	}
	return "(uint64)" + wordOf(e)
}

// isName reports whether values of a type are names, which have no order and no sum. Error numbers and flags count as numbers.
func isName(t event.Type) bool {
	return event.IsNumber(t) && t.Enum != nil && !t.Enum.Flags && t.Unit != event.Errno && t.Unit != event.Cgroup
}

func aggregatedHelp(e *ir.Expr) string {
	if e.Type.Kind == event.String || e.Type.Kind == event.GID {
		return "to count by it, make it a key: @[x] = count()"
	}
	return ""
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
