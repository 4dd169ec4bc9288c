package probes

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"trace/probes/event"
)

// A mark names existing fields or values, and no field has the name of another column.
func TestMarks(t *testing.T) {
	for _, p := range load(t).Probes() {
		for _, f := range p.Fields {
			if other := p.Field(f.Line.Of); f.Line.Shown == event.Instead && (other == nil || !other.Optional) {
				t.Errorf("%v: %s is there for %s, which is no field that may be absent", p, f.Name, f.Line.Of)
			}
			if f.Type.IsFlags() && f.Line.Shown == event.Always {
				t.Errorf("%v: the flag %s is always shown", p, f.Name)
			}
			if slices.Contains([]string{"time", "probe"}, f.Name) {
				t.Errorf("%v has a field %s", p, f.Name)
			}
		}
	}
}

func TestLineOf(t *testing.T) {
	number := event.Type{Kind: event.Uint, Size: 4}
	named := event.Type{Kind: event.Uint, Size: 4, Enum: &event.Enum{Name: "fuse", Names: []string{"normal", "first"}, Values: []int64{7, 8}}}
	for _, test := range []struct {
		tags  []string
		typ   event.Type
		want  event.Line
		shown string
		usual int64
		wrong bool
	}{
		{tags: []string{"doc:x"}, typ: number},
		{typ: event.Type{Kind: event.Bool, Size: 1}, want: event.Line{Shown: event.Detail}, shown: "detail"},
		{tags: []string{"line:verbose"}, typ: event.Type{Kind: event.Bool, Size: 1}, want: event.Line{Shown: event.Verbose}, shown: "-v"},
		{tags: []string{"doc:x", "line:detail"}, typ: number, want: event.Line{Shown: event.Detail}, shown: "detail"},
		{tags: []string{"line:usual:normal"}, typ: named, want: event.Line{Shown: event.Unusual, Of: "normal"}, shown: "usual normal", usual: 7},
		{tags: []string{"line:usual:1"}, typ: number, want: event.Line{Shown: event.Unusual, Of: "1"}, shown: "usual 1", usual: 1},
		{tags: []string{"line:instead:nr"}, typ: number, want: event.Line{Shown: event.Instead, Of: "nr"}, shown: "for nr"},
		{tags: []string{"line:usual:norml"}, typ: named, wrong: true},
		{tags: []string{"line:details"}, typ: number, wrong: true},
	} {
		got, err := lineOf(test.tags, test.typ)
		usual, _ := got.Usual(test.typ)
		if got != test.want || got.String() != test.shown || usual != test.usual || (err != nil) != test.wrong {
			t.Errorf("%v: got %+v, %q, usually %d, %v", test.tags, got, got, usual, err)
		}
	}
}

// What was recorded is read as the events of today are, as far as the fields are the same.
func TestDescribe(t *testing.T) {
	recorded := event.NewProbe("nvme", "complete_rq", "", []event.Field{
		{Name: "rq", Type: event.Type{Kind: event.Uint, Size: 8}}, {Name: "attempt", Type: event.Type{Kind: event.String, Size: 8}}, {Name: "gone", Type: event.Type{Kind: event.Uint, Size: 8}},
		{Name: "opcode", Type: event.Type{Kind: event.Uint, Size: 4, Enum: &event.Enum{Name: "nvme_opcode", Names: []string{"odd"}, Values: []int64{1}}}},
	})
	if err := Describe([]*event.Probe{recorded, event.NewProbe("other", "probe", "", nil)}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []event.Line{{Shown: event.Verbose}, {}, {}, {}} {
		if f := recorded.Fields[i]; f.Line != want {
			t.Errorf("%s: got %+v, want %+v", f.Name, f.Line, want)
		}
	}
	if e := recorded.Field("opcode").Type.Enum; !slices.Equal(e.Classes, []string{"io", "admin", "fabrics"}) || e.Unknown(0x1c1) != "unknown(admin:0xc1)" {
		t.Errorf("the classes are %v", e.Classes)
	}
	if err := Describe(nil); err != nil {
		t.Error(err)
	}
}

// A mark without effect is a mistake of ours, found when the catalog is made.
func TestWrongMark(t *testing.T) {
	u32 := &btf.Int{Name: "u32", Size: 4}
	for want, member := range map[string]btf.Member{
		"field x: the usual value many is not one of its values": {Name: "x", Type: u32, Tags: []string{"line:usual:many"}},
		`field x: unknown tag "line:often"`:                      {Name: "x", Type: u32, Tags: []string{"line:often"}},
		"member has is not a struct":                             {Name: "has", Type: u32},
		"field x: a field cannot have the type Pointer":          {Name: "x", Type: &btf.Pointer{Target: u32}},
	} {
		_, err := ProbeOf("a", "b", &btf.Struct{Name: "a_b", Size: 4, Members: []btf.Member{member}})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
