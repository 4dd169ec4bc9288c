// Package result is what the maps of a program hold, apart from any format: tables of typed columns, whose values are numbers and bounds,
// never text. Every output, and every program that uses the library, reads this one model.
//
//	Number      one value: of an assignment, or what count, sum, avg, min, max and gauge come to
//	Tuple       several of them, of an assignment
//	Stats       how many values there were, their average and their sum
//	Histogram   how many values there were in each bucket
//	Quantiles   values that so many percent of all do not exceed
//	Rate        a sum, and what it is in a second
package result
