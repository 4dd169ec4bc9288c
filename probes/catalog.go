package probes

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"

	"trace/probes/event"
	"trace/probes/kernel"
)

// Catalog is every probe, the same on every host.
type Catalog struct {
	probes  []*event.Probe
	origins map[string]*origin // by the name of the probe
	objects map[string]*object // by group
	cgroups *kernel.Cgroups

	stackLeft sync.Map // what StackLeft has returned, by *event.Probe
}

// Load reads the catalog from the embedded objects: the named groups, or all without names. It takes a millisecond or two for each.
func Load(groups ...string) (*Catalog, error) {
	c := &Catalog{origins: make(map[string]*origin), objects: make(map[string]*object), cgroups: kernel.NewCgroups()}
	enums := map[string]*event.Enum{cgroupType: event.NewCgroupEnum(c.cgroups)}
	for _, e := range table {
		group, name, _ := strings.Cut(e.probe, ":")
		if len(groups) > 0 && !slices.Contains(groups, group) {
			continue
		}
		if c.objects[group] == nil {
			c.objects[group] = &object{group: groupNamed(group)}
		}
		s, err := newOrigin(c.objects[group], name, e.hook, enums)
		if err != nil {
			return nil, fmt.Errorf("probe %s: %w", e.probe, err)
		}
		c.probes = append(c.probes, s.Probe)
		c.origins[e.probe] = s
	}
	sort.Slice(c.probes, func(i, j int) bool { return c.probes[i].String() < c.probes[j].String() })
	return c, nil
}

// Cgroups returns the cgroups of this host. They give values of type cgroup their names.
func (c *Catalog) Cgroups() *kernel.Cgroups { return c.cgroups }

// Probes returns all probes, sorted by name.
func (c *Catalog) Probes() []*event.Probe { return c.probes }

// Match returns the probes whose names match a glob.
func (c *Catalog) Match(glob string) []*event.Probe { return event.Match(c.probes, glob) }

// release frees the parsed objects.
func (c *Catalog) release() {
	for _, o := range c.objects {
		o.release()
	}
}

// An origin is a probe of the catalog, and what its events come from.
type origin struct {
	*event.Probe
	object *object
	hook   hook
	// needs are the hooks that must be attached for a field, by the field's name: helpers, or hooks of other probes of the group.
	needs map[string][]string
	// atReturn has the fields that are known when the function returns (AT_RETURN in bpf/trace.h).
	atReturn map[string]bool
	// ofTask has the common fields that need the kernel's types (OF_TASK in bpf/trace.h).
	ofTask map[string]bool
}

// origin returns the origin of a probe of the catalog.
func (c *Catalog) origin(p *event.Probe) *origin { return c.origins[p.String()] }

func newOrigin(o *object, name string, hk hook, enums map[string]*event.Enum) (*origin, error) {
	types, err := o.describe()
	if err != nil {
		return nil, err
	}
	var declared *btf.Struct
	if err := types.TypeByName(o.name+"_"+name, &declared); err != nil {
		return nil, err
	}
	s, err := originOf(o.name, name, declared, enums)
	if err != nil {
		return nil, err
	}
	s.object, s.hook = o, hk
	s.Targets, s.Sampled, s.Selector = hk.place.targets(), hk.place.sampled(), hk.selector
	s.Dense, s.Elsewhere, s.Echoes = hk.dense, hk.elsewhere, o.echoes
	s.Period, s.LeastPeriod = hk.place.period()
	s.Apart = o.apart || hk.inquiry != nil || hk.dense != "" || s.Period != 0
	return s, nil
}

// ProbeOf makes a probe from an event struct that no object has. It cannot be attached; tests use its events.
func ProbeOf(group, name string, declared *btf.Struct) (*event.Probe, error) {
	s, err := originOf(group, name, declared, make(map[string]*event.Enum))
	if err != nil {
		return nil, err
	}
	return s.Probe, nil
}

func originOf(group, name string, declared *btf.Struct, enums map[string]*event.Enum) (*origin, error) {
	r := structReader{enums: enums}
	if err := r.read(declared.Members, "", 0); err != nil {
		return nil, err
	}
	s := &origin{
		Probe: event.NewProbe(group, name, tagged(declared.Tags, "doc:"), r.fields),
		needs: make(map[string][]string), atReturn: make(map[string]bool), ofTask: make(map[string]bool),
	}
	s.Size = int(declared.Size)
	if of := tagged(declared.Tags, "stack:"); of != "" {
		argument, err := strconv.Atoi(of)
		if err != nil {
			return nil, err
		}
		s.StackOf = &argument
	}
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

// Describe completes recorded probes with what the catalog knows of them: documentation, and how lines of text show their fields.
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
