// Package result is what the maps of a program hold, independent of any format: tables of typed columns. The values are numbers and
// bounds, never text. Every output, and every program that uses the library, reads this model.
//
//	Number      a single value: assigned, or the result of count, sum, avg, min, max and gauge
//	Tuple       several assigned values
//	Stats       the number of values, their average and their sum
//	Histogram   the number of values in each bucket
//	Quantiles   percentiles of values
//	Rate        a sum, in total and per second
package result
