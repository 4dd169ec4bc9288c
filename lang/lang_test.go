package lang

import (
	"slices"
	"testing"
)

// Groups returns the groups of the probes that a program names, if it names any.
func TestGroups(t *testing.T) {
	for _, test := range []struct {
		program string
		want    []string
	}{
		{"syscall:enter", []string{"syscall"}},
		{"nvme:*_rq, ib:modify_qp /ret != 0/ { @ = count() } interval:1s { print(@) }", []string{"nvme", "ib", "interval"}},
		{"begin { @x = 1 }", []string{"begin"}},
		{"ret != 0", nil},
		{"i*:modify_qp", nil},
		{"nvme:timeout ib?:x", nil},
		{"syscall:enter {", nil},
		{"", nil},
	} {
		if got := Groups(test.program); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.program, got, test.want)
		}
	}
}
