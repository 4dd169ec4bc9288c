//go:build linux

package probes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/btf"

	"trace/probes/event"
	"trace/probes/kernel"
)

// HostOptions describe the host beyond what its kernel shows.
type HostOptions struct {
	// BTF are files, or folders of files, with the types of modules that carry none.
	BTF []string
	// FullTables lets the tables of beginnings have no room (KEPT in bpf/trace.h), for tests of what keeps the rest.
	FullTables bool
}

// Host is what one kernel offers of the catalog. Everything is asked for when it is first needed.
type Host struct {
	kernel  *kernel.Kernel
	catalog *Catalog
	finder  finder

	fullTables bool
}

// Detect looks at the running kernel.
func Detect(c *Catalog, o HostOptions) (*Host, error) {
	h, err := newHost(c, kernel.Options{BTF: o.BTF})
	if err == nil {
		h.fullTables = o.FullTables
	}
	return h, err
}

// newHost completes the options with what the catalog needs from a kernel.
func newHost(c *Catalog, o kernel.Options) (*Host, error) {
	o.Symbols = wantedSymbols
	for _, g := range groups {
		o.Modules = append(o.Modules, g.modules()...)
	}
	k, err := kernel.New(o)
	if err != nil {
		return nil, err
	}
	made := make(map[string]*event.Probe)
	for _, p := range c.probes {
		made[structName(p)] = p
	}
	return &Host{kernel: k, catalog: c, finder: finder{kernel: k, cgroups: c.cgroups, events: made}}, nil
}

// wantedSymbols returns the names that any probe looks up in the kernel's symbol table.
func wantedSymbols() map[string]bool {
	wanted := make(map[string]bool)
	for _, hk := range allHooks() {
		for _, name := range hk.place.symbols() {
			wanted[name] = true
		}
	}
	return wanted
}

// Release frees what is needed only to attach, tens of megabytes: the kernel's types and the programs of the catalog. They are read again
// when they are next needed.
func (h *Host) Release() {
	h.catalog.release()
	h.kernel.Release()
}

// Facts returns what doctor shows about the host, most general first.
func (h *Host) Facts() []kernel.Fact {
	facts := h.kernel.Facts(h.catalog.cgroups)
	var told []string
	for _, g := range groups {
		o := h.catalog.objects[g.name]
		if o == nil {
			continue
		}
		for _, m := range g.modules() {
			if m.Name != "" && !slices.Contains(told, m.Name) {
				told = append(told, m.Name)
				facts = append(facts, h.kernel.ModuleFact(m, missingTypes(h.kernel, o, m)))
			}
		}
	}
	return facts
}

// hostHook returns a hook of an object on this host, whatever a request wants of them.
func (h *Host) hostHook(o *object, hk hook) *hostHook {
	return &hostHook{Kernel: h.kernel, object: o, hook: hk, finder: &h.finder}
}

// hostHookFor returns a hook on this host for a request.
func (h *Host) hostHookFor(r *request, hk hook) *hostHook {
	s := h.hostHook(r.origin.object, hk)
	s.needs = func(program string) needs {
		key := needsKey{program, r.watched}
		known, ok := r.needed[key]
		if !ok {
			known = needsFor(program, r, h.constants(s.object.module, r))
			r.needed[key] = known
		}
		return known
	}
	return s
}

// Alone reports whether no two runs of the programs that deliver events of a probe can overlap on one CPU: then what they write for that
// CPU alone needs no atomic operations, which take five times as long. Every variant must have only one such program.
func (h *Host) Alone(p *event.Probe) bool {
	src := h.catalog.origin(p)
	return !slices.ContainsFunc(h.hostHook(src.object, src.hook).variants(), func(v variant) bool {
		delivering := src.delivering(v)
		return len(delivering) != 1 || !delivering[0].way.exclusive(h.kernel)
	})
}

// delivering returns the programs of a variant that call the action of the probe.
func (s *origin) delivering(v variant) []program {
	callers := s.object.callers(actionName(s.Probe))
	return slices.DeleteFunc(slices.Clone(v.programs), func(p program) bool { return !slices.Contains(callers, p.name) })
}

