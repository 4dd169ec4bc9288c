//go:build linux

package probes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
)

func (fs functions) symbols() []string { return fs.targets() }

func (functions) accepts(a Arg) error { return acceptsNone(a) }

// variants returns the variants of all alternatives.
func (fs functions) variants(s *hostHook) (found []variant) {
	for _, alternative := range fs {
		found = append(found, alternativeVariants(s, alternative)...)
	}
	return found
}

// alternativeVariants are fexit and kprobe on a list of functions. A function without an fexit program in the object is attached by kprobe
// in both. Where tasks are preempted inside programs kprobe comes first, except for functions that interrupts call, see
// [kernel.Preemption].
func alternativeVariants(s *hostHook, alternative []kernelFunc) []variant {
	fexit := onFunctions(s, trampoline{atReturn: true}, alternative, func(kernelFunc) bool { return true })
	breakpoint := onFunctions(s, kprobe{}, alternative, func(kernelFunc) bool { return false })
	if !fexit.has(isTrampoline) {
		return []variant{breakpoint}
	}
	best := s.leastSkipped([]variant{fexit, breakpoint})
	if best[0].way == breakpoint.way && !s.PreemptsInterrupts() {
		mixed := onFunctions(s, kprobe{}, alternative, func(f kernelFunc) bool { return f.interrupts })
		switch {
		case !mixed.has(isKprobe):
			best = []variant{fexit, breakpoint}
		case mixed.has(isTrampoline):
			best = slices.Insert(best, 0, mixed)
		}
	}
	// Functions of modules without known types have programs for kprobes only.
	return slices.DeleteFunc(best, func(v variant) bool { return len(v.programs) == 0 })
}

// onFunctions is the variant that attaches to some functions as fexit, where the object has that, and to the others as kprobe.
func onFunctions(s *hostHook, w way, alternative []kernelFunc, traced func(kernelFunc) bool) variant {
	v := variant{way: w}
	for _, f := range alternative {
		byFexit := programsOn(s, f, trampoline{}, trampoline{atReturn: true})
		if traced(f) && len(byFexit) > 0 {
			v.programs = append(v.programs, byFexit...)
		} else {
			v.programs = append(v.programs, programsOn(s, f, kprobe{}, kprobe{atReturn: true})...)
		}
	}
	targets := functions{alternative}.targets()
	v.caps = w.needs(s.Kernel, targets)
	if !isTrampoline(w) && v.has(isTrampoline) {
		v.caps = append(v.caps, trampoline{}.needs(s.Kernel, targets)...)
		slices.Sort(v.caps)
		v.caps = slices.Compact(v.caps)
	}
	v.check = func() error {
		return s.check(v.caps, func() error {
			if err := checkFunctions(s, alternative); err != nil {
				return err
			}
			if v.has(isKprobe) {
				if err := s.HasKprobes(); err != nil {
					return err
				}
			}
			return checkPrototypes(s, present(s.Kernel, v.programs))
		})
	}
	return v
}

// has reports whether a variant has a program of some way.
func (v variant) has(isIt func(way) bool) bool {
	return slices.ContainsFunc(v.programs, func(p program) bool { return isIt(p.way) })
}

func isTrampoline(w way) bool {
	_, ok := w.(trampoline)
	return ok
}

func isKprobe(w way) bool {
	_, ok := w.(kprobe)
	return ok
}

func isKretprobe(w way) bool { return w == way(kprobe{atReturn: true}) }

// checkFunctions returns an error that names the required functions that are missing.
func checkFunctions(s *hostHook, alternative []kernelFunc) error {
	var missing []string
	for _, f := range alternative {
		if f.optional {
			continue
		}
		there, err := s.HasFunction(s.module(), f.name)
		if err != nil {
			return err
		}
		if !there {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return &noFunctionError{missing}
	}
	return nil
}

// programsOn returns the programs of a hook on one function that the object has, in the order of the ways.
func programsOn(s *hostHook, f kernelFunc, ways ...way) (found []program) {
	for _, w := range ways {
		for _, suffix := range []string{f.name, f.shared} {
			if name := programOn(s, w.String()+"_"+s.hook.name+"__"+suffix, f.name); name != "" {
				found = append(found, program{name: name, way: w, target: f.name, module: s.module(), optional: f.optional})
			}
		}
	}
	return found
}

// programOn returns the name of the program on a function, or "" if the object has none. Among programs for certain kinds of results
// (ON_RETURN) it is the one for the kernel's prototype, or the one without a prototype. An fexit has no program for that case; then it is
// any of them, and checkPrototypes returns an error.
func programOn(s *hostHook, name, function string) string {
	shapes := slices.DeleteFunc([]string{"int", "pointer", "void"}, func(kind string) bool {
		return s.object.program(name+"__"+kind) == nil
	})
	base := name
	if s.object.program(base) == nil {
		base = ""
	}
	if len(shapes) == 0 {
		return base
	}
	if proto, err := s.Prototype(s.module(), function); err == nil {
		if kind := resultOf(proto); slices.Contains(shapes, kind) {
			return name + "__" + kind
		}
	}
	if base == "" {
		return name + "__" + shapes[0]
	}
	return base
}

// resultOf returns the kind of a function's result, in the words of ON_RETURN.
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

// checkPrototypes compares the number of arguments and the kind of result that each program expects with the kernel's prototype. A program
// that depends on neither expects nothing.
func checkPrototypes(s *hostHook, programs []program) error {
	for _, p := range programs {
		if !isTrampoline(p.way) {
			continue
		}
		proto, err := s.Prototype(p.module, p.target)
		if err != nil {
			return err
		}
		tags := s.object.program(p.name).Tags
		if want := strings.Fields(tagged(tags, "args:")); len(want) > 0 && !slices.Contains(want, strconv.Itoa(len(proto.Params))) {
			return fmt.Errorf("%s has %d parameters in this kernel, expected %s", p.target, len(proto.Params), strings.Join(want, " or "))
		}
		if want := tagged(tags, "returns:"); want != "" && want != resultOf(proto) {
			return fmt.Errorf("%s returns %s in this kernel, expected %s", p.target, resultOf(proto), want)
		}
	}
	return nil
}
