package exec

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"trace/probes"
	"trace/probes/event"
)

// This file makes the events of the differential test, of two probes: structs with fields of every kind, most of them with an
// optional twin, and values that are random or at a boundary.

// diffSize is the size of both structs.
const diffSize = 320

// diffStructs declares the structs as clang would. Fields that begin with an o are optional. The second struct has fields of the
// same names with other types.
func diffStructs() []*btf.Struct {
	integer := func(name string, size uint32, encoding btf.IntEncoding) btf.Type {
		return &btf.Int{Name: name, Size: size, Encoding: encoding}
	}
	u8, u16 := integer("unsigned char", 1, btf.Unsigned), integer("unsigned short", 2, btf.Unsigned)
	u32, u64 := integer("unsigned int", 4, btf.Unsigned), integer("unsigned long long", 8, btf.Unsigned)
	s8, s16 := integer("signed char", 1, btf.Signed), integer("short", 2, btf.Signed)
	s32, s64 := integer("int", 4, btf.Signed), integer("long long", 8, btf.Signed)
	boolean := integer("_Bool", 1, btf.Bool)
	named := func(name string, of btf.Type) btf.Type { return &btf.Typedef{Name: name, Type: of} }
	array := func(of btf.Type, n uint32) btf.Type { return &btf.Array{Index: u32, Type: of, Nelems: n} }
	char := func(n uint32) btf.Type { return array(integer("char", 1, btf.Char), n) }
	ns, gid := named("ns_t", u64), named("gid_t16", array(u8, 16))
	color := &btf.Enum{Name: "color", Size: 2, Values: []btf.EnumValue{
		{Name: "RED", Value: 0}, {Name: "GREEN", Value: 1}, {Name: "BLUE", Value: 2}, {Name: "WHITE", Value: 0xffff},
	}}
	minus := func(n int64) uint64 { return uint64(-n) }
	mood := &btf.Enum{Name: "mood", Size: 4, Signed: true, Values: []btf.EnumValue{
		{Name: "LOW", Value: minus(math.MaxInt32 + 1)},
		{Name: "SAD", Value: minus(1)}, {Name: "CALM", Value: 0}, {Name: "GLAD", Value: 3},
	}}
	common := func() *diffStruct {
		s := &diffStruct{}
		s.add("nsecs", u64)
		s.add("pid", u32)
		s.add("tid", u32)
		s.add("uid", u32)
		s.add("cpu", u32)
		s.add("cgroup", named("cgroup_t", u64))
		s.add("comm", char(16))
		return s
	}
	s := common()
	s.has("os8", "os16", "os32", "os64", "ou8", "ou16", "ou32", "ou64", "odur", "osize", "oret", "oflags", "oon", "ocolor", "omood",
		"ostr16", "ostr5", "ogid")
	s.add("u8", u8)
	s.add("s8", s8)
	s.add("on", boolean)
	s.add("str5", char(5)) // begins and ends at odd offsets
	s.add("os8", s8)
	s.add("ou8", u8)
	s.add("oon", boolean)
	s.add("ostr5", char(5))
	s.add("u16", u16)
	s.add("s16", s16)
	s.add("ou16", u16)
	s.add("os16", s16)
	s.add("color", color)
	s.add("ocolor", color)
	s.add("mood", mood)
	s.add("omood", mood)
	s.add("u32", u32)
	s.add("s32", s32)
	s.add("ou32", u32)
	s.add("os32", s32)
	s.add("flags", named("hex32_t", u32))
	s.add("oflags", named("hex32_t", u32))
	s.add("u64", u64)
	s.add("s64", s64)
	s.add("ou64", u64)
	s.add("os64", s64)
	s.add("dur", ns)
	s.add("odur", ns)
	s.add("size", named("bytes_t", u64))
	s.add("osize", named("bytes_t", u64))
	s.add("ret", named("errno_t", s64))
	s.add("oret", named("errno_t", s64))
	s.add("gid", gid)
	s.add("ogid", gid)
	s.add("str16", char(16))
	s.add("ostr16", char(16))
	s.add("str32", char(32))
	sub := &diffStruct{}
	sub.has("on", "ostr")
	sub.add("n", u16)
	sub.add("on", s32)
	sub.add("ostr", char(7))
	s.add("sub", sub.build("sub", (sub.size+7)&^7))
	other := common()
	other.has("os8", "ou64", "ostr5", "u8", "color", "gid", "odur")
	other.add("u8", s64)
	other.add("s8", u64)
	other.add("u16", s8)
	other.add("os8", u16)
	other.add("ou64", s32)
	other.add("on", boolean)
	other.add("color", mood)
	other.add("mood", color)
	other.add("str5", char(9))
	other.add("ostr5", char(3))
	other.add("str16", char(16))
	other.add("gid", gid)
	other.add("odur", ns)
	other.add("u64", ns)
	other.add("s32", named("errno_t", s64))
	return []*btf.Struct{s.build("diff_event", diffSize), other.build("diff_other", diffSize)}
}

