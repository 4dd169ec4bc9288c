//go:build linux

package probes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// A variant is one way to attach a hook: which programs of the object go where.
type variant struct {
	// name is raw_tp, tracepoint, fexit, kprobe or perf_event.
	name     string
	programs []program
	// caps are the capabilities that it needs.
	caps []string
	// check says why it cannot be used on this host, nil if it can. It may take a while, so it is asked only when it matters.
	check func() error
}

// A program of a variant, in the order of attaching: what sees a beginning comes before what sees its end, so that no end lacks
// its beginning.
type program struct {
	name     string // in the object
	kind     string // raw_tp, tracepoint, fentry, fexit, kprobe, kretprobe, perf_event
	target   string // tracepoint, kernel function or clock
	module   string // where the function is: a key of modules
	optional bool   // left out where there is no target
}

// instance names the program for its target.
func (p program) instance() string { return p.name + " on " + p.target }

func allHooks() []hook {
	hooks := append([]hook(nil), helpers...)
	for _, e := range table {
		hooks = append(hooks, e.hook)
		if e.hook.seed != nil {
			hooks = append(hooks, e.hook.seed.visit)
		}
	}
	return hooks
}

func helper(name string) hook {
	for _, h := range helpers {
		if h.name == name {
			return h
		}
	}
	panic("probes: no helper hook is called " + name)
}

// program returns a program of an object, or nil.
func (c *Catalog) program(object, name string) *btf.Func {
	var f *btf.Func
	if c.types[object].TypeByName(name, &f) != nil {
		return nil
	}
	return f
}

// variants returns the ways to attach a hook of an object, best first.
func (h *Host) variants(object string, hk hook) []variant {
	switch {
	case hk.sampled:
		return []variant{h.sampledVariant(hk)}
	case hk.tracepoint != "":
		return h.tracepointVariants(object, hk)
	}
	var found []variant
	for _, functions := range hk.functions {
		found = append(found, h.functionVariants(object, hk, functions)...)
	}
	return found
}

// variantsFor returns the ways to attach a hook for certain requests. If they want nothing of the programs of raw_tp for which the
// kernel's types are needed, it is the best: each event costs the same, and to read these types takes longer than all the rest of
// the start (15 of 24 ms).
func (h *Host) variantsFor(object string, hk hook, typeless func(program string) bool) []variant {
	all := h.variants(object, hk)
	i := slices.IndexFunc(all, func(v variant) bool { return v.name == "raw_tp" })
	if i < 0 || all[0].name == recordKind || !typeless(all[i].programs[0].name) {
		return all
	}
	v := all[i]
	v.check = func() error { return h.checkTypeless(object, v.caps, v.programs[0].target) }
	return slices.Concat([]variant{v}, all[:i], all[i+1:])
}

// sampledVariant needs nothing of the kernel's types.
func (h *Host) sampledVariant(hk hook) variant {
	v := variant{name: "perf_event", programs: []program{{name: "perf_event_" + hk.name, kind: "perf_event", target: clockName}}, caps: perfCaps()}
	v.check = func() error {
		if err := h.checkCaps(v.caps); err != nil {
			return err
		}
		return checkClocks()
	}
	return v
}

// perfCaps are the capabilities for programs on perf events: Debian's kernels know a level 3 of perf_event_paranoid, at which they
// are the administrator's.
func perfCaps() []string {
	if perfParanoid() > 2 {
		return []string{capSysAdmin}
	}
	return []string{capBPF, capPerfmon}
}

func (h *Host) tracepointVariants(object string, hk hook) []variant {
	var found []variant
	target := h.nameOf(object, hk)
	record := h.recordVariant(object, hk, target)
	if name := "raw_tp_" + hk.name; h.catalog.program(object, name) != nil {
		v := variant{name: "raw_tp", programs: []program{{name: name, kind: "raw_tp", target: target}}, caps: []string{capBPF, capPerfmon}}
		v.check = func() error {
			return h.check(object, v.caps, func() error {
				if record != nil {
					if err := h.checkTypes(object); err != nil {
						return err
					}
				}
				return h.checkTracepoint(object, target)
			})
		}
		found = append(found, v)
	}
	// The programs of perf events are not preempted.
	if h.preemptsTracepoints() {
		return append(record, found...)
	}
	return append(found, record...)
}

func (h *Host) checkTracepoint(object, name string) error {
	there, err := h.hasTracepoint(object, name)
	if err != nil {
		return fmt.Errorf("symbols of the kernel: %w", err)
	}
	if !there {
		return noTracepoint(name)
	}
	return nil
}

