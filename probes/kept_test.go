package probes

import (
	"slices"
	"testing"

	"trace/probes/event"
)

// What keeps beginnings is described only where a field of one is wanted.
func TestKept(t *testing.T) {
	h := detect(t)
	for _, test := range []struct {
		probe, field string
		want         []Kept
		text         string
	}{
		{"syscall:exit", "latency", []Kept{{"task", 65536, 16384}}, "in a table of 65536 slots, which costs less than a hash; what finds no room, in a hash of 16384 keys"},
		{"syscall:exit", "ret", nil, ""},
		{"ib:modify_qp", "latency", []Kept{{"thread", 4096, 1024}}, "in a table of 4096 slots, which costs less than a hash; what finds no room, in a hash of 1024 keys"},
		{"ib:modify_qp", "ret", nil, ""},
		{"cache:read", "latency", []Kept{{"thread", 16384, 0}}, "in a table of 16384 slots, which costs less than a hash; what finds no room is counted"},
	} {
		p := h.catalog.Match(test.probe)[0]
		req, _ := want{probe: p, fields: []*event.Field{p.Field(test.field)}}.request(0)
		got := h.Kept(req)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s of %s: %+v, want %+v", test.field, test.probe, got, test.want)
			continue
		}
		if len(got) > 0 && got[0].String() != test.text {
			t.Errorf("%s of %s: kept %s", test.field, test.probe, got[0])
		}
	}
}

// Every table describes its keys.
func TestTablesHaveKeys(t *testing.T) {
	tables := 0
	for _, o := range load(t).objects {
		object, err := o.whole()
		if err != nil {
			t.Fatal(err)
		}
		for name, spec := range object.Maps {
			if !isSlotTable(spec) {
				continue
			}
			tables++
			if by := keptIn(object, name).By; !slices.Contains([]string{"thread", "task", "request"}, by) {
				t.Errorf("%s is kept by %q", name, by)
			}
		}
	}
	if tables == 0 {
		t.Error("no table")
	}
}
