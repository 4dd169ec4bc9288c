package probes

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// A variant is one way to attach a hook: which programs of the object go where.
type variant struct {
	// name is tp_btf, raw_tp, fexit or kprobe.
	name     string
	programs []program
	// caps are the capabilities that it needs.
	caps []string
	// err says why it cannot be used on this host, nil if it can.
	err error
}

// A program of a variant, in the order of attaching: what sees a beginning comes before what sees its end, so that no end lacks
// its beginning.
type program struct {
	name   string // in the object
	kind   string // tp_btf, raw_tp, fentry, fexit, kprobe, kretprobe
	target string // tracepoint or kernel function
}

func allHooks() []hook {
	hooks := append([]hook(nil), helpers...)
	for _, e := range table {
		hooks = append(hooks, e.hook)
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

// variants returns the ways to attach a hook of an object, best first.
func (h *Host) variants(object string, hk hook) []variant {
	if hk.tracepoint != "" {
		return h.tracepointVariants(object, hk)
	}
	var found []variant
	for _, functions := range hk.functions {
		found = append(found, h.functionVariants(object, hk, functions)...)
	}
	return found
}

func (h *Host) tracepointVariants(object string, hk hook) []variant {
	var found []variant
	for _, kind := range []string{"tp_btf", "raw_tp"} {
		name := kind + "_" + hk.name
		if h.catalog.specs[object].Programs[name] == nil {
			continue
		}
		v := variant{name: kind, programs: []program{{name, kind, hk.tracepoint}}, caps: []string{capBPF, capPerfmon}}
		v.err = h.check(object, v, func() error { return h.checkTracepoint(hk.tracepoint, kind) })
		found = append(found, v)
	}
	return found
}

func (h *Host) checkTracepoint(name, kind string) error {
	there, err := h.hasTracepoint(name)
	if err != nil {
		return fmt.Errorf("symbols of the kernel: %w", err)
	}
	if !there {
		return fmt.Errorf("this kernel has no tracepoint %s", name)
	}
	if kind == "tp_btf" {
		// The file, not h.vmlinux: types that were found elsewhere are not what the kernel's verifier has.
		if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
			return fmt.Errorf("tp_btf needs the kernel's own BTF: %w", err)
		}
	}
	return nil
}

// check finds the first reason against a variant: the kernel's types, its module, its target, the capabilities.
func (h *Host) check(object string, v variant, target func() error) error {
	if _, err := h.vmlinux(); err != nil && len(h.given) == 0 {
		return fmt.Errorf("%w (give a file with its types: --btf FILE)", err)
	}
	if err := target(); err != nil {
		if m := modules[object]; !m.loaded() {
			return fmt.Errorf("module %s is not loaded (%s)", m.name, m.load)
		}
		return err
	}
	if missing := h.lacking(v.caps); len(missing) > 0 {
		return &PermissionError{Missing: missing}
	}
	return nil
}

// PermissionError says which capabilities are missing.
type PermissionError struct {
	Missing []string
}

func (e *PermissionError) Error() string {
	return "permission denied: needs " + strings.Join(e.Missing, " and ") + " (run as root, or grant with setcap or --cap-add)"
}

// Unwrap makes it the error that the kernel would give.
func (e *PermissionError) Unwrap() error { return unix.EPERM }

// functionVariants are fexit and kprobe on a list of functions, of which those that end in ? need not be there.
func (h *Host) functionVariants(object string, hk hook, functions []string) []variant {
	present, err := h.presentFunctions(functions)
	fexit, kprobe := variant{name: "fexit"}, variant{name: "kprobe"}
	for _, f := range present {
		fexit.programs = append(fexit.programs, h.programsOn(object, hk, f, "fentry", "fexit")...)
		kprobe.programs = append(kprobe.programs, h.programsOn(object, hk, f, "kprobe", "kretprobe")...)
	}
	fexit.caps = h.fexitCaps(present)
	kprobe.caps = []string{capBPF, capPerfmon}
	if perfParanoid() > 2 {
		kprobe.caps = []string{capSysAdmin}
	}
	fexit.err = h.check(object, fexit, func() error {
		if err != nil {
			return err
		}
		return h.checkPrototypes(object, fexit.programs)
	})
	kprobe.err = h.check(object, kprobe, func() error { return err })
	return []variant{fexit, kprobe}
}

func (h *Host) presentFunctions(functions []string) ([]string, error) {
	symbols, err := h.symbols()
	if err != nil {
		return nil, fmt.Errorf("symbols of the kernel: %w", err)
	}
	var present, missing []string
	for _, f := range functions {
		name, optional := strings.CutSuffix(f, "?")
		switch {
		case symbols[name]:
			present = append(present, name)
		case !optional:
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return present, fmt.Errorf("this kernel has no function %s", strings.Join(missing, ", "))
	}
	return present, nil
}

// programsOn returns the programs of a hook on one function that the object has, entry first.
func (h *Host) programsOn(object string, hk hook, function string, kinds ...string) []program {
	var found []program
	for _, kind := range kinds {
		name := kind + "_" + hk.name + "__" + function
		if h.catalog.specs[object].Programs[name] != nil {
			found = append(found, program{name, kind, function})
		}
	}
	return found
}

// fexitCaps: to refer to the BTF of a module takes CAP_SYS_ADMIN (BPF_BTF_GET_FD_BY_ID).
func (h *Host) fexitCaps(functions []string) []string {
	vmlinux, err := h.vmlinux()
	if err != nil {
		return []string{capSysAdmin}
	}
	for _, f := range functions {
		var fn *btf.Func
		if vmlinux.TypeByName(f, &fn) != nil {
			return []string{capSysAdmin}
		}
	}
	return []string{capBPF, capPerfmon}
}

// checkPrototypes compares the number of arguments that each program counts on with the kernel's prototype.
func (h *Host) checkPrototypes(object string, programs []program) error {
	for _, p := range programs {
		fn, err := h.kernelFunction(object, p.target)
		if err != nil {
			return err
		}
		proto, ok := fn.Type.(*btf.FuncProto)
		if !ok {
			return fmt.Errorf("BTF of %s is no function", p.target)
		}
		var self *btf.Func
		if err := h.catalog.specs[object].Types.TypeByName(p.name, &self); err != nil {
			return fmt.Errorf("program %s: %w", p.name, err)
		}
		if want := tagged(self.Tags, "args:"); want != strconv.Itoa(len(proto.Params)) {
			return fmt.Errorf("%s has %d parameters in this kernel, expected %s", p.target, len(proto.Params), want)
		}
	}
	return nil
}

func (h *Host) kernelFunction(object, name string) (*btf.Func, error) {
	vmlinux, err := h.vmlinux()
	if err != nil {
		return nil, fmt.Errorf("fexit needs the kernel's own BTF: %w", err)
	}
	var fn *btf.Func
	if err := vmlinux.TypeByName(name, &fn); !errors.Is(err, btf.ErrNotFound) {
		return fn, err
	}
	m := modules[object]
	spec, err := h.moduleTypes[m.name]()
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("module %s has no BTF", m.name)
	}
	if err != nil {
		return nil, err
	}
	if err := spec.TypeByName(name, &fn); err != nil {
		return nil, fmt.Errorf("BTF of module %s has no %s: %w", m.name, name, err)
	}
	return fn, nil
}
