//go:build linux

package probes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// HostOptions say what is known of the host beyond what its kernel tells.
type HostOptions struct {
	// BTF are files, or folders of files, with the types of modules that carry none.
	BTF []string
}

// Host is what one kernel offers. Everything is asked for when it is first needed and never by the kernel's version.
type Host struct {
	catalog *Catalog
	given   []*btf.Spec // from HostOptions.BTF

	cache       *btf.Cache // of the kernel's BTF, for the library that loads programs
	vmlinux     func() (*btf.Spec, error)
	symbols     func() (map[string]bool, error)
	capability  func() (uint64, error)
	moduleTypes map[string]func() (*btf.Spec, error)
	preemption  func() preemption
}

// Detect looks at the running kernel.
func Detect(c *Catalog, o HostOptions) (*Host, error) {
	cache := btf.NewCache()
	h := &Host{
		catalog:     c,
		vmlinux:     func() (*btf.Spec, error) { return kernelBTF(cache) },
		cache:       cache,
		capability:  sync.OnceValues(effectiveCapabilities),
		moduleTypes: make(map[string]func() (*btf.Spec, error)),
		preemption:  sync.OnceValue(readPreemption),
	}
	h.symbols = sync.OnceValues(func() (map[string]bool, error) { return readSymbols("/proc/kallsyms", c.symbols()) })
	for _, m := range modules {
		for _, name := range m.all() {
			h.moduleTypes[name] = sync.OnceValues(func() (*btf.Spec, error) { return h.loadModuleTypes(name) })
		}
	}
	for _, path := range o.BTF {
		specs, err := readTypes(path)
		if err != nil {
			return nil, err
		}
		h.given = append(h.given, specs...)
	}
	return h, nil
}

// Release lets go of what is needed only to attach, tens of megabytes: the kernel's types and the programs of the catalog. Neither
// the host nor its catalog attaches anything afterwards.
func (h *Host) Release() {
	clear(h.catalog.objects)
	clear(h.catalog.types)
	*h = Host{}
}

// ErrNoBTF says that the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF), or that this process does not get to see it.
var ErrNoBTF = errors.New("this kernel shows no BTF in /sys/kernel/btf/vmlinux")

func kernelBTF(cache *btf.Cache) (*btf.Spec, error) {
	spec, err := cache.Kernel()
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil, ErrNoBTF
	}
	return spec, err
}

// readTypes reads a file of types, or all the files in a folder.
func readTypes(path string) ([]*btf.Spec, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("types: %w", err)
	}
	files := []string{path}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*")); err != nil {
			return nil, fmt.Errorf("types: %w", err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("types: no file in %s", path)
		}
	}
	var specs []*btf.Spec
	for _, file := range files {
		spec, err := btf.LoadSpec(file)
		if err != nil {
			return nil, fmt.Errorf("types: %s: %w (expected BTF, or an ELF file with a .BTF section; pahole --btf_encode_detached makes one)", file, err)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// loadModuleTypes reads the BTF of one module alone: that of any other, even a broken one, is none of our business.
func (h *Host) loadModuleTypes(name string) (*btf.Spec, error) {
	base, err := h.vmlinux()
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/sys/kernel/btf/" + name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	spec, err := btf.LoadSplitSpecFromReader(f, base)
	if err != nil {
		return nil, fmt.Errorf("BTF of module %s: %w", name, err)
	}
	return spec, nil
}

// loaded tells whether a module is loaded. What is built in need not show here.
func (m module) loaded() bool {
	if m.name == "" {
		return true
	}
	_, err := os.Stat("/sys/module/" + m.name)
	return err == nil
}

// builtIn reports whether the module is a part of the kernel image. /sys shows it then if it has parameters, without the state that a
// loaded one has (mod_sysfs_setup, kernel/module/sysfs.c); otherwise the list that belongs to the kernel has it.
func (m module) builtIn() bool {
	if m.name == "" {
		return false
	}
	if m.loaded() {
		_, err := os.Stat("/sys/module/" + m.name + "/initstate")
		return errors.Is(err, os.ErrNotExist)
	}
	release, err := KernelRelease()
	if err != nil {
		return false
	}
	list, err := os.ReadFile("/lib/modules/" + release + "/modules.builtin")
	return err == nil && bytes.Contains(list, []byte("/"+m.name+".ko\n"))
}

// describes reports whether the BTF at hand has all types that a module has: its own has them, and the kernel's has them if the module
// is built in.
func (h *Host) describes(m module) bool {
	if m.builtIn() {
		_, err := h.vmlinux()
		return err == nil
	}
	_, err := h.moduleTypes[m.name]()
	return err == nil
}

// outOfTree tells whether a module was not built with its kernel: then the types of the same name in vmlinux are not its own.
func (m module) outOfTree() bool {
	taint, err := os.ReadFile("/sys/module/" + m.name + "/taint")
	return err == nil && bytes.ContainsRune(taint, 'O')
}

// symbols returns the names that are looked up in the kernel's symbol table for any probe.
func (c *Catalog) symbols() map[string]bool {
	wanted := make(map[string]bool)
	for _, h := range allHooks() {
		for _, name := range []string{h.tracepoint, h.alias} {
			if name != "" {
				wanted["__tracepoint_"+name] = true
				wanted["__traceiter_"+name] = true
			}
		}
		for _, functions := range h.functions {
			for _, f := range functions {
				wanted[parseFunction(f).name] = true
			}
		}
	}
	return wanted
}

// readSymbols reads the names of a kallsyms file and keeps those that are wanted.
func readSymbols(path string, wanted map[string]bool) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := make(map[string]bool)
	r := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if name, _ := symbolOf(line); wanted[string(name)] {
			found[string(name)] = true
		}
	}
}

