package check

import (
	"maps"
	"slices"

	"trace/probes/event"
)

// Names are those that a value of a field of the probes may have: those of its enum, or of errors as -EINVAL; nil if it has none.
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

// Functions are the names of functions that may stand in a predicate, or in a block, where statements and aggregations are, too.
func Functions(inBlock bool) []string {
	names := append(slices.Collect(maps.Keys(signatures)), onMaps...)
	if inBlock {
		names = append(names, statements...)
		names = append(names, aggregationNames()...)
	}
	slices.Sort(names)
	return names
}
