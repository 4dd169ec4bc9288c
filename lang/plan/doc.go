// Package plan divides a program between the kernel and user space, and says why. A clause runs as a whole on one side, except that the
// kernel evaluates what it can of a predicate that user space completes, and that user space prints. What is in the kernel becomes
// instructions by [trace/lang/codegen]; what is left for user space is run by [trace/lang/exec].
package plan
