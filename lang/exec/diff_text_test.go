package exec

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trace/probes/event"
)

// This file is string() in the differential test, for fields of every kind except those whose names are in tables of this machine
// or the language.

// asText makes string(field).
func (g *diffGen) asText() *diffNode {
	var names []string
	for _, f := range g.clause.probes[0].Fields {
		fits := !slices.ContainsFunc(g.clause.probes, func(p *event.Probe) bool {
			f := p.Field(f.Name)
			return f == nil || f.Type.Unit == event.Errno || f.Type.Unit == event.Cgroup || f.Type.Enum != nil && f.Type.Enum.Flags
		})
		if fits {
			names = append(names, f.Name)
		}
	}
	name := pick(g, names)
	return g.node(nString, aText, g.fieldNode(name, sortOfKind(g.clause.probes[0].Field(name).Type.Kind)))
}

// diffText returns the text of a field's value.
func diffText(t event.Type, v any) string {
	switch v := v.(type) {
	case bool:
		return fmt.Sprint(v)
	case string:
		if t.Kind != event.GID {
			return v
		}
		address := netip.AddrFrom16([16]byte([]byte(v)))
		if t.Unit == event.IP {
			address = address.Unmap()
		}
		return address.String()
	}
	n := v.(*big.Int)
	if t.Enum != nil {
		if i := slices.Index(t.Enum.Values, n.Int64()); i >= 0 {
			return t.Enum.Names[i]
		}
		return fmt.Sprintf("unknown(0x%x)", new(big.Int).And(n, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size)), big.NewInt(1))))
	}
	switch t.Unit {
	case event.Nanoseconds:
		return diffQuantity(n, []diffUnit{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}, diffClock)
	case event.Bytes:
		return diffQuantity(n, nil, diffSizeText)
	case event.Hex:
		return fmt.Sprintf("0x%x", n)
	}
	return n.String()
}

type diffUnit struct {
	name  string
	scale int64
}

// diffQuantity writes the size of a number with its sign. large writes large sizes in units, with three digits.
func diffQuantity(n *big.Int, units []diffUnit, large func(*big.Int) string) string {
	sign, size := "", new(big.Int).Abs(n)
	if n.Sign() < 0 {
		sign = "-"
	}
	if text := large(size); text != "" {
		return sign + text
	}
	for _, u := range units {
		number := float64(size.Uint64()) / float64(u.scale)
		for decimals, bound := range []float64{1000, 100, 10} {
			text := strconv.FormatFloat(number, 'f', decimals, 64)
			if number >= bound || decimals < 2 && number < bound/10 || text == "1000" {
				continue
			}
			if decimals > 0 {
				text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
			}
			return sign + text + u.name
		}
	}
	return "too much"
}

// diffClock writes a duration of a minute or more, to the second.
func diffClock(ns *big.Int) string {
	if ns.Sign() == 0 {
		return "0s"
	}
	if ns.Cmp(big.NewInt(59_950_000_000)) < 0 {
		return ""
	}
	rest := new(big.Int).Div(new(big.Int).Add(ns, big.NewInt(500_000_000)), big.NewInt(1_000_000_000)).Uint64()
	text := ""
	for _, u := range []diffUnit{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}} {
		if n := rest / uint64(u.scale); n > 0 {
			text += fmt.Sprint(n, u.name)
		}
		rest %= uint64(u.scale)
	}
	return strings.ReplaceAll(text, " ", "")
}

// diffSizeText writes a size: exact in up to four digits, otherwise with a point.
func diffSizeText(bytes *big.Int) string {
	names := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for i := len(names) - 1; i >= 0; i-- {
		whole, rest := new(big.Int).QuoRem(bytes, new(big.Int).Lsh(big.NewInt(1), uint(10*i)), new(big.Int))
		if rest.Sign() == 0 && (i == 0 || whole.Sign() > 0) && whole.Cmp(big.NewInt(10_000)) < 0 {
			return whole.String() + names[i]
		}
	}
	for i, name := range names {
		number := float64(bytes.Uint64()) / float64(uint64(1)<<(10*i))
		text := strconv.FormatFloat(number, 'f', 1, 64)
		if text == "1024.0" || number >= 1024 {
			continue
		}
		if precise := strconv.FormatFloat(number, 'f', 2, 64); len(precise) == 4 && !strings.HasSuffix(precise, "0") {
			text = precise
		}
		return text + name
	}
	return ""
}
