package probes

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/cilium/ebpf/btf"

	"trace/probes/event"
	"trace/probes/kernel"
)

// Catalog is every probe that there is, the same on every host.
type Catalog struct {
	probes  []*event.Probe
	sources map[string]*source // by the name of the probe
	objects map[string]*object // by group
	cgroups *kernel.Cgroups
}

// Load reads the catalog from the embedded objects: the groups named, or all if none is. It takes a millisecond or two for each.
func Load(groups ...string) (*Catalog, error) {
	c := &Catalog{sources: make(map[string]*source), objects: make(map[string]*object), cgroups: kernel.NewCgroups()}
	enums := map[string]*event.Enum{cgroupType: event.NewCgroupEnum(c.cgroups)}
	for _, e := range table {
		group, name, _ := strings.Cut(e.probe, ":")
		if len(groups) > 0 && !slices.Contains(groups, group) {
			continue
		}
		if c.objects[group] == nil {
			c.objects[group] = &object{group: groupNamed(group), events: make(map[string]bool)}
		}
		s, err := newSource(c.objects[group], name, e.hook, enums)
		if err != nil {
			return nil, fmt.Errorf("probe %s: %w", e.probe, err)
		}
		c.objects[group].events[structName(s.Probe)] = true
		c.probes = append(c.probes, s.Probe)
		c.sources[e.probe] = s
	}
	sort.Slice(c.probes, func(i, j int) bool { return c.probes[i].String() < c.probes[j].String() })
	return c, nil
}

// Cgroups are those of this host, which give the values of type cgroup their names.
func (c *Catalog) Cgroups() *kernel.Cgroups { return c.cgroups }

// Probes returns all probes, sorted by name.
func (c *Catalog) Probes() []*event.Probe { return c.probes }

// Match returns the probes whose names match a glob.
func (c *Catalog) Match(glob string) []*event.Probe { return event.Match(c.probes, glob) }

// release lets go of what the objects hold.
func (c *Catalog) release() {
	for _, o := range c.objects {
		o.release()
	}
}

// A source is a probe of the catalog, and how its events come about.
type source struct {
	*event.Probe
	object *object
	hook   hook
	// needs are the helper hooks that have to be attached for a field, by its name.
	needs map[string][]string
	// atReturn has the fields that the return of a function tells by itself (AT_RETURN in bpf/trace.h).
	atReturn map[string]bool
	// ofTask has the common fields to which only the kernel's types lead (OF_TASK in bpf/trace.h).
	ofTask map[string]bool
}

// source of a probe of the catalog.
func (c *Catalog) source(p *event.Probe) *source { return c.sources[p.String()] }

func newSource(o *object, name string, hk hook, enums map[string]*event.Enum) (*source, error) {
	types, err := o.describe()
	if err != nil {
		return nil, err
	}
	var record *btf.Struct
	if err := types.TypeByName(o.name+"_"+name, &record); err != nil {
		return nil, err
	}
	s, err := sourceOf(o.name, name, record, enums)
	if err != nil {
		return nil, err
	}
	s.object, s.hook = o, hk
	s.Sources, s.Driver, s.Sampled, s.Selector = hk.place.sources(), o.driver, hk.place.sampled(), hk.selector
	return s, nil
}

// ProbeOf makes a probe of an event struct that no object has. It cannot be attached; its events are for trying what is done with
// events.
func ProbeOf(group, name string, record *btf.Struct) (*event.Probe, error) {
	s, err := sourceOf(group, name, record, make(map[string]*event.Enum))
	if err != nil {
		return nil, err
	}
	return s.Probe, nil
}

func sourceOf(group, name string, record *btf.Struct, enums map[string]*event.Enum) (*source, error) {
	r := structReader{enums: enums}
	if err := r.read(record.Members, "", 0); err != nil {
		return nil, err
	}
	s := &source{
		Probe: event.NewProbe(group, name, tagged(record.Tags, "doc:"), r.fields),
		needs: make(map[string][]string), atReturn: make(map[string]bool), ofTask: make(map[string]bool),
	}
	s.Size = int(record.Size)
	for i, f := range s.Fields {
		if needs := allTagged(r.tags[i], "needs:"); needs != nil {
			s.needs[f.Name] = needs
		}
		if slices.Contains(r.tags[i], "at:return") {
			s.atReturn[f.Name] = true
		}
		if slices.Contains(r.tags[i], "of:task") {
			s.ofTask[f.Name] = true
		}
	}
	return s, nil
}

// Describe gives recorded probes what the catalog says of them, and of how people read their fields.
func Describe(recorded []*event.Probe) error {
	var names []string
	for _, p := range recorded {
		names = append(names, p.Group)
	}
	if names == nil {
		return nil // Load would take that for all groups
	}
	catalog, err := Load(names...)
	if err != nil {
		return err
	}
	for _, p := range recorded {
		for _, known := range catalog.Match(p.String()) {
			p.Describe(known)
		}
	}
	return nil
}