// check finds the first reason against a variant: the kernel's types, its module, its target, the capabilities.
func (h *Host) check(module string, caps []string, target func() error) error {
	if _, err := h.vmlinux(); err != nil && len(h.given) == 0 {
		return fmt.Errorf("%w (give a file with its types: --btf FILE)", err)
	}
	if err := target(); err != nil {
		return modules[module].explain(err)
	}
	return h.checkCaps(caps)
}

// checkTypeless does the same without the kernel's types. The kernel is asked for its tracepoint, and answers only who may attach.
func (h *Host) checkTypeless(object string, caps []string, tracepoint string) error {
	if err := h.checkCaps(caps); err != nil {
		return err
	}
	if err := checkRawTracepoint(tracepoint); err != nil {
		return modules[object].explain(err)
	}
	return nil
}

// explain says why a target is not there: as a rule its module is not.
func (m module) explain(err error) error {
	if !m.loaded() {
		return fmt.Errorf("module %s is not loaded (%s)", m.name, m.load)
	}
	return err
}

func (h *Host) checkCaps(caps []string) error {
	if missing := h.lacking(caps); len(missing) > 0 {
		return &PermissionError{Missing: missing}
	}
	return nil
}

// checkRawTracepoint asks the kernel whether it has a tracepoint, by a program that it would not attach there: one that reads more
// arguments than tracepoints have. To attach one that it takes, and to detach it, would make the next attaching wait for a grace
// period of RCU.
func checkRawTracepoint(name string) error {
	_ = rlimit.RemoveMemlock() // see openRing
	const beyond = 8 * 11      // the last argument that a raw tracepoint can have; those of the table have less
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R0, asm.R1, beyond, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	if err != nil {
		return explain(err)
	}
	defer prog.Close()
	lk, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: prog})
	switch {
	case err == nil:
		return lk.Close()
	case errors.Is(err, unix.EINVAL):
		return nil
	case errors.Is(err, unix.ENOENT):
		return noTracepoint(name)
	default:
		return explain(err)
	}
}

func noTracepoint(name string) error { return fmt.Errorf("this kernel has no tracepoint %s", name) }

// PermissionError says which capabilities are missing.
type PermissionError struct {
	Missing []string
}

func (e *PermissionError) Error() string {
	return "permission denied: needs " + strings.Join(e.Missing, " and ") + " (run as root, or grant with setcap or --cap-add)"
}

// Unwrap makes it the error that the kernel would give.
func (e *PermissionError) Unwrap() error { return unix.EPERM }

// functionVariants are fexit and kprobe on a list of functions. A function that the object has no fexit for is attached to as kprobe in
// both. Where tasks are preempted inside programs, kprobe is the better one, although it costs more: none of its events is skipped.
func (h *Host) functionVariants(object string, hk hook, functions []string) []variant {
	fexit, kprobe := variant{name: "fexit", caps: h.fexitCaps(functions)}, variant{name: "kprobe", caps: perfCaps()}
	traced := false
	for _, f := range functions {
		byKprobe := h.programsOn(object, hk, parseFunction(f), "kprobe", "kretprobe")
		kprobe.programs = append(kprobe.programs, byKprobe...)
		if byFexit := h.programsOn(object, hk, parseFunction(f), "fentry", "fexit"); len(byFexit) > 0 {
			fexit.programs, traced = append(fexit.programs, byFexit...), true
		} else {
			fexit.programs = append(fexit.programs, byKprobe...)
		}
	}
	module := hk.moduleOf(object)
	fexit.check = func() error {
		return h.check(module, fexit.caps, func() error {
			if err := h.checkFunctions(module, functions); err != nil {
				return err
			}
			return h.checkPrototypes(object, h.present(fexit.programs))
		})
	}
	kprobe.check = func() error {
		return h.check(module, kprobe.caps, func() error { return h.checkFunctions(module, functions) })
	}
	if !traced {
		return []variant{kprobe}
	}
	best := []variant{fexit, kprobe}
	if h.preemption().preempts() {
		slices.Reverse(best)
	}
	// Functions of modules whose types are not looked at have programs for kprobes only.
	return slices.DeleteFunc(best, func(v variant) bool { return len(v.programs) == 0 })
}

// checkFunctions names the functions that have to be there and are not.
func (h *Host) checkFunctions(module string, functions []string) error {
	var missing []string
	for _, text := range functions {
		f := parseFunction(text)
		if f.optional {
			continue
		}
		there, err := h.hasFunction(module, f.name)
		if err != nil {
			return fmt.Errorf("symbols of the kernel: %w", err)
		}
		if !there {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this kernel has no function %s", strings.Join(missing, ", "))
	}
	return nil
}

// present leaves out the optional programs whose target is not there.
func (h *Host) present(programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
		if !p.optional {
			return false
		}
		there, err := h.hasFunction(p.module, p.target)
		return err != nil || !there
	})
}

