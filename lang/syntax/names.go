package syntax

import (
	"fmt"
	"strings"
)

// This file makes advice about names.

// Enumerate writes the first of many things, separated by commas.
func Enumerate[T any](all []T) string {
	const most = 12
	var b strings.Builder
	for i, x := range all {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(all)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, x)
	}
	return b.String()
}

// DidYouMean returns a suggestion for a misspelt word, or "".
func DidYouMean(word string, names []string) string {
	if name := Nearest(word, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return ""
}

// Nearest returns the name closest to word: the same except for case, its last part (state for qp.state), or at most about a third
// of the letters away. It returns "" if no name is close.
func Nearest(word string, names []string) string {
	const longest = 200 // the time to compare grows with both lengths
	if len(word) > longest {
		return ""
	}
	best, limit := "", (len(word)+2)/3+1
	for _, name := range names {
		if limit > 0 && strings.HasSuffix(name, "."+word) {
			best, limit = name, 0
		}
		if max(len(name)-len(word), len(word)-len(name)) >= limit {
			continue // so many letters are to insert or delete
		}
		if d := distance(strings.ToLower(word), strings.ToLower(name)); d < limit {
			best, limit = name, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete, replace or swap with a neighbour to get from a to b.
func distance(a, b string) int {
	// Three rows of the table d[i][j], the distance of a[:i] and b[:j].
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
