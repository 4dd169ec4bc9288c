package result

import "trace/probes/event"

// Profile is what a map holds by stack: numbers that add up, for a flame graph.
type Profile struct {
	Map string // with its @
	// Unit of the values. Without a unit they are counts.
	Unit event.Unit
	// Columns are the names of the other elements of the key.
	Columns []string
	Samples []Sample
	// Negative is how many elements were left out because their value is negative: a flame cannot have a negative width.
	Negative int
}

// Sample is an element of the map of a [Profile].
type Sample struct {
	// Frames from the outermost. User frames come before kernel frames, whatever their order in the key.
	Frames []string
	// Stacks are the numbers of its stacks, in the order of the key.
	Stacks []uint64
	// Key holds the other elements of the key, as they are printed.
	Key   []string
	Value uint64
}
