//go:build linux

package verbs

import (
	"slices"
	"testing"
)

// Each context that was made is found or left, in whatever order the reports come.
func TestContexts(t *testing.T) {
	const made, found = true, false
	type step struct {
		made bool
		at   uint64
	}
	for name, c := range map[string]struct {
		steps []step
		left  []uint64
	}{
		"made, then found":               {[]step{{made, 1}, {found, 2}}, nil},
		"found before the report":        {[]step{{found, 2}, {made, 1}}, nil},
		"made before anybody watched":    {[]step{{found, 2}, {made, 3}}, []uint64{3}},
		"closed before it was found":     {[]step{{made, 1}, {made, 3}, {found, 4}}, []uint64{1}},
		"two, reported in another order": {[]step{{found, 2}, {found, 4}, {made, 3}, {made, 1}}, nil},
		"not found":                      {[]step{{made, 1}, {made, 2}}, []uint64{1, 2}},
		"the later is not made yet":      {[]step{{made, 3}, {found, 2}, {made, 1}}, []uint64{3}},
	} {
		var of contexts
		for _, s := range c.steps {
			if s.made {
				of.make(s.at)
			} else {
				of.find(s.at)
			}
		}
		if !slices.Equal(of.made, c.left) {
			t.Errorf("%s: %v are not found, want %v", name, of.made, c.left)
		}
	}
}

// A device that a process has closed after it was found is not lost, however often it is looked at.
func TestFoundAndClosed(t *testing.T) {
	f := newFinder(func(string) {})
	lost := 0
	f.Listen(func(Open, bool) {}, func() { lost++ })
	const pid = 1 << 30
	f.Made(pid, now())
	f.settle(process{pid, 1}, Open{PID: pid, FD: 3})
	f.unknown(process{pid, 1}, nil)
	for range 2 {
		lookInto(f, pid)
	}
	if lost != 0 {
		t.Errorf("%d are lost", lost)
	}
	if f.Made(pid, now()); f.unfound(pid) != 1 {
		t.Error("what is made later counts as found")
	}
}
