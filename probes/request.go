//go:build linux

package probes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/rewrite"
)

// request is a Request that is being served.
type request struct {
	Request
	origin *origin
	// variant is the attached variant.
	variant string
	// hooks are the helpers that the fields need, and then the probe's own.
	hooks []hook
	// implied means that no clause gets its events: another request needs what its programs keep.
	implied bool
	// watched means that the beginnings of calls are remembered although the code does not need them: the kernel does not report the
	// returns that it misses, and the next call of the same thread shows it.
	watched bool
	// among are the processes of the session; nil: all.
	among *chosen
	// inWindows means that its programs are attached a part of the time.
	inWindows bool
	// tried are the better variants, which were not used.
	tried []VariantStatus

	// needed are the answers for programs that were asked for.
	needed map[needsKey]needs

	counts *ebpf.Map
	// failedReads counts at the place reader the reads of a process's memory that failed (bpf/user_memory.h); nil: they are not counted.
	failedReads *ebpf.Map
	reader      uint32
	// overflows count the beginnings that its programs kept in a hash, as a table had no room.
	overflows map[overflow]bool

	// absent are functions without a program, because they did not exist when the rest was attached.
	absent []string

	// withoutTasks means that the fields of a task are absent, because the kernel's types are unknown.
	withoutTasks bool

	mu       sync.Mutex
	attached []*attached
	gaps     uint64 // periods in which events were not seen
	// missedBeginnings were missed by helpers that serve another request now.
	missedBeginnings uint64
}

// canBeLeftOut reports whether the program can do without the request, which could not be attached. Code that the verifier rejects is tried once
// more, in user space, before.
func (r *request) canBeLeftOut(why error) bool {
	var rejected *RejectedError
	return r.IfAvailable && (r.Reduced || !errors.As(why, &rejected))
}

// needsKey is what the answer depends on, besides what the request wants.
type needsKey struct {
	program string
	watched bool
}

func (c *Catalog) request(r Request) *request {
	return &request{Request: r, origin: c.origin(r.Probe), overflows: make(map[overflow]bool), needed: make(map[needsKey]needs)}
}

// allHooks returns its hooks, and the hook on the kernel's walk over its objects.
func (r *request) allHooks() []hook {
	if sd := r.origin.hook.seed; sd != nil {
		return append(slices.Clip(r.hooks), sd.visit)
	}
	return r.hooks
}

// needs reports whether a hook is one of the helpers that the fields need.
func (r *request) needs(helper string) bool {
	return slices.ContainsFunc(r.hooks[:len(r.hooks)-1], func(hk hook) bool { return hk.name == helper })
}

// wants reports whether the probe, or a field that the code reads, needs a hook besides the probe's own.
func (r *request) wants(hook string) bool {
	return slices.Contains(r.origin.hook.needs, hook) || slices.ContainsFunc(r.Probe.Fields, func(f *event.Field) bool {
		return r.stage(f) != stageNever && slices.Contains(r.origin.needs[f.Name], hook)
	})
}

// argAt returns the argument for a place: the request's own, or the processes of the session.
func (r *request) argAt(at place) Arg {
	if r.among != nil {
		return at.among(r.among, r.Arg)
	}
	return r.Arg
}

// stage returns the stage in which a field is captured.
func (r *request) stage(f *event.Field) byte {
	if r.withoutTasks && r.origin.ofTask[f.Name] {
		return stageNever
	}
	return r.Code.stage(f)
}

// readsCgroup reports whether it captures the cgroup.
func (r *request) readsCgroup() bool {
	return slices.ContainsFunc(r.Probe.Fields, func(f *event.Field) bool { return f.Type.Unit == event.Cgroup && r.Code.stage(f) != stageNever })
}

// readsTasks reports whether it captures fields that need the kernel's types.
func (r *request) readsTasks() bool {
	return slices.ContainsFunc(r.Probe.Fields, func(f *event.Field) bool { return r.origin.ofTask[f.Name] && r.stage(f) != stageNever })
}

