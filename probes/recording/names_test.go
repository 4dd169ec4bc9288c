package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"trace/probes"
	"trace/probes/event"
)

// namesOf are the names on a host: whatever has an odd number has one.
type namesOf string

func (host namesOf) Cgroup(id uint64) (string, event.Workload) {
	if id%2 == 0 {
		return "", event.Workload{}
	}
	return fmt.Sprintf("/%s/%d", string(host), id), event.Workload{Pod: fmt.Sprint("pod", id), Namespace: string(host)}
}

func (host namesOf) Stack(number uint64) (event.Stack, bool) {
	return event.Stack{PID: number % 3, Addresses: []uint64{number, 2}, Frames: []string{fmt.Sprint("f", number), string(host)}}, number%2 == 1
}

// checkNames reads recordings and compares the names of cgroups and stacks with those that the hosts of the events have.
func checkNames(t *testing.T, events int, files ...string) {
	t.Helper()
	r, err := Open(files...)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if name := r.WithoutStacks(); name != "" {
		t.Errorf("%s is reported to have no stacks", name)
	}
	cgroups, stacks := 0, 0
	for n := 0; ; n++ {
		item, err := r.Next()
		if err == io.EOF && n == events {
			break
		} else if err != nil {
			t.Fatalf("after %d events: %v", n, err)
		}
		e := item.Event
		i := (item.Time - header.Started) / 1000 // see few
		host := namesOf("a")
		if f := e.Probe.Field(hostField); f != nil {
			name, _ := e.Get(f)
			host = namesOf(name.(string))
		}
		f := e.Probe.Field("cgroup")
		id, _ := e.Get(f)
		want, runs := host.Cgroup(i % 10)
		if got := f.Type.Enum.NameOf(int64(id.(uint64))); got != want {
			t.Fatalf("cgroup %d of %s is %q, want %q", id, host, got, want)
		} else if want != "" {
			cgroups++
		}
		if pod, ok := item.Event.Get(e.Probe.Field("pod")); ok != (runs.Pod != "") || ok && pod != runs.Pod {
			t.Fatalf("cgroup %d of %s runs pod %v, %v, want %+v", id, host, pod, ok, runs)
		}
		for j := range recordedStacks {
			number, ok := e.Value(j)
			if !ok {
				continue
			}
			want, known := host.Stack(i%100 + uint64(j))
			got, ok := r.Stack(number.(uint64))
			if ok != known || ok && !reflect.DeepEqual(got, want) {
				t.Fatalf("stack %d is %v %v, want %v %v", number, got, ok, want, known)
			}
			stacks++
		}
	}
	if cgroups == 0 || stacks == 0 {
		t.Errorf("of %d events %d have a cgroup with a name, and there are %d stacks", events, cgroups, stacks)
	}
}

// few puts numbers of a few cgroups and stacks into events.
func few(all []*event.Event) []*event.Event {
	for i, e := range all {
		n := numbersOf(e.Layout())
		for _, at := range n.cgroups {
			binary.LittleEndian.PutUint64(e.Record()[at:], uint64(i%10))
		}
		for j, s := range n.stacks {
			binary.LittleEndian.PutUint64(e.Record()[s.At:], uint64(i%100+j))
		}
	}
	return all
}

// lateNames know what a cgroup runs from the second time on.
type lateNames struct {
	namesOf
	asked int
}

func (n *lateNames) Cgroup(uint64) (string, event.Workload) {
	if n.asked++; n.asked == 1 {
		return "/a", event.Workload{}
	}
	return "/a", event.Workload{Pod: "web"}
}

