// Package output writes what a program prints and what its maps hold. Maps come as results (package result), so that nothing here knows an
// aggregation.
//
// Some formats are written while the program runs, by a [Printer]: lines for people, JSON, CSV and traces on a time axis. Others are made at
// its end, a [Document]: folded stacks, a pprof profile and a page. [Live] shows the maps in place on a terminal meanwhile.
//
// All formats are in one list, in formats.go: a new one needs a row there, and its own file. If it is written while the program runs, the
// file has a form, which is what a Printer does not know; if it is made at the end, it has a method of Document. perfetto.go is a whole one
// of the first kind, folded.go of the second.
package output
