package exec

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/result"
	"trace/probes/event"
)

// Profiles returns the profiles of the maps that have one, also after End. The sample with the largest value comes first.
func (r *Run) Profiles() ([]result.Profile, error) {
	defer r.lock()()
	var all []result.Profile
	for _, m := range r.plan.Program.Maps {
		if !m.IsProfile() {
			continue
		}
		elements, err := r.machine.stores[m].elements()
		if err != nil {
			return nil, err
		}
		all = append(all, profileOf(m, elements, r.machine))
	}
	return all, nil
}

func profileOf(m *ir.Map, elements []ir.Element, of *machine) result.Profile {
	t := m.Table(elements, of.collected(m, of.now(), ir.MapOptions{}))
	p := result.Profile{Map: m.Name}
	if t.Adds == result.Sums {
		p.Unit = m.Type().Unit
	}
	for i, c := range t.Key {
		if m.Key[i].Type.Kind != format.Stack {
			p.Columns = append(p.Columns, c.Name)
		}
	}
	for _, r := range t.Rows {
		n := addend(r.Value)
		if i, ok := n.(int64); ok && i < 0 {
			p.Negative++
			continue
		}
		if value := event.To[uint64](n); value > 0 {
			s := sampleOf(m, r.Key, of)
			s.Value = value
			p.Samples = append(p.Samples, s)
		}
	}
	slices.SortFunc(p.Samples, func(a, b result.Sample) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), slices.Compare(a.Key, b.Key), slices.Compare(a.Frames, b.Frames))
	})
	return p
}

// addend returns the number of an element that adds up with the numbers of others.
func addend(v result.Value) any {
	n := v.Rank()[0]
	if s, ok := v.(result.Stats); ok {
		n = s.Total.V
	}
	if n == nil {
		return uint64(0)
	}
	return n
}

func sampleOf(m *ir.Map, key []any, of *machine) (s result.Sample) {
	var kernel []string
	for i, x := range key {
		switch {
		case m.Key[i].Type.Kind != format.Stack:
			s.Key = append(s.Key, string(format.Append(nil, m.Key[i].Type, nil, of.sink.Presentable(m.Key[i].Type, nil, x))))
		case of.stacks == nil || x == nil || x == uint64(0): // absent
		default:
			frames, ofProcess := of.stacks.functions(x.(uint64))
			frames = of.sink.Presentable(m.Key[i].Type, nil, frames).(format.Frames)
			if ofProcess {
				s.Frames = append(s.Frames, frames...)
			} else {
				kernel = append(kernel, frames...)
			}
		}
	}
	s.Frames = append(s.Frames, kernel...)
	return s
}

// functions returns the frames of a stack, outermost first, without offsets: all calls of a function are one flame.
func (s *stackStore) functions(number uint64) (all format.Frames, ofProcess bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.find(number)
	if !ok {
		return lostFrames, false
	}
	for _, f := range slices.Backward(found.Frames) {
		all = append(all, functionOf(f))
	}
	return all, found.PID != 0
}

// place matches the offset and line of a frame as symbols.Frame writes it. The function's name precedes it, and its module is in
// it.
var place = regexp.MustCompile(`^(.*)\+[0-9]+( \[[^]]*\])?( .*:[0-9]+)?$`)

// functionOf returns the function of a frame and its kernel module, or what is mapped at an address without a name.
func functionOf(frame string) string {
	if address, module, mapped := strings.Cut(frame, " "); strings.HasPrefix(address, "0x") {
		if !mapped {
			return "[unknown]"
		}
		return module
	}
	return place.ReplaceAllString(frame, "$1$2")
}