// A name that comes after the first events of a cgroup is the name in later events.
func TestLateNames(t *testing.T) {
	layouts := smallLayouts(t)
	path := filepath.Join(t.TempDir(), "late")
	w, err := Create(path, Options{}, header, layouts, &lateNames{namesOf: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events(t, layouts, header.Started, 2) {
		for _, at := range numbersOf(e.Layout()).cgroups {
			binary.LittleEndian.PutUint64(e.Record()[at:], 7)
		}
		if err := errors.Join(w.Append(e), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(header.Started+1, nil); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, want := range []any{nil, "web"} {
		item, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := item.Event.Get(item.Event.Probe.Field("pod")); got != want {
			t.Errorf("event %d is of pod %v, want %v", i, got, want)
		}
	}
}

// Recordings of old versions have only paths. They name what they can.
func TestNamesOfOldRecording(t *testing.T) {
	k := newKnownNames()
	f := &file{names: k}
	if err := f.learn([]byte(`{"cgroups":[{"id":5,"path":"/system.slice/a.service"},{"id":6,"path":"/system.slice/b.service","workload":{"unit":"c.service"}}]}`)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint64]event.Workload{5: {Unit: "a.service"}, 6: {Unit: "c.service"}, 7: {}} {
		if got := k.Workload(id); got != want {
			t.Errorf("cgroup %d runs %+v, want %+v", id, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	layouts := smallLayouts(t)
	a := record(t, "a", header, layouts, few(events(t, layouts, header.Started, 5000)))
	checkNames(t, 5000, a)
	other := header
	other.Host = "b"
	b := record(t, "b", other, layouts, few(events(t, layouts, header.Started, 300)))
	checkNames(t, 5300, a, b)
}

// Each file of a ring has the names of its events, and may be read alone.
func TestNamesOfRing(t *testing.T) {
	layouts := smallLayouts(t)
	path := filepath.Join(t.TempDir(), "ring")
	w, err := Create(path, Options{MaxBytes: 12 << 20}, header, layouts, namesOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	all := few(events(t, layouts, header.Started, 100_000))
	appendAll(t, w, all)
	if err := w.Close(1<<40, nil); err != nil {
		t.Fatal(err)
	}
	segments := Segments(path)
	if len(segments) < 2 {
		t.Fatalf("a ring of %d files", len(segments))
	}
	for _, name := range segments {
		got, _, err := readAll(name)
		if err != io.EOF {
			t.Fatal(err)
		}
		checkNames(t, len(got), name)
	}
}

// Each kind and each unit that a field can have has a name in files.
func TestEveryTypeHasName(t *testing.T) {
	source, err := parser.ParseFile(token.NewFileSet(), "../event/types.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]int{}
	for _, d := range source.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		if of, ok := g.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident); ok {
			declared[of.Name] = len(g.Specs)
		}
	}
	if len(kindNames) != declared["Kind"] || len(kinds) != declared["Kind"] {
		t.Errorf("kinds are called %v, and there are %d", kindNames, declared["Kind"])
	}
	if len(unitNames) != declared["Unit"] || len(units) != declared["Unit"] {
		t.Errorf("units are called %v, and there are %d", unitNames, declared["Unit"])
	}
}

// The type of each field of the catalog is the same after reading it from a file, except for the names of cgroups.
func TestTypesSurvive(t *testing.T) {
	var names []string
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range catalog.Probes() {
		names = append(names, p.String())
	}
	path := record(t, "all", header, layoutsOf(t, names...), nil)
	if info, err := os.Stat(path); err != nil || info.Size() > maxHeader/2 {
		t.Errorf("a header with all probes has %d bytes, near the most that is read", info.Size())
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := probes.Describe(r.Probes()); err != nil {
		t.Fatal(err)
	}
	flags, addresses := 0, 0
	for i, p := range r.Probes() {
		for j, f := range p.Fields[:len(p.Fields)-1] { // the last is host
			got, want := f.Type, catalog.Probes()[i].Fields[j].Type
			if want.Unit == event.Cgroup {
				continue
			}
			if want.Enum != nil {
				flags += map[bool]int{true: 1}[want.Enum.Flags]
				if !reflect.DeepEqual(got.Enum, want.Enum) {
					t.Errorf("%s %s: the enum is %+v, want %+v", p, f.Name, got.Enum, want.Enum)
				}
			}
			if want.Unit == event.IP {
				addresses++
			}
			if got.Enum, want.Enum = nil, nil; got != want {
				t.Errorf("%s %s: the type is %+v, want %+v", p, f.Name, got, want)
			}
		}
	}
	if flags == 0 || addresses == 0 {
		t.Errorf("%d flags and %d addresses", flags, addresses)
	}
}
