// Package output writes what a program prints and what its maps hold. Maps come as results (package result), so that nothing here knows an
// aggregation.
//
// Some formats are written while the program runs, by a [Printer]: lines for people, JSON and CSV. Others are made at its end, a [Document]:
// folded stacks, a pprof profile and a page. [Live] shows the maps in place on a terminal meanwhile. All formats are in one list, in
// formats.go: a new one needs a row there, and its own file.
package output
