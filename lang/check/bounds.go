package check

import (
	"fmt"
	"regexp"
	pattern "regexp/syntax"

	"trace/lang/ir"
	"trace/lang/syntax"
)

// This file bounds what becomes of a program, because a short text can make a large one: ($t, $t) doubles a tuple. Walks of the typed
// tree take as long as its expressions are large.

const (
	// maxElements is how many elements a tuple or a key may have, with the elements of tuples in it.
	maxElements = 256
	// maxOperations is how many operations an expression may have. What is computed for each element of a tuple counts each time.
	maxOperations = 20_000
	// maxTyped is how many expressions are typed for a probe of a clause. What ++ changes is typed twice, as is ++ within it.
	maxTyped = 200_000
	// maxTypedInAll is how many are typed for all clauses and their probes, each time again until all types are known.
	maxTypedInAll = 20_000_000
	// maxStates is how many states the patterns of a program may have, with their repetitions: a{1000} has 1000.
	maxStates = 100_000
)

// fitsTuple checks how many elements a tuple or a key has.
func (c *checker) fitsTuple(at syntax.Span, n int, what string) bool {
	if n > maxElements {
		c.fail(at, fmt.Sprintf("%s has more than %d elements", what, maxElements), "the elements of a tuple in it count, too")
	}
	return n <= maxElements
}

// fits checks how many operations an expression has.
func (c *checker) fits(e *ir.Expr) bool {
	n := c.operations(e)
	if n > maxOperations {
		c.fail(e.Span, fmt.Sprintf("the expression becomes too large: more than %d operations", maxOperations), "keep a part of it in a variable")
	}
	return n <= maxOperations
}

// operations counts the nodes of an expression, and a shared operand each time. Its operands are counted already.
func (c *checker) operations(e *ir.Expr) int {
	n, known := c.counted[e]
	if !known {
		n = 1
		for _, a := range e.Args {
			n += c.operations(a)
		}
		c.counted[e] = n
	}
	return n
}

// typesMore counts an expression that is typed. It returns false, and notes a mistake, if they are too many.
func (c *checker) typesMore(at syntax.Span) bool {
	c.typedSoFar++
	c.typedInAll++
	switch {
	case c.exceeded:
	case c.typedSoFar > maxTyped:
		c.exceeded = true // for all probes
		c.resolver.fail(at, fmt.Sprintf("the clause becomes too large: more than %d expressions", maxTyped), "++ and -- of something that has a ++ or -- doubles it")
	case c.typedInAll > maxTypedInAll:
		c.exceeded = true
		c.resolver.fail(at, "finding the types of the program takes too long", "set a map or a variable before the text reads it, and name fewer probes")
	}
	return !c.exceeded
}

// regexp compiles a pattern, once for all that have it.
func (r *resolver) regexp(text string) (*regexp.Regexp, error) {
	if known := r.patterns[text]; known != nil {
		return known, nil
	}
	tree, err := pattern.Parse(text, pattern.Perl)
	if err != nil {
		return nil, err
	}
	if r.states += states(tree); r.states > maxStates {
		return nil, fmt.Errorf("the patterns of the program become too large: more than %d states", maxStates)
	}
	compiled, err := regexp.Compile(text)
	if err == nil {
		r.patterns[text] = compiled
	}
	return compiled, err
}

// states returns about how many states a pattern has, at most a little more than maxStates for each of its parts.
func states(tree *pattern.Regexp) int {
	n := max(1, len(tree.Rune))
	for _, part := range tree.Sub {
		n += states(part)
	}
	if tree.Op == pattern.OpRepeat {
		n *= max(tree.Min, tree.Max, 1)
	}
	return min(n, maxStates+1)
}
