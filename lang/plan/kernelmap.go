package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/probes/event"
)

// KernelMap is a map in the kernel.
type KernelMap struct {
	*ir.Map
	Code *codegen.Map
	// Grows reports that events add to the values of a scalar instead of setting them.
	Grows bool
}

// NewMap describes a map to the code generator.
func (p *Plan) NewMap(m *ir.Map) *codegen.Map {
	out := &codegen.Map{
		Name: fmt.Sprintf("at_%.12s", strings.TrimPrefix(m.Name, "@")), Index: slices.Index(p.Program.Maps, m),
		Key: rowOf(m.Key), Agg: m.Agg, LRU: m.Lru, MaxKeys: 1, Turns: p.TakesTurns(m),
	}
	if m.Agg == nil {
		out.Value = rowOf(m.Value)
	}
	out.Name = fmt.Sprintf("at%d_%.10s", out.Index, strings.TrimPrefix(m.Name, "@"))
	out.Shared = m.Agg != nil && p.valueSize(m)*p.Options.CPUs > maxPerCPU
	if len(m.Key) > 0 {
		out.MaxKeys = cmp.Or(m.MaxKeys, p.Options.MapKeys, p.Program.MapKeys, p.defaultKeys(m, out))
	}
	return out
}

// maxPerCPU is the most bytes that all CPUs together may use for one value. Larger values are shared by all CPUs. A quantile takes
// 4.7 KB, which is 1.2 MB a key on 256 CPUs.
const maxPerCPU = 256 << 10

// valueSize returns the size of a map's values in bytes.
func (p *Plan) valueSize(m *ir.Map) int {
	if m.Agg != nil {
		return 8 * m.Agg.Words()
	}
	return rowOf(m.Value).Size
}

// defaultKeys returns a size that keeps a map within 64 MiB.
func (p *Plan) defaultKeys(m *ir.Map, code *codegen.Map) uint32 {
	const budget, fewest, most = 64 << 20, 256, 4096
	value := p.valueSize(m)
	if m.Agg != nil && !code.Shared {
		value *= p.Options.CPUs
	}
	entry := value + code.Key.Size + keyOverhead
	if code.Turns {
		entry *= 2
	}
	return uint32(min(max(budget/entry, fewest), most))
}

// keyOverhead is what a hash takes for each key besides key and value: struct htab_elem and its place in a bucket.
const keyOverhead = 64

// bytes returns what a map takes in the kernel.
func (p *Plan) bytes(m *KernelMap) uint64 {
	value := p.valueSize(m.Map)
	if m.Agg != nil && !m.Code.Shared {
		value *= p.Options.CPUs
	}
	maps := uint64(1)
	if m.Code.Turns {
		maps = 2
	}
	if len(m.Key) == 0 {
		return maps * uint64(value)
	}
	sets := 0
	if m.Code.Ranks() {
		sets = m.Code.Sets().Bytes() * p.Options.CPUs
	}
	return maps * (uint64(m.Code.MaxKeys)*uint64(value+m.Code.Key.Size+keyOverhead) + uint64(sets))
}

// MapBytes returns what all maps take in the kernel, in bytes.
func (p *Plan) MapBytes() uint64 {
	n := p.stackBytes()
	for _, m := range p.Maps {
		n += p.bytes(m)
	}
	return n
}

func rowOf(columns []ir.Column) codegen.Row {
	cols := make([]codegen.Column, len(columns))
	for i, c := range columns {
		cols[i] = codegen.Column{Type: kernelType(c.Type), Optional: c.Optional}
	}
	return codegen.NewRow(cols...)
}

func kernelType(t event.Type) codegen.Type {
	switch {
	case ir.NamingOf(t) != nil:
		return codegen.Type{Kind: codegen.Int}
	case t.NamesWorkload(): // in a key
		return codegen.Type{Kind: codegen.Uint}
	}
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
