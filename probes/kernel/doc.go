// Package kernel describes what a running kernel offers for tracing: its types, symbols and tracepoints, how it preempts tasks, what this
// process may do, its cgroups, and the facts that doctor shows.
package kernel
