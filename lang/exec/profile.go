package exec

import (
	"cmp"
	"context"
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
	all, err := r.Counted()
	if err == nil && r.stacks != nil {
		r.name(all, r.patience.asked())
	}
	return all, err
}

// Counted returns the same without the names: samples have the numbers of their stacks.
func (r *Run) Counted() ([]result.Profile, error) {
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

// Name gives the samples of [Run.Counted] their frames. After the end of ctx the rest have addresses.
func (r *Run) Name(ctx context.Context, all []result.Profile) {
	if r.stacks != nil {
		r.name(all, func(_ uint32, look func(context.Context) bool) { look(ctx) })
	}
}

// maxNames bounds the names in profiles, in bytes: a process may have long ones. What comes after has no names.
const maxNames = 32 << 20

func (r *Run) name(all []result.Profile, search searching) {
	left, once := maxNames, map[string]string{}
	bounded := func(user uint32, look func(context.Context) bool) {
		if left > 0 {
			search(user, look)
			return
		}
		over, end := context.WithCancel(context.Background())
		end()
		look(over)
	}
	for _, p := range all {
		for i := range p.Samples {
			s := &p.Samples[i]
			s.Frames = nil
			var kernel []string
			for _, number := range s.Stacks {
				frames, ofProcess := r.stacks.functions(bounded, number)
				frames = r.machine.sink.Presentable(event.Type{Kind: format.Stack}, nil, frames).(format.Frames)
				for i, f := range frames {
					if known, ok := once[f]; ok {
						frames[i] = known
						continue
					}
					once[f], left = f, left-len(f)
				}
				if ofProcess {
					s.Frames = append(s.Frames, frames...)
				} else {
					kernel = append(kernel, frames...)
				}
			}
			s.Frames = append(s.Frames, kernel...)
		}
		sortSamples(p.Samples)
	}
}

func sortSamples(all []result.Sample) {
	slices.SortFunc(all, func(a, b result.Sample) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), slices.Compare(a.Key, b.Key), slices.Compare(a.Frames, b.Frames))
	})
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
	sortSamples(p.Samples)
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
	for i, x := range key {
		switch {
		case m.Key[i].Type.Kind != format.Stack:
			s.Key = append(s.Key, string(format.Append(nil, m.Key[i].Type, nil, of.sink.Presentable(m.Key[i].Type, nil, x))))
		case of.stacks == nil || x == nil || x == uint64(0): // absent
		default:
			s.Stacks = append(s.Stacks, x.(uint64))
		}
	}
	return s
}

// functions returns the frames of a stack, outermost first, without offsets: all calls of a function are one flame.
func (s *stackStore) functions(search searching, number uint64) (all format.Frames, ofProcess bool) {
	found, ok := s.find(number)
	if !ok {
		return slices.Clone(lostFrames), false
	}
	frames, _ := s.frames(search, number)
	for _, f := range slices.Backward(frames) {
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
