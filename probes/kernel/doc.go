// Package kernel is what a running kernel offers to those who trace it: its types, symbols and tracepoints, how it preempts tasks, what
// this process may do, which cgroups there are, and the facts of that which people want to read.
package kernel
