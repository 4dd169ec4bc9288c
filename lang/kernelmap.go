package lang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"trace/lang/codegen"
	"trace/probes/event"
)

// kernelMap is a map in the kernel.
type kernelMap struct {
	*mapInfo
	code *codegen.Map
	// grows says that events add to the values of a scalar, rather than setting them.
	grows bool
}

// newMap describes a map to the code generator.
func (p *Plan) newMap(m *mapInfo) *codegen.Map {
	out := &codegen.Map{
		Name: fmt.Sprintf("at_%.12s", strings.TrimPrefix(m.name, "@")), Index: slices.Index(p.program.maps, m),
		Key: rowOf(m.key), Agg: m.agg, LRU: m.lru, Entries: 1, Turns: p.takesTurns(m),
	}
	if m.agg == nil {
		out.Value = rowOf(m.value)
	}
	out.Name = fmt.Sprintf("at%d_%.10s", out.Index, strings.TrimPrefix(m.name, "@"))
	out.Shared = m.agg != nil && p.valueSize(m)*p.options.CPUs > maxPerCPU
	if len(m.key) > 0 {
		out.Entries = cmp.Or(m.entries, p.options.MapEntries, p.defaultEntries(m, out))
	}
	return out
}

// maxPerCPU bytes of all CPUs' parts of one value: what is larger all CPUs share. A quantile takes 4.7 KB, on 256 CPUs 1.2 MB a key.
const maxPerCPU = 256 << 10

// valueSize of a map in bytes.
func (p *Plan) valueSize(m *mapInfo) int {
	if m.agg != nil {
		return 8 * m.agg.Words()
	}
	return rowOf(m.value).Size
}

// defaultEntries keeps a map within 64 MiB.
func (p *Plan) defaultEntries(m *mapInfo, code *codegen.Map) uint32 {
	const budget, fewest, most = 64 << 20, 256, 4096
	value := p.valueSize(m)
	if m.agg != nil && !code.Shared {
		value *= p.options.CPUs
	}
	entry := value + code.Key.Size + entryOverhead
	if code.Turns {
		entry *= 2
	}
	return uint32(min(max(budget/entry, fewest), most))
}

// entryOverhead is what a hash keeps for each key besides key and value: struct htab_elem and its place in a bucket.
const entryOverhead = 64

// bytes that a map takes in the kernel.
func (p *Plan) bytes(m *kernelMap) uint64 {
	value := p.valueSize(m.mapInfo)
	if m.agg != nil && !m.code.Shared {
		value *= p.options.CPUs
	}
	maps := uint64(1)
	if m.code.Turns {
		maps = 2
	}
	if len(m.key) == 0 {
		return maps * uint64(value)
	}
	return maps * uint64(m.code.Entries) * uint64(value+m.code.Key.Size+entryOverhead)
}

// MapBytes is what all maps take in the kernel.
func (p *Plan) MapBytes() uint64 {
	n := p.stackBytes()
	for _, m := range p.maps {
		n += p.bytes(m)
	}
	return n
}

func rowOf(columns []column) codegen.Row {
	cols := make([]codegen.Column, len(columns))
	for i, c := range columns {
		cols[i] = codegen.Column{Type: kernelType(c.typ), Optional: c.optional}
	}
	return codegen.NewRow(cols...)
}

func kernelType(t event.Type) codegen.Type {
	switch t.Kind {
	case event.Int:
		return codegen.Type{Kind: codegen.Int}
	case event.Bool:
		return codegen.Type{Kind: codegen.Bool}
	case event.String:
		return codegen.Type{Kind: codegen.String, Size: max(t.Size, 1)}
	case event.GID:
		return codegen.Type{Kind: codegen.Bytes, Size: t.Size}
	}
	return codegen.Type{Kind: codegen.Uint}
}
