// Package exec runs a plan. It creates the maps in the kernel, keeps the other maps, evaluates in user space what the kernel does
// not, and prints to a [Sink]. Expressions are lowered to the virtual machine of expr without its operators: see engine.go. Both
// engines give the same answers; the differential test of this package compares them.
package exec