// request prepares a request for this host, which may lack the types that some fields need.
func (h *Host) request(r Request) *request {
	rq := h.catalog.request(r)
	rq.withoutTasks = rq.readsTasks() && h.TasksDescribed() != nil
	return rq
}

// serve returns what serves a request on this host.
func (h *Host) serve(r Request) (*request, error) {
	rq := h.request(r)
	if err := rq.origin.hook.place.accepts(r.Arg); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Probe, err)
	}
	rq.hooks = h.hooksFor(rq)
	rq.watched = h.missesReturns(rq)
	return rq, nil
}

// missesReturns reports whether the kernel may miss returns for a request without reporting them.
func (h *Host) missesReturns(r *request) bool {
	variants := h.hostHookFor(r, r.origin.hook).variants()
	misses := func(v variant) bool { return v.has(isKretprobe) }
	if !slices.ContainsFunc(variants, misses) || h.kernel.ReportsMissed() {
		return false
	}
	i := slices.IndexFunc(variants, func(v variant) bool { return v.check() == nil })
	return i >= 0 && misses(variants[i])
}

// hooksFor returns the helpers that the probe, and the fields that the code reads, need on this host, and the probe's own hook.
func (h *Host) hooksFor(r *request) []hook {
	var hooks []hook
	for _, candidate := range helpers {
		if r.wants(candidate.name) && !h.unneeded(r.origin.object, candidate) {
			hooks = append(hooks, candidate)
		}
	}
	return append(hooks, r.origin.hook)
}

// implied returns the other probes whose programs a request needs.
func (h *Host) implied(r *request) (all []*event.Probe) {
	for _, p := range h.catalog.probes {
		if p != r.Probe && p.Group == r.Probe.Group && r.wants(h.catalog.origin(p).hook.name) {
			all = append(all, p)
		}
	}
	return all
}

func (h *Host) unneeded(o *object, hk hook) bool {
	if hk.unless == "" {
		return false
	}
	_, err := h.kernel.Type(o.module, &btf.Struct{Name: hk.unless})
	return err == nil
}

// available returns nil if a variant of the probe can be used for a request, otherwise why none can.
func (h *Host) available(r *request) error {
	var causes []error
	for _, v := range h.hostHookFor(r, r.origin.hook).variants() {
		err := v.check()
		if err == nil {
			return nil
		}
		causes = append(causes, err)
	}
	return unavailable(r.Probe, causes, func() string { return h.reasonOf(r.Probe, causes) })
}

// reasonOf returns why a probe is not available for a request: what Status reports, or if that finds it available, the causes of this request.
func (h *Host) reasonOf(p *event.Probe, all causes) string {
	return cmp.Or(h.Status(p).Reason, all.Error())
}

// TasksDescribed returns why the common fields that need the kernel's types are absent, nil if they are present.
func (h *Host) TasksDescribed() error {
	if err := h.kernel.Described(); err != nil {
		return err
	}
	if _, err := h.kernel.Type(kernel.Module{}, &btf.Struct{Name: "task_struct"}); err != nil {
		return fmt.Errorf("struct task_struct: %w", err)
	}
	return nil
}

// constants returns the constants of this host for some requests of a group.
func (h *Host) constants(m kernel.Module, requests ...*request) hostConstants {
	return hostConstants{
		controller: h.cgroupController(requests...),
		arguments:  func(name string) byte { return h.kernel.Arguments(m, name) },
		fullTables: h.fullTables,
	}
}

// cgroupController returns the value of cgroup_controller in trace.h on this host for some requests. A value other than 0 needs the
// kernel's types, so it is looked up only if a request wants the cgroup.
func (h *Host) cgroupController(requests ...*request) byte {
	if !slices.ContainsFunc(requests, (*request).readsCgroup) {
		return 0
	}
	_, controller, _ := h.catalog.cgroups.Mount()
	if controller == "" {
		return 0
	}
	return h.kernel.ControllerNumber(controller)
}

// ReadOfProcesses returns how many bytes of processes were read, since something is followed in them, to find which functions they call; 0 if nothing
// is.
func (h *Host) ReadOfProcesses() int64 { return h.finder.read() }