// wanted returns the content of X_want: the stage in which the member at each offset is captured.
func (r *request) wanted() []byte {
	want := make([]byte, r.Probe.Size)
	for _, f := range r.Probe.Fields {
		want[f.Offset] = r.stage(f)
	}
	return want
}

// wantsEntry reports whether the code wants a field that is not known when the function returns (OF_CALL in bpf/trace.h).
func (r *request) wantsEntry() bool {
	return slices.ContainsFunc(r.Probe.Fields, func(f *event.Field) bool {
		return r.stage(f) != stageNever && !f.Common && !r.origin.atReturn[f.Name]
	})
}

// begins returns the first stage in which the code wants a field of the event's beginning, X_begins in trace.h.
func (r *request) begins() byte {
	first := byte(stageNever)
	for _, f := range r.Probe.Fields {
		if stage := r.stage(f); len(r.origin.needs[f.Name]) > 0 && stage != stageNever && (first == stageNever || stage < first) {
			first = stage
		}
	}
	return first
}

// constantSection holds the constants of the C code.
const constantSection = ".rodata"

// hostConstants are the constants of the C code that depend on the host.
type hostConstants struct {
	controller byte                   // cgroup_controller of trace.h
	arguments  func(name string) byte // of ARGUMENTS
	fullTables bool                   // tables_full of trace.h
}

// constantsFor returns the constants of the C code for some requests.
func constantsFor(object *ebpf.CollectionSpec, host hostConstants, requests ...*request) rewrite.Constants {
	values := bytes.Clone(object.Maps[constantSection].Contents[0].Value.([]byte))
	values[object.Variables["cgroup_controller"].Offset] = host.controller
	if host.fullTables {
		values[object.Variables["tables_full"].Offset] = 1
	}
	if shift := object.Variables["page_shift"]; shift != nil {
		values[shift.Offset] = byte(bits.TrailingZeros(uint(os.Getpagesize())))
	}
	if tick := object.Variables["tick_ns"]; tick != nil {
		binary.NativeEndian.PutUint32(values[tick.Offset:], tickLength())
	}
	if at := object.Variables["status_at"]; at != nil {
		values[at.Offset] = statusAt()
	}
	late := make(map[int64]func() byte)
	for name, v := range object.Variables {
		if of, ok := strings.CutSuffix(name, "_arguments"); ok && host.arguments != nil {
			late[int64(v.Offset)] = func() byte { return host.arguments(of) }
		}
	}
	for _, r := range requests {
		if in := object.Variables["in_windows"]; in != nil && r.inWindows {
			values[in.Offset] = 1
		}
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
	return rewrite.Constants{Values: values, Late: late}
}

// tickLength returns how long a tick of the kernel is, in nanoseconds: that is the resolution of its coarse clocks (posix_get_coarse_res,
// kernel/time/posix-timers.c). 0 is unknown.
func tickLength() uint32 {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return 0
	}
	return uint32(tick.Nsec)
}

// statusAt returns where status is in thread_info, which struct task_struct begins with, on x86: behind flags, and since 5.11 behind syscall_work
// (commit 3136b93c3fb2).
var statusAt = sync.OnceValue(func() byte {
	const since = 5<<16 | 11<<8
	if version, err := features.LinuxVersionCode(); err == nil && version < since {
		return 8
	}
	return 16
})

// has reports whether a program of the request that is attached is one of these.
func (r *request) has(is func(program) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.attached, func(a *attached) bool { return is(a.place) })
}

// gap counts a period in which events are missing.
func (r *request) gap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps++
}

// detach ends the stream of the request's events.
func (r *request) detach() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return detachAll(r.attached)
}

// reattach attaches the programs on functions again, and returns the functions.
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

// handOver detaches the request, except for helpers that other requests need: heir returns such a request, or nil. What the kernel has
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
