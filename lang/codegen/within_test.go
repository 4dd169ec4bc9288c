package codegen_test

import (
	"fmt"
	"slices"
	"testing"

	"trace/lang/codegen"
)

// Only events of the processes reach the clauses, with or without predicates. An event without a process does not.
func TestWithin(t *testing.T) {
	skipUnlessPermitted(t)
	members := &codegen.Map{Name: "members", Value: codegen.Row{Size: 56}, MaxKeys: 1} // 64 bytes
	all := codegen.Part{Comment: "all"}
	some := codegen.Part{Comment: "some", Pred: is(codegen.OpEq, field(u64t, 0, 8), lit(7))}
	for _, test := range []struct {
		clauses []codegen.Part
		pid     *expr
		want    []uint64
	}{
		{[]codegen.Part{all}, field(u64t, 16, 4), []uint64{1, 1, 0, 0, 1}},
		{[]codegen.Part{some}, field(u64t, 16, 4), []uint64{1, 0, 0, 0, 1}},
		{[]codegen.Part{all, some, all}, field(u64t, 16, 4), []uint64{7, 5, 0, 0, 7}},
		{[]codegen.Part{all, some, all}, optional(field(u64t, 16, 4), 1), []uint64{7, 5, 0, 0, 0}},
	} {
		p := codegen.Spec{Parts: test.clauses, Within: []codegen.Within{{Field: test.pid.Field, Map: members.Name, Size: 64}}}
		r := newRunner(t, p, members)
		bytes := make([]byte, 64)
		bytes[5], bytes[63] = 1, 1
		if err := r.Maps[members.Name].Put(uint32(0), bytes); err != nil {
			t.Fatal(err)
		}
		masks, _ := run(t, r,
			event(map[int]any{0: uint64(7), 16: uint32(5), 24: uint8(1)}), event(map[int]any{0: uint64(8), 16: uint32(63), 24: uint8(1)}),
			event(map[int]any{0: uint64(7), 16: uint32(6), 24: uint8(1)}), event(map[int]any{0: uint64(7), 16: uint32(64 + 5), 24: uint8(1)}),
			event(map[int]any{0: uint64(7), 16: uint32(5)}))
		if !slices.Equal(masks, test.want) {
			t.Errorf("%s: passed %v, want %v", fmt.Sprint(test.clauses), masks, test.want)
		}
	}
}

// A set may also be a hash, and an event must be in all sets.
func TestWithinHash(t *testing.T) {
	skipUnlessPermitted(t)
	members := &codegen.Map{Name: "members", Value: codegen.Row{Size: 56}, MaxKeys: 1} // 64 bytes
	cgroups := &codegen.Map{Name: "cgroups", Key: codegen.Row{Columns: []codegen.Column{{Type: u64t}}, Size: 8}, Value: codegen.Row{Size: 8}, MaxKeys: 4}
	all := codegen.Part{Comment: "all"}
	some := codegen.Part{Comment: "some", Pred: is(codegen.OpEq, field(u64t, 0, 8), lit(7))}
	pid, cgroup := field(u64t, 16, 4), optional(field(u64t, 32, 8), 1)
	byPID, byCgroup := codegen.Within{Field: pid.Field, Map: members.Name, Size: 64}, codegen.Within{Field: cgroup.Field, Map: cgroups.Name}
	for _, test := range []struct {
		clauses []codegen.Part
		within  []codegen.Within
		want    []uint64
	}{
		{[]codegen.Part{all}, []codegen.Within{byCgroup}, []uint64{1, 1, 0, 0, 1}},
		{[]codegen.Part{some}, []codegen.Within{byCgroup}, []uint64{1, 0, 0, 0, 1}},
		{[]codegen.Part{all, some, all}, []codegen.Within{byCgroup}, []uint64{7, 5, 0, 0, 7}},
		{[]codegen.Part{all, some, all}, []codegen.Within{byPID, byCgroup}, []uint64{7, 5, 0, 0, 0}},
		{[]codegen.Part{all, some, all}, []codegen.Within{byCgroup, byPID}, []uint64{7, 5, 0, 0, 0}},
	} {
		r := newRunner(t, codegen.Spec{Parts: test.clauses, Within: test.within}, members, cgroups)
		bytes := make([]byte, 64)
		bytes[5] = 1
		if m := r.Maps[members.Name]; m != nil {
			if err := m.Put(uint32(0), bytes); err != nil {
				t.Fatal(err)
			}
		}
		const deep = uint64(5)<<32 | 9
		if err := r.Maps[cgroups.Name].Put(deep, uint64(1)); err != nil {
			t.Fatal(err)
		}
		masks, _ := run(t, r,
			event(map[int]any{0: uint64(7), 16: uint32(5), 24: uint8(1), 32: deep}), event(map[int]any{0: uint64(8), 16: uint32(5), 24: uint8(1), 32: deep}),
			event(map[int]any{0: uint64(7), 16: uint32(5), 24: uint8(1), 32: uint64(9)}), event(map[int]any{0: uint64(7), 16: uint32(5), 32: deep}),
			event(map[int]any{0: uint64(7), 16: uint32(6), 24: uint8(1), 32: deep}))
		if !slices.Equal(masks, test.want) {
			t.Errorf("%s within %v: passed %v, want %v", fmt.Sprint(test.clauses), test.within, masks, test.want)
		}
	}
}