// diffStruct lays out a struct as C does.
type diffStruct struct {
	members []btf.Member
	size    uint32
}

func (b *diffStruct) add(name string, t btf.Type) {
	size, err := btf.Sizeof(t)
	if err != nil {
		panic(err)
	}
	b.size = (b.size + alignOf(t) - 1) &^ (alignOf(t) - 1)
	b.members = append(b.members, btf.Member{Name: name, Type: t, Offset: btf.Bits(8 * b.size)})
	b.size += uint32(size)
}

func alignOf(t btf.Type) uint32 {
	if def, ok := t.(*btf.Typedef); ok && def.Name == "gid_t16" {
		return 8
	}
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Array:
		return 1
	case *btf.Struct:
		return 8
	default:
		size, _ := btf.Sizeof(t)
		return uint32(size)
	}
}

// has adds the presence bits of other members.
func (b *diffStruct) has(names ...string) {
	s := &btf.Struct{Name: "has", Size: uint32(len(names)+7) / 8}
	bit := &btf.Int{Name: "unsigned char", Size: 1}
	for i, name := range names {
		s.Members = append(s.Members, btf.Member{Name: name, Type: bit, Offset: btf.Bits(i), BitfieldSize: 1})
	}
	b.members = append(b.members, btf.Member{Name: "has", Type: s, Offset: btf.Bits(8 * b.size)})
	b.size += s.Size
}

func (b *diffStruct) build(name string, size uint32) *btf.Struct {
	if b.size > size {
		panic(fmt.Sprintf("struct %s has %d bytes", name, b.size))
	}
	return &btf.Struct{Name: name, Size: size, Members: b.members}
}

