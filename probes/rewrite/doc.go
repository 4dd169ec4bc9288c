// Package rewrite makes BPF programs smaller before the kernel sees them, and joins them: [Flow.Fold] evaluates what follows from constants
// and removes code that is then unreachable or has no effect, [Flow.Splice] inlines the body of a function.
package rewrite
