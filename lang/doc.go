// Package lang gives programs their meaning: it checks them against the catalog of probes, runs them on events and writes
// the output. docs/language.md and docs/functions.md describe the language.
//
// # How it works
//
// lang.go has the passes in their order. [trace/lang/syntax] parses the text. [trace/lang/check] turns each clause into a typed tree, of
// [trace/lang/ir], for each probe of the clause, as one name may be of another type in another probe. [trace/lang/plan] divides the
// typed tree between the kernel and user space, and [trace/lang/codegen] makes BPF instructions of the one part. [trace/lang/exec] runs
// the other part, whose expressions are lowered to expr's virtual machine, and keeps the maps. What every operator means stands in ir,
// which both engines and the folding of literals follow. What an aggregation does is in [trace/lang/agg], what maps hold in
// [trace/lang/result]. [trace/lang/output] writes it all.
package lang
