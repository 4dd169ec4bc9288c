// Package exec runs a plan: it creates the maps in the kernel, keeps the others, evaluates in user space what the kernel left to it, and
// prints to a [Sink]. Expressions are lowered to the virtual machine of expr, whose operators are not used: see engine.go. Both engines
// give the same answers, which the differential test of this package compares.
package exec
