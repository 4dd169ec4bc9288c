// Package output writes what a program prints and what its maps hold. Maps come as results (package result), so nothing here knows
// an aggregation.
//
// A [Printer] writes some formats while the program runs: lines for people, JSON, CSV and traces on a time axis. A [Document]
// writes others at the end: folded stacks, a pprof profile and a page. [Live] shows the maps in place on a terminal meanwhile.
//
// formats.go lists all formats. A new one needs a row there and a file of its own. A format that is written while the program runs
// has a form, the part that a Printer leaves open; one that is written at the end has a method of Document. perfetto.go is a
// complete example of the first kind, folded.go of the second.
package output
