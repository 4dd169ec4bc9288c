package check

import (
	"maps"
	"slices"

	"trace/probes/event"
)

// Names returns the names that values of a field may have: the names of its enum, or error names like -EINVAL. It returns nil if
// the values have no names. Only fields of the probes in of count.
func Names(of []*event.Probe, field string) []string {
	var names []string
	for _, p := range of {
		f := p.Field(field)
		if f == nil {
			continue
		}
		enum := event.EnumOf(&f.Type)
		if enum == nil {
			continue
		}
		for _, name := range enum.Names {
			if f.Type.Unit == event.Errno {
				name = "-" + name
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Functions returns the names of the functions that may stand in a predicate or, with inBlock, in a body, where statements and
// aggregations are allowed too.
func Functions(inBlock bool) []string {
	names := append(slices.Collect(maps.Keys(signatures)), special...)
	if inBlock {
		names = append(names, statements...)
		names = append(names, aggregationNames()...)
	}
	slices.Sort(names)
	return names
}
