package event

import "testing"

// A word is a name in any case. Where two names differ in case alone, it must be one of them.
func TestSpelled(t *testing.T) {
	e := &Enum{Name: "letters", Names: []string{"a", "B", "Ok", "OK"}, Values: []int64{1, 2, 3, 4}}
	for word, want := range map[string]struct {
		name  string
		value int64
	}{
		"a": {"a", 1}, "A": {"a", 1}, "b": {"B", 2}, "B": {"B", 2}, "Ok": {"Ok", 3}, "OK": {"OK", 4}, "ok": {}, "oK": {}, "": {}, "c": {}, "ab": {},
	} {
		value, known := e.Value(word)
		if name := e.Spelled(word); name != want.name || value != want.value || known != (want.name != "") {
			t.Errorf("%q is %q, %d, %v, want %q, %d", word, name, value, known, want.name, want.value)
		}
	}
}

// Paths of cgroups have a case.
func TestPathsAreNotSpelled(t *testing.T) {
	e := NewCgroupEnum(onePath{})
	if id, ok := e.Value("/A"); id != 7 || !ok {
		t.Errorf("/A is %d, %v", id, ok)
	}
	if id, ok := e.Value("/a"); ok || e.Spelled("/a") != "" || e.Spelled("/A") != "" {
		t.Errorf("/a is %d, %q; /A is spelled %q", id, e.Spelled("/a"), e.Spelled("/A"))
	}
}

// onePath are the names of a host with the cgroup /A.
type onePath struct{ CgroupNames }

func (onePath) ID(path string) (id uint64, ok bool) { return 7, path == "/A" }
