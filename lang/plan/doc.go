// Package plan divides a program between the kernel and user space, and gives the reasons. A clause runs as a whole on one side,
// with two exceptions: the kernel evaluates what it can of a predicate that user space completes, and only user space prints.
// [trace/lang/codegen] turns the kernel's parts into instructions; [trace/lang/exec] runs the others.
package plan