// hasTracepoint tells whether the kernel or a loaded module has a tracepoint.
func (h *Host) hasTracepoint(object, name string) (bool, error) {
	var event *btf.Typedef
	return h.has(object, "btf_trace_"+name, &event, "__tracepoint_"+name, "__traceiter_"+name)
}

// hasFunction tells whether the kernel or a loaded module has a function that can be probed.
func (h *Host) hasFunction(module, name string) (bool, error) {
	var f *btf.Func
	return h.has(module, name, &f, name)
}

// has looks for a type in the BTF of the kernel and of a module and its others, which have been read anyway. Only what is not there is
// looked up among the symbols: to list them takes the kernel longer than all the rest of the start.
func (h *Host) has(module, typeName string, typ any, symbols ...string) (bool, error) {
	if spec, err := h.vmlinux(); err == nil && spec.TypeByName(typeName, typ) == nil {
		return true, nil
	}
	for _, name := range modules[module].all() {
		if spec, err := h.moduleTypes[name](); err == nil && spec.TypeByName(typeName, typ) == nil {
			return true, nil
		}
	}
	found, err := h.symbols()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(symbols, func(name string) bool { return found[name] }), nil
}

// Capabilities by their names in capabilities(7).
const (
	capBPF      = "CAP_BPF"
	capPerfmon  = "CAP_PERFMON"
	capSysAdmin = "CAP_SYS_ADMIN"
)

var capabilityBits = map[string]uint{capBPF: unix.CAP_BPF, capPerfmon: unix.CAP_PERFMON, capSysAdmin: unix.CAP_SYS_ADMIN}

func effectiveCapabilities() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var caps uint64
		if n, _ := fmt.Sscanf(line, "CapEff:\t%x", &caps); n == 1 {
			return caps, nil
		}
	}
	return 0, fmt.Errorf("/proc/self/status: no CapEff")
}

// lacking returns those of the wanted capabilities that this process does not have. CAP_SYS_ADMIN stands for all of them.
func (h *Host) lacking(wanted []string) []string {
	held, err := h.capability()
	if err != nil || held&(1<<unix.CAP_SYS_ADMIN) != 0 {
		return nil
	}
	var missing []string
	for _, name := range wanted {
		if held&(1<<capabilityBits[name]) == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

// perfParanoid is the sysctl kernel.perf_event_paranoid.
func perfParanoid() int { return readInt("/proc/sys/kernel/perf_event_paranoid") }