// programsOn returns the programs of a hook on one function that the object has, entry first.
func (h *Host) programsOn(object string, hk hook, f kernelFunc, kinds ...string) []program {
	var found []program
	module := hk.moduleOf(object)
	for _, kind := range kinds {
		for _, source := range []string{f.name, f.shared} {
			if name := h.programOn(object, module, kind+"_"+hk.name+"__"+source, f.name); name != "" {
				found = append(found, program{name: name, kind: kind, target: f.name, module: module, optional: f.optional})
			}
		}
	}
	return found
}

// programOn returns the name of the program on a function, or "" if the object has none: of those for a certain kind of result
// (ON_RETURN) the one that the kernel's prototype asks for, and the one without where there is no prototype. An fexit has none for
// that case; then it is any, and checkPrototypes tells.
func (h *Host) programOn(object, module, name, function string) string {
	shapes := slices.DeleteFunc([]string{"int", "pointer", "void"}, func(kind string) bool {
		return h.catalog.program(object, name+"__"+kind) == nil
	})
	base := name
	if h.catalog.program(object, base) == nil {
		base = ""
	}
	if len(shapes) == 0 {
		return base
	}
	if proto, err := h.prototype(module, function); err == nil {
		if kind := resultOf(proto); slices.Contains(shapes, kind) {
			return name + "__" + kind
		}
	}
	if base == "" {
		return name + "__" + shapes[0]
	}
	return base
}

// resultOf says what a function returns, in the words of ON_RETURN.
func resultOf(proto *btf.FuncProto) string {
	switch btf.UnderlyingType(proto.Return).(type) {
	case *btf.Pointer:
		return "pointer"
	case *btf.Void:
		return "void"
	default:
		return "int"
	}
}

// fexitCaps: to refer to the BTF of a module takes CAP_SYS_ADMIN (BPF_BTF_GET_FD_BY_ID).
func (h *Host) fexitCaps(functions []string) []string {
	vmlinux, err := h.vmlinux()
	if err != nil {
		return []string{capSysAdmin}
	}
	for _, f := range functions {
		var fn *btf.Func
		if vmlinux.TypeByName(parseFunction(f).name, &fn) != nil {
			return []string{capSysAdmin}
		}
	}
	return []string{capBPF, capPerfmon}
}

// checkPrototypes compares the number of arguments, and the kind of result, that each program counts on with the kernel's prototype.
func (h *Host) checkPrototypes(object string, programs []program) error {
	for _, p := range programs {
		if p.kind != "fentry" && p.kind != "fexit" {
			continue
		}
		proto, err := h.prototype(p.module, p.target)
		if err != nil {
			return err
		}
		tags := h.catalog.program(object, p.name).Tags
		if want := tagged(tags, "args:"); want != strconv.Itoa(len(proto.Params)) {
			return fmt.Errorf("%s has %d parameters in this kernel, expected %s", p.target, len(proto.Params), want)
		}
		if want := tagged(tags, "returns:"); want != "" && want != resultOf(proto) {
			return fmt.Errorf("%s returns %s in this kernel, expected %s", p.target, resultOf(proto), want)
		}
	}
	return nil
}

func (h *Host) prototype(module, function string) (*btf.FuncProto, error) {
	fn, err := h.kernelFunction(module, function)
	if err != nil {
		return nil, err
	}
	proto, ok := fn.Type.(*btf.FuncProto)
	if !ok {
		return nil, fmt.Errorf("BTF of %s is no function", function)
	}
	return proto, nil
}

func (h *Host) kernelFunction(module, name string) (*btf.Func, error) {
	vmlinux, err := h.vmlinux()
	if err != nil {
		return nil, fmt.Errorf("fexit needs the kernel's own BTF: %w", err)
	}
	var fn *btf.Func
	if err := vmlinux.TypeByName(name, &fn); !errors.Is(err, btf.ErrNotFound) {
		return fn, err
	}
	var without []string
	for _, m := range modules[module].all() {
		spec, err := h.moduleTypes[m]()
		switch {
		case errors.Is(err, os.ErrNotExist):
			without = append(without, m)
		case err != nil:
			return nil, err
		case spec.TypeByName(name, &fn) == nil:
			return fn, nil
		}
	}
	if len(without) > 0 {
		return nil, fmt.Errorf("module %s has no BTF", without[0])
	}
	return nil, fmt.Errorf("BTF of module %s has no %s", strings.Join(modules[module].all(), ", "), name)
}
