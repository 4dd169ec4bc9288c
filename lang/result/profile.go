package result

import "trace/probes/event"

// Profile is what a map holds by stack: numbers that can be added, so that a flame graph can be drawn of them.
type Profile struct {
	Map string // with its @
	// Unit of the values; without one they count.
	Unit event.Unit
	// Columns are the names of the other elements of the key.
	Columns []string
	Samples []Sample
	// Negative is how many entries are left out, as a flame has no negative width.
	Negative int
}

// Sample is an entry of the map of a [Profile].
type Sample struct {
	// Frames from the outermost. Those of a process come before those of the kernel, whatever their order in the key.
	Frames []string
	// Key are the other elements of the key, as they are printed.
	Key   []string
	Value uint64
}
