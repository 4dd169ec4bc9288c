package probes

import (
	"runtime"
	"slices"
	"time"
)

// A place is where in a kernel the programs of a hook run. The catalog has values of it: a [tracepoint], [functions], a [clock], a [datapath],
// [openings] or [readings].
type place interface {
	// targets are the names of its functions and tracepoints, in all kernels.
	targets() []string
	// stack names what stands between a program there and what it traces: see [Tracing].
	stack() (functions []string, through bool)
	// sampled reports whether programs run there at a rate that a request sets.
	sampled() bool
	// period returns the usual time from one event to the next, and the least one, if user space makes the events again and again; 0 otherwise.
	period() (usual, least time.Duration)
	// among returns the argument that attaches there to some processes only, for a request with an argument; the latter if none does.
	among(c *chosen, own Arg) Arg
	attachable
}

// A tracepoint is attached to as raw_tp or tracepoint, whichever programs the object has.
type tracepoint struct {
	name string
	// alias is its name in other kernels.
	alias string
	// others are more tracepoints of the same event, each with a raw_tp program of its own.
	others []string
}

func (tp tracepoint) targets() []string { return append([]string{tp.name}, tp.others...) }

func (tp tracepoint) stack() (functions []string, through bool) {
	functions = []string{"bpf_trace_run*"}
	for _, name := range tp.targets() {
		functions = append(functions, "__bpf_trace_"+name, "__traceiter_"+name)
	}
	return functions, true
}

func (tracepoint) sampled() bool { return false }

func (tracepoint) period() (usual, least time.Duration) { return 0, 0 }

func (tracepoint) among(_ *chosen, own Arg) Arg { return own }

// functions are attached to as fexit or kprobe: the first alternative whose functions this kernel has.
type functions [][]kernelFunc

// A kernelFunc is a function that a hook is attached to.
type kernelFunc struct {
	name string
	// shared is the C name of programs that several functions share: a whole event is too much code to have once for each.
	shared string
	// optional functions are used where they exist.
	optional bool
	// interrupts call it, besides or instead of tasks.
	interrupts bool
}

// fn is a function that an alternative needs.
func fn(name string) kernelFunc { return kernelFunc{name: name} }

// opt is a function that an alternative can do without.
func opt(name string) kernelFunc { return kernelFunc{name: name, optional: true} }

// sys is the function of a system call. Its name begins with the architecture's (asm/syscall_wrapper.h); its programs have the call's name.
func sys(name string) kernelFunc {
	return fn(map[string]string{"amd64": "__x64_sys_", "arm64": "__arm64_sys_"}[runtime.GOARCH] + name).as(name)
}

// sysCompat is the function of a system call that 32-bit processes enter on x86; on arm64 it is the same as of others.
func sysCompat(name string) kernelFunc {
	return opt("__ia32_sys_" + name).as(name)
}

// inInterrupts marks the function as one that interrupts call.
func (f kernelFunc) inInterrupts() kernelFunc {
	f.interrupts = true
	return f
}

// as makes the function use programs that it shares with others.
func (f kernelFunc) as(shared string) kernelFunc {
	f.shared = shared
	return f
}

func (fs functions) targets() (names []string) {
	for _, f := range slices.Concat(fs...) {
		names = append(names, f.name)
	}
	return names
}

func (fs functions) stack() (functions []string, through bool) {
	for _, name := range fs.targets() {
		if !slices.Contains(functions, name) {
			functions = append(functions, name)
		}
	}
	return functions, false
}

func (functions) sampled() bool { return false }

func (functions) period() (usual, least time.Duration) { return 0, 0 }

func (functions) among(_ *chosen, own Arg) Arg { return own }

// A clock ticks on each CPU at the rate that a request sets, see [Rate].
type clock struct{}

func (clock) targets() []string { return nil }

// stack returns nothing: the stack of a sample begins with what is sampled.
func (clock) stack() (functions []string, through bool) { return nil, false }

func (clock) sampled() bool { return true }

func (clock) period() (usual, least time.Duration) { return 0, 0 }

func (clock) among(_ *chosen, own Arg) Arg { return own }

// A datapath is calls of libibverbs, by the names of their functions in struct ibv_context_ops, struct ibv_qp_ex and struct ibv_cq_ex. Each is in the libraries
// of providers.
type datapath []string

func (datapath) targets() []string { return nil }

// stack returns nothing: the functions are in user space.
func (datapath) stack() (functions []string, through bool) { return nil, false }

func (datapath) sampled() bool { return false }

func (datapath) period() (usual, least time.Duration) { return 0, 0 }

func (datapath) among(c *chosen, _ Arg) Arg { return c }
