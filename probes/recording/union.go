package recording

import (
	"fmt"
	"slices"
	"time"

	"trace/probes/event"
)

// union merges the probes of several files.
type union struct {
	enums   map[string]*event.Enum
	cgroups *event.Enum
	probes  []*recordedProbe
	byName  map[string]*recordedProbe
}

func newUnion(names *knownNames) *union {
	return &union{enums: map[string]*event.Enum{}, cgroups: event.NewCgroupEnum(names), byName: map[string]*recordedProbe{}}
}

type recordedProbe struct {
	recordDesc
	fields []event.Field
	// in counts the files that have the probe, leftOut those whose run went on without it, and seen those that have each field.
	in, leftOut int
	seen        map[string]int
	// at is where a field is among the fields.
	at map[string]int
}

func (u *union) add(f *file) error {
	for _, d := range f.header.Records {
		p := u.byName[d.Group+":"+d.Name]
		if p == nil {
			p = &recordedProbe{recordDesc: d, seen: map[string]int{}, at: map[string]int{}}
			u.probes, u.byName[d.Group+":"+d.Name] = append(u.probes, p), p
		}
		p.in++
		for _, fd := range d.Fields {
			field, err := f.header.field(fd, u.enums, u.cgroups)
			if err != nil {
				return fmt.Errorf("%s:%s: %w", d.Group, d.Name, err)
			}
			if err := p.addField(field); err != nil {
				return fmt.Errorf("%s:%s: %w", d.Group, d.Name, err)
			}
		}
	}
	for _, l := range f.header.LeftOut {
		for _, name := range l.Probes {
			if p := u.byName[name]; p != nil {
				p.leftOut++
			}
		}
	}
	return nil
}

func (p *recordedProbe) addField(f event.Field) error {
	p.seen[f.Name]++
	i, known := p.at[f.Name]
	if !known {
		p.at[f.Name] = len(p.fields)
		p.fields = append(p.fields, f)
		return nil
	}
	before := &p.fields[i]
	if before.Type.Kind != f.Type.Kind || before.Type.Unit != f.Type.Unit || before.Type.Size != f.Type.Size {
		return fmt.Errorf("field %s has another type than in the files before: read the files one by one", f.Name)
	}
	before.Optional = before.Optional || f.Optional
	return nil
}

// hostSize is room for a host name (HOST_NAME_MAX of Linux is 64).
const hostSize = 64

// addHost adds a field to all events. If it is the same in all of them, lines of text leave it out.
func (u *union) addHost(several bool) {
	field := event.Field{Name: hostField, Doc: "host on which it was recorded", Type: event.Type{Kind: event.String, Size: hostSize}, Common: true}
	if !several {
		field.Line.Shown = event.Verbose
	}
	for _, p := range u.probes {
		p.fields = append(p.fields, field)
		p.seen[hostField] = p.in
	}
}

const hostField = "host"

// make returns the probes. A field that some of the files lack is optional.
func (u *union) make() []*event.Probe {
	var all []*event.Probe
	for _, p := range u.probes {
		for i := range p.fields {
			f := &p.fields[i]
			f.Optional = f.Optional || p.seen[f.Name] < p.in
		}
		all = append(all, event.NewProbe(p.Group, p.Name, p.Doc, p.fields))
	}
	slices.SortFunc(all, func(a, b *event.Probe) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return all
}

// layOut makes layouts of the file's records for the fields of the merged probes.
func (f *file) layOut(catalog []*event.Probe) error {
	byName := map[string]*event.Probe{}
	for _, p := range catalog {
		byName[p.String()] = p
	}
	for id, d := range f.header.Records {
		p := byName[d.Group+":"+d.Name]
		fields := map[string]*event.Field{}
		for _, field := range p.Fields {
			fields[field.Name] = field
		}
		nsecs := -1
		var places []event.Place
		for _, fd := range d.Fields {
			field := fields[fd.Name]
			places = append(places, event.Place{Field: field, At: fd.At, HasAt: fd.HasAt, HasMask: fd.HasMask})
			if fd.Name == "nsecs" && field.Type.Size == 8 {
				nsecs = fd.At
			}
		}
		places = append(places, event.Place{Field: fields[hostField], Constant: f.header.Host})
		var values []event.RecordedValue
		for _, s := range d.Stacks {
			values = append(values, event.RecordedValue(s))
		}
		l, err := event.NewRecordedLayout(id, p, d.Size, places, values)
		if err != nil {
			return fmt.Errorf("corrupt: %s: %w", p, err)
		}
		if nsecs < 0 {
			return fmt.Errorf("corrupt: events of %s have no time", p)
		}
		f.layouts, f.times, f.numbers = append(f.layouts, l), append(f.times, nsecs), append(f.numbers, numbersOf(l))
	}
	f.counts = make([]uint64, len(f.layouts))
	return nil
}

// bootsOf returns a header of each boot in the files.
func bootsOf(files []*file) (boots []Header) {
	for _, f := range files {
		if !slices.ContainsFunc(boots, func(b Header) bool { return sameBoot(b, f.header.Header) }) {
			boots = append(boots, f.header.Header)
		}
	}
	return boots
}

// leastReboot is less than a machine takes to boot.
const leastReboot = 2 * time.Second

// sameBoot reports whether two files are from one boot of one machine. Old files do not contain the boot's ID. Then it is the same boot if
// names and kernels are equal and there was no time for a boot between them: the machine was up when the first recording began.
func sameBoot(a, b Header) bool {
	if a.BootID != "" && b.BootID != "" {
		return a.BootID == b.BootID
	}
	if a.Boot.After(b.Boot) {
		a, b = b, a
	}
	up := max(time.Duration(min(a.Started, 1<<62)), leastReboot)
	return a.Host == b.Host && a.Kernel == b.Kernel && b.Boot.Sub(a.Boot) < up
}
