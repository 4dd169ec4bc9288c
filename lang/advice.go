package lang

import (
	"fmt"

	"trace/lang/syntax"
	"trace/probes/event"
)

// This file is what to say about values of the wrong sort.

// named describes a value more closely than what it compares with: one of an enum is a name.
func named(e *expr) string {
	if enum := enumOf(&e.typ); enum != nil && e.typ.Unit != event.Cgroup {
		return "a name of " + enum.Name
	}
	return describe(e)
}

// asText says how to make a string of a field, or returns "".
func asText(e *expr) string {
	if e.op != opField || e.typ.Kind == event.Bool {
		return ""
	}
	return fmt.Sprintf("write string(%s)", e.field.Name)
}

// besideNumber says what to write for a string that is compared with a number, or returns "".
func besideNumber(word string, number *expr) string {
	if tree, err := syntax.Parse("", word); err == nil && tree.Expr != nil {
		switch v, _, _ := literalValue(tree.Expr); v.(type) {
		case int64, uint64:
			return "write the number without quotes: " + word
		}
	}
	if number.op == opField && number.field.Common && (number.field.Name == "pid" || number.field.Name == "tid") {
		return fmt.Sprintf("the name of the process is comm: comm == %q", word)
	}
	return ""
}
