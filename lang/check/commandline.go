package check

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file has what the command line gives a program as bpftrace does: arguments by number, $1, and by name, getopt("name", 10).

// TakesArguments reports whether a program reads arguments by number.
func TakesArguments(tree *syntax.Program) (takes bool) {
	tree.Walk(func(n ast.Node) bool {
		word, ok := n.(*ast.IdentifierNode)
		takes = takes || ok && syntax.IsArgument(word.Value)
		return !takes
	})
	return takes || slices.ContainsFunc(tree.Clauses, func(c *syntax.Clause) bool {
		return slices.ContainsFunc(c.Probes, func(ref syntax.ProbeRef) bool { return syntax.IsArgument(ref.Param()) })
	})
}

// Flags takes params that stand behind -- as in bpftrace, like --name=value, from the words behind a program. It adds their values to
// params, and returns the other words.
func Flags(declared []ir.Param, params map[string]string, words []string) (map[string]string, []string) {
	all := maps.Clone(params)
	var rest []string
	for _, word := range words {
		flag, isFlag := strings.CutPrefix(word, "--")
		name, value, given := strings.Cut(flag, "=")
		i := slices.IndexFunc(declared, func(p ir.Param) bool { return isFlag && p.Name == name })
		if i < 0 {
			rest = append(rest, word)
			continue
		}
		if !given {
			value = "true"
		}
		if all == nil {
			all = map[string]string{}
		}
		all[name] = value
	}
	return all, rest
}

// numbered returns an argument as a param. The value of one that is missing is nil.
func (r *resolver) numbered(word string) *ir.Param {
	p := &ir.Param{Name: word[1:]}
	n, err := strconv.Atoi(p.Name)
	switch given := r.options.Arguments; {
	case word == syntax.ArgumentCount:
		p.Value = uint64(len(given))
	case err != nil || n > len(given):
		return p
	default:
		p.Text = given[n-1]
		value, unit, ok := literalText(p.Text)
		if _, isBool := value.(bool); isBool || !ok {
			value, unit = p.Text, event.None
		}
		p.Value, p.Type.Unit = value, unit
	}
	p.Type = typeOfParam(p.Value, p.Type.Unit)
	return p
}

// givenTexts is help for a mistake in a part of the program: which arguments in it are texts, as they are no literals.
func (r *resolver) givenTexts(part string) string {
	var texts []string
	for _, word := range argument.FindAllString(part, -1) {
		if p := r.numbered(word); p.Text != "" && p.Value == p.Text {
			texts = append(texts, fmt.Sprintf("%s is %q, as the command line has it", word, p.Text))
		}
	}
	return strings.Join(slices.Compact(texts), ", ")
}

var argument = regexp.MustCompile(`\$[0-9]+`)

// literalText parses a literal without quotes.
func literalText(text string) (value any, unit event.Unit, ok bool) {
	tree, err := syntax.Parse("", text)
	if err != nil || tree.Expr == nil || tree.Body != nil || len(tree.Comments) > 0 {
		return nil, event.None, false
	}
	if value, unit, ok = literalValue(tree.Expr); ok {
		_, quoted := value.(string)
		ok = !quoted
	}
	return value, unit, ok
}

// declareOptions notes the flags that getopt() declares.
func (r *resolver) declareOptions(tree *syntax.Program) {
	tree.Walk(func(n ast.Node) bool {
		if call, ok := n.(*ast.CallNode); ok && callee(call) == getopt {
			r.declareOption(call)
		}
		return true
	})
}

const getoptUsage = `write getopt("name") for a flag, or getopt("name", 10ms, "what it is for")`

func (r *resolver) declareOption(n *ast.CallNode) {
	at, given := syntax.SpanOf(n), n.Arguments
	if len(given) < 1 || len(given) > 3 {
		r.fail(at, getopt+"() has "+argumentCount(len(given)), getoptUsage)
		return
	}
	name, isText := given[0].(*ast.StringNode)
	if !isText || !isFlag(name.Value) {
		r.fail(syntax.SpanOf(given[0]), "the name of a flag must be a literal string of letters, digits, _ and -", getoptUsage)
		return
	}
	p := ir.Param{Name: name.Value, Span: at, In: r.text, Value: false, Type: ir.Boolean, Default: "false"}
	if len(given) > 1 {
		value, unit, ok := literalValue(given[1])
		if !ok {
			r.fail(syntax.SpanOf(given[1]), "the default of a flag must be a literal", getoptUsage)
			return
		}
		p.Value, p.Type, p.Default = value, typeOfParam(value, unit), syntax.Print(given[1])
	}
	if len(given) > 2 {
		help, ok := given[2].(*ast.StringNode)
		if !ok {
			r.fail(syntax.SpanOf(given[2]), "the description of a flag must be a literal string", getoptUsage)
			return
		}
		p.Help = help.Value
	}
	r.addOption(p)
}

func isFlag(name string) bool {
	for i, b := range []byte(name) {
		letter := b == '_' || 'a' <= b|0x20 && b|0x20 <= 'z'
		if !letter && (i == 0 || b != '-' && (b < '0' || b > '9')) {
			return false
		}
	}
	return name != ""
}

// addOption notes a flag. Calls may repeat it.
func (r *resolver) addOption(p ir.Param) {
	switch known := r.option(p.Name); {
	case r.param("$"+p.Name) != nil:
		r.fail(p.Span, fmt.Sprintf("param %s is a flag already", p.Name), fmt.Sprintf("read it as $%s, or use another name", p.Name))
	case known == nil:
		r.named = append(r.named, p)
	case known.Default != p.Default:
		r.fail(p.Span, fmt.Sprintf("--%s has the default %s here and %s %s", p.Name, p.Default, known.Default, r.place(known.Span)), "")
	case known.Help == "":
		known.Help = p.Help
	}
}

// option returns the flag that getopt() declares, or nil.
func (r *resolver) option(name string) *ir.Param {
	for i := range r.named {
		if r.named[i].Name == name {
			return &r.named[i]
		}
	}
	return nil
}
