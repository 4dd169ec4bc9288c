// Package rewrite makes BPF programs smaller before the kernel sees them, and joins them: [Flow.Fold] computes what follows from
// constants and removes code that is then never reached or has no effect, [Flow.Splice] puts the body of a function in the place of
// its calls.
package rewrite