// diffProbes makes the probes diff:event and diff:other.
func diffProbes(t testing.TB) []*event.Probe {
	var all []*event.Probe
	for _, s := range diffStructs() {
		p, err := probes.ProbeOf("diff", strings.TrimPrefix(s.Name, "diff_"), s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// rawEvent is the event struct of a probe, as its C code would fill it.
type rawEvent struct {
	probe *event.Probe
	raw   []byte
}

func newRawEvent(p *event.Probe) rawEvent { return rawEvent{p, make([]byte, diffSize)} }

// set writes the value of a field: int64, uint64, bool or string. nil makes it absent and leaves its bytes.
func (e rawEvent) set(f *event.Field, v any) {
	offset, size := f.Offset, f.Type.Size
	if f.Optional {
		at, mask := f.Presence.Offset, f.Presence.Mask
		e.raw[at] &^= mask
		if v != nil {
			e.raw[at] |= mask
		}
	}
	raw := e.raw[offset : offset+size]
	switch v := v.(type) {
	case int64:
		putUint(raw, uint64(v))
	case uint64:
		putUint(raw, v)
	case bool:
		raw[0] = 0
		if v {
			raw[0] = 1
		}
	case string:
		clear(raw)
		copy(raw, v)
	}
}

func putUint(raw []byte, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(raw, b[:])
}

// get reads a field from its bytes; nil means absent. It serves the third opinion, so it shares nothing with package probes.
func (e rawEvent) get(f *event.Field) any {
	offset, size := f.Offset, f.Type.Size
	if f.Optional {
		if at, mask := f.Presence.Offset, f.Presence.Mask; e.raw[at]&mask == 0 {
			return nil
		}
	}
	raw := e.raw[offset : offset+size]
	switch f.Type.Kind {
	case event.Bool:
		return raw[0] != 0
	case event.String:
		text, _, _ := strings.Cut(string(raw), "\x00")
		return text
	case event.GID:
		return string(raw)
	}
	var v uint64
	for i, b := range raw {
		v |= uint64(b) << (8 * i)
	}
	if f.Type.Kind == event.Uint {
		return v
	}
	switch size {
	case 1:
		return int64(int8(v))
	case 2:
		return int64(int16(v))
	case 4:
		return int64(int32(v))
	}
	return int64(v)
}

// randomEvent fills an event. Absent fields hold garbage.
func randomEvent(r *rand.Rand, p *event.Probe) rawEvent {
	e := newRawEvent(p)
	for i := range e.raw {
		e.raw[i] = byte(r.Uint32())
	}
	absent := r.IntN(3) // in how many of four events an optional field is absent
	for _, f := range p.Fields {
		if f.Optional && r.IntN(4) < absent {
			e.set(f, nil)
			continue
		}
		e.set(f, randomValue(r, f.Type))
	}
	return e
}

// diffTexts and diffAddresses are few, so many are equal, and some are prefixes of others.
var (
	diffTexts = []string{"", "a", "ab", "abc", "abcd", "abcde", "abcdeabcdeabcdea", "abcdf", "b", "\xff", "\xffa", "aé",
		"A", "abcdefgh",
		"abcdefghi", "abcdefghabcdefgh", "0123456789abcdef0123456789abcdef", "a\x01"}
	diffAddresses = []string{"::", "fe80::1", "fe80::2", "::ffff:10.0.0.1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "100::"}
)

func diffAddress(s string) string {
	raw := netip.MustParseAddr(s).As16()
	return string(raw[:])
}

// diffBoundaries are the numbers where signs and widths change. Random values and literals are often one of them or next to one.
var diffBoundaries = []uint64{
	0, 1, 2, 3, 7, 8, 63, 64, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 40, 1 << 62, 1 << 63,
}

func boundary(r *rand.Rand) uint64 {
	v := diffBoundaries[r.IntN(len(diffBoundaries))] + uint64(r.IntN(3)) - 1
	if r.IntN(3) == 0 {
		v = -v
	}
	return v
}

func randomNumber(r *rand.Rand) uint64 {
	switch r.IntN(5) {
	case 0, 1:
		return boundary(r)
	case 2:
		return uint64(r.IntN(5))
	case 3:
		return r.Uint64() >> r.IntN(64)
	}
	return -(r.Uint64() >> r.IntN(64))
}

func randomValue(r *rand.Rand, t event.Type) any {
	switch t.Kind {
	case event.Bool:
		return r.IntN(2) == 0
	case event.String:
		s := diffTexts[r.IntN(len(diffTexts))]
		return s[:min(len(s), t.Size)]
	case event.GID:
		return diffAddress(diffAddresses[r.IntN(len(diffAddresses))])
	}
	if t.Enum != nil && r.IntN(3) > 0 {
		return t.Enum.Values[r.IntN(len(t.Enum.Values))]
	}
	if t.Unit == event.Errno && r.IntN(2) == 0 {
		return -int64(r.IntN(30))
	}
	return randomNumber(r) // set takes the low bytes
}

// String writes the event as readEvent reads it, without fields that are zero. The bytes of an absent field follow a question mark.
func (e rawEvent) String() string {
	var b strings.Builder
	fmt.Fprint(&b, e.probe.Name)
	for _, f := range e.probe.Fields {
		offset, size := f.Offset, f.Type.Size
		raw := e.raw[offset : offset+size]
		if strings.Trim(string(raw), "\x00") == "" && (!f.Optional || e.get(f) == nil) {
			continue
		}
		fmt.Fprintf(&b, " %s=", f.Name)
		switch v := e.get(f).(type) {
		case nil:
			b.WriteString(fmt.Sprintf("?%x", raw))
		case string:
			if f.Type.Kind == event.GID {
				fmt.Fprintf(&b, "%x", raw)
			} else {
				b.WriteString(strconv.QuoteToASCII(v))
			}
		default:
			fmt.Fprint(&b, v)
		}
	}
	return b.String()
}

// readEvent reads what String writes.
func readEvent(all []*event.Probe, line string) (e rawEvent, err error) {
	name, line, _ := strings.Cut(strings.TrimSpace(line), " ")
	i := slices.IndexFunc(all, func(p *event.Probe) bool { return p.Name == name })
	if i < 0 {
		return e, fmt.Errorf("no probe %q", name)
	}
	e = newRawEvent(all[i])
	for ; line != ""; line = strings.TrimLeft(line, " ") {
		name, rest, _ := strings.Cut(line, "=")
		f := e.probe.Field(name)
		if f == nil {
			return e, fmt.Errorf("no field %q", name)
		}
		word, _, _ := strings.Cut(rest, " ")
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			word = quoted
		}
		line = rest[len(word):]
		if err := e.read(f, word); err != nil {
			return e, fmt.Errorf("%s: %w", name, err)
		}
	}
	return e, nil
}

func (e rawEvent) read(f *event.Field, word string) error {
	offset, size := f.Offset, f.Type.Size
	if garbage, absent := strings.CutPrefix(word, "?"); absent {
		var raw []byte
		_, err := fmt.Sscanf(garbage, "%x", &raw)
		copy(e.raw[offset:offset+size], raw)
		return err
	}
	var v any
	var err error
	switch f.Type.Kind {
	case event.Bool:
		v, err = strconv.ParseBool(word)
	case event.String:
		v, err = strconv.Unquote(word)
	case event.GID:
		var raw []byte
		_, err = fmt.Sscanf(word, "%x", &raw)
		v = string(raw)
	case event.Int:
		v, err = strconv.ParseInt(word, 10, 64)
	default:
		v, err = strconv.ParseUint(word, 10, 64)
	}
	e.set(f, v)
	return err
}

func TestDiffEventText(t *testing.T) {
	all := diffProbes(t)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		e := randomEvent(r, all[i%2])
		back, err := readEvent(all, e.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range e.probe.Fields {
			if back.get(f) != e.get(f) {
				t.Fatalf("%s is %v after writing and reading, it was %v\n%s", f.Name, back.get(f), e.get(f), e)
			}
		}
	}
}
