package codegen_test

import (
	"fmt"
	"slices"
	"testing"

	"trace/lang/codegen"
)

// Only events of the processes reach the clauses, whether these have predicates or not; one without a process is of none of them.
func TestWithin(t *testing.T) {
	skipUnlessPermitted(t)
	members := &codegen.Map{Name: "members", Value: codegen.Row{Size: 56}, Entries: 1} // 64 bytes
	all := codegen.Clause{Source: "all"}
	some := codegen.Clause{Source: "some", Pred: is(codegen.OpEq, field(u64t, 0, 8), lit(7))}
	for _, test := range []struct {
		clauses []codegen.Clause
		pid     *expr
		want    []uint64
	}{
		{[]codegen.Clause{all}, field(u64t, 16, 4), []uint64{1, 1, 0, 0, 1}},
		{[]codegen.Clause{some}, field(u64t, 16, 4), []uint64{1, 0, 0, 0, 1}},
		{[]codegen.Clause{all, some, all}, field(u64t, 16, 4), []uint64{7, 5, 0, 0, 7}},
		{[]codegen.Clause{all, some, all}, optional(field(u64t, 16, 4), 1), []uint64{7, 5, 0, 0, 0}},
	} {
		p := codegen.Program{Clauses: test.clauses, Within: &codegen.Within{PID: test.pid.Field, Map: members.Name, Size: 64}}
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
