// Package check gives a program its meaning. It finds the probes of each clause and types the clause once for each of them, because
// a name may have different types in different probes. The result is a typed tree (package [trace/lang/ir]), or mistakes with a
// place and advice.
//
// Clauses share maps, so the whole program is checked again until a pass learns nothing new: see infer.go. Expressions are typed by
// check.go, operator.go, call.go, library.go, map.go and variable.go, which call one another; statements by stmt.go, callstmt.go
// and agg.go.
package check
