//go:build linux

package probes

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"trace/probes/event"
)

// request is a Request that is being served.
type request struct {
	Request
	source *source
	// variant that was attached.
	variant string
	// hooks are the helpers that the fields need, and then the probe's own.
	hooks []hook
	// watched says that the beginnings of calls are remembered although the code wants nothing of them: the kernel does not tell of the
	// returns that it misses, and who begins another call tells of one.
	watched bool
	// tried says why better variants were not used.
	tried []error

	counts *ebpf.Map

	// withoutTasks says that no types lead to the fields of a task, so that they are absent.
	withoutTasks bool

	mu       sync.Mutex
	attached []*attached
	gaps     uint64 // times in which a module that came again was not seen
	// missedBeginnings are those of helpers that serve another request now.
	missedBeginnings uint64
}

func (c *Catalog) request(r Request) *request { return &request{Request: r, source: c.source(r.Probe)} }

// allHooks are its hooks, and the one on the kernel's way over its objects.
func (r *request) allHooks() []hook {
	if sd := r.source.hook.seed; sd != nil {
		return append(slices.Clip(r.hooks), sd.visit)
	}
	return r.hooks
}

// needs reports whether a hook is one of the helpers that the fields need.
func (r *request) needs(helper string) bool {
	return slices.ContainsFunc(r.hooks[:len(r.hooks)-1], func(hk hook) bool { return hk.name == helper })
}

// stage in which a field is captured.
func (r *request) stage(f *event.Field) byte {
	if r.withoutTasks && r.source.ofTask[f.Name] {
		return stageNever
	}
	return r.Code.stage(f)
}

// readsTasks tells whether fields are captured to which types lead.
func (r *request) readsTasks() bool {
	return slices.ContainsFunc(r.Probe.Fields, func(f *event.Field) bool { return r.source.ofTask[f.Name] && r.stage(f) != stageNever })
}

// wanted returns the content of X_want: the stage in which the member at each offset is captured.
func (r *request) wanted() []byte {
	want := make([]byte, r.Probe.Size)
	for _, f := range r.Probe.Fields {
		want[f.Offset] = r.stage(f)
	}
	return want
}

// wantsEntry tells whether the code wants a field that the return of a function does not tell by itself (OF_CALL in bpf/trace.h).
func (r *request) wantsEntry() bool {
	return slices.ContainsFunc(r.Probe.Fields, func(f *event.Field) bool {
		return r.stage(f) != stageNever && !f.Common && !r.source.atReturn[f.Name]
	})
}

// begins is the stage in which the code first wants something that only the beginning of an event tells, X_begins in trace.h.
func (r *request) begins() byte {
	first := byte(stageNever)
	for _, f := range r.Probe.Fields {
		if stage := r.stage(f); len(r.source.needs[f.Name]) > 0 && stage != stageNever && (first == stageNever || stage < first) {
			first = stage
		}
	}
	return first
}

// constantSection holds the constants of the C source.
const constantSection = ".rodata"

// constantsFor returns the contents of the constants' section for some requests; controller is cgroup_controller of trace.h.
func constantsFor(object *ebpf.CollectionSpec, controller byte, requests ...*request) []byte {
	values := bytes.Clone(object.Maps[constantSection].Contents[0].Value.([]byte))
	values[object.Variables["cgroup_controller"].Offset] = controller
	for _, r := range requests {
		copy(values[object.Variables[structName(r.Probe)+"_want"].Offset:], r.wanted())
		if entry := object.Variables[structName(r.Probe)+"_entry"]; entry != nil && (r.wantsEntry() || r.watched) {
			values[entry.Offset] = 1
		}
		if begins := object.Variables[structName(r.Probe)+"_begins"]; begins != nil {
			values[begins.Offset] = r.begins()
		}
		if r.Counted {
			values[object.Variables[structName(r.Probe)+"_counted"].Offset] = 1
		}
	}
	return values
}

// detach ends the stream of the request's events.
func (r *request) detach() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return detachAll(r.attached)
}

// reattach attaches the programs on functions anew, and names these.
func (r *request) reattach(functions map[string]bool) (names []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attached {
		if !a.place.way.vanishes() || !functions[a.place.target] {
			continue
		}
		if !slices.Contains(names, a.place.target) {
			names = append(names, a.place.target)
		}
		err = errors.Join(err, a.reattach())
	}
	if len(names) > 0 {
		r.gaps++
	}
	return names, err
}

// handOver detaches the request, except the helpers that go on for others: heir returns who needs a helper, or nil. What the kernel has
// skipped of a helper until now is counted for the old request.
func (r *request) handOver(heir func(helper string) *request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var own []*attached
	var errs []error
	for _, a := range r.attached {
		var to *request
		if a.helper {
			to = heir(a.hook)
		}
		if to == nil {
			own = append(own, a)
			continue
		}
		n, err := a.misses()
		errs = append(errs, err)
		r.missedBeginnings += n
		a.before += n
		to.inherit(a)
	}
	r.attached = own
	return errors.Join(append(errs, detachAll(own))...)
}

func (r *request) inherit(a *attached) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attached = append(r.attached, a)
}

// Close detaches and releases the programs.
func (r *request) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return closeAll(r.attached)
}
