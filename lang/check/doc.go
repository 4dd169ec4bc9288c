// Package check gives a program its meaning: it finds the probes of each clause and types the clause for each of them, as one name may be
// of another type in another probe. What comes of it is a typed tree, of [trace/lang/ir], or mistakes with a place and an advice.
//
// Clauses share maps, so the whole program is checked again and again, until a pass finds out nothing new: see infer.go. Expressions are
// typed by check.go, and by operator.go, compare.go, call.go, map.go and variable.go, which call one another; statements by stmt.go,
// callstmt.go and agg.go.
package check
