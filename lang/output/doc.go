// Package output writes what a program prints: events, values, texts and maps, as lines for people, as JSON and as CSV. Maps come as results
// (package result), so that no format knows an aggregation.
package output
