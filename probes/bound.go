//go:build linux

package probes

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"trace/probes/kernel"
)

// loadBound loads a program that is bound to a function or to a tracepoint of the kernel's types. The library can do that, too. For the id of
// the target it makes an index of all types of the kernel, and then of each module, until it finds the name: a start takes 41 ms of CPU time
// with it, and 27 without. ok is false if the program has no such target, or needs what only the library does.
func (l *loader) loadBound(spec *ebpf.ProgramSpec, types *btf.Spec) (p *ebpf.Program, ok bool, err error) {
	target, ok := l.target(spec)
	if !ok || slices.ContainsFunc(spec.Instructions, func(ins asm.Instruction) bool { return l.isLibrarys(ins, types) }) {
		return nil, false, nil
	}
	module, err := l.describing(target.Module)
	if err != nil {
		return nil, true, err
	}
	b := bound{spec: spec, insns: slices.Clone(spec.Instructions)}
	if err := b.relocate(types); err != nil {
		return nil, true, err
	}
	if err := b.use(l.maps); err != nil {
		return nil, true, err
	}
	p, err = b.load(target.ID, module)
	return p, true, err
}

// describing returns the types of a module, nil for the kernel's own, which need none. To find them, the kernel's list of all types of modules
// and of programs is read.
func (l *loader) describing(module string) (*btf.Handle, error) {
	if module == "" || l.described[module] != nil {
		return l.described[module], nil
	}
	h, err := btf.FindHandle(func(info *btf.HandleInfo) bool { return info.IsModule() && info.Name == module })
	if err != nil {
		return nil, err
	}
	l.described[module] = h
	return h, nil
}

// release releases what only loading needs.
func (l *loader) release() error { return closeAll(slices.Collect(maps.Values(l.described))) }

// target returns what the program is bound to.
func (l *loader) target(spec *ebpf.ProgramSpec) (t kernel.Target, ok bool) {
	if spec.Type != ebpf.Tracing || spec.AttachTo == "" {
		return t, false
	}
	switch spec.AttachType {
	case ebpf.AttachTraceRawTp:
		return l.kernel.Tracepoint(spec.AttachTo, l.modules)
	case ebpf.AttachTraceFEntry, ebpf.AttachTraceFExit:
		return l.kernel.Function(spec.AttachTo, l.modules)
	}
	return t, false
}

// isLibrarys reports whether an instruction has to be resolved by the library: the address of a variable of the kernel, a function of the
// kernel, a map that is not one of the loader's, or a relocation without these types.
func (l *loader) isLibrarys(ins asm.Instruction, types *btf.Spec) bool {
	switch {
	case loadsAddress(ins), ins.IsKfuncCall():
		return true
	case ins.IsLoadFromMap() && ins.Reference() != "":
		return l.maps[ins.Reference()] == nil
	}
	return types == nil && btf.CORERelocationMetadata(&ins) != nil
}

// A bound program is about to be loaded for its target.
type bound struct {
	spec  *ebpf.ProgramSpec
	insns asm.Instructions
	types btf.Builder // the program's own
}

// relocate adapts the program to these types of the kernel (CO-RE).
func (b *bound) relocate(types *btf.Spec) error {
	var relocations []*btf.CORERelocation
	var at []*asm.Instruction
	for i := range b.insns {
		if r := btf.CORERelocationMetadata(&b.insns[i]); r != nil {
			relocations, at = append(relocations, r), append(at, &b.insns[i])
		}
	}
	if len(relocations) == 0 {
		return nil
	}
	fixups, err := btf.CORERelocate(relocations, []*btf.Spec{types}, b.spec.ByteOrder, b.types.Add)
	if err != nil {
		return err
	}
	for i, f := range fixups {
		if err := f.Apply(at[i]); err != nil {
			return err
		}
	}
	return nil
}

// use lets the program refer to maps.
func (b *bound) use(maps map[string]*ebpf.Map) error {
	for i := range b.insns {
		ins := &b.insns[i]
		if !ins.IsLoadFromMap() || ins.Reference() == "" {
			continue
		}
		if err := ins.AssociateMap(maps[ins.Reference()]); err != nil {
			return fmt.Errorf("map %s: %w", ins.Reference(), err)
		}
	}
	return nil
}

// programAttributes is the part of union bpf_attr for BPF_PROG_LOAD up to the target (include/uapi/linux/bpf.h).
type programAttributes struct {
	kind, length                       uint32
	code, license                      uint64
	logLevel, logSize                  uint32
	log                                uint64
	kernelVersion, flags               uint32
	name                               [unix.BPF_OBJ_NAME_LEN]byte
	device, attachType                 uint32
	typesFD, functionSize              uint32
	functions                          uint64
	functionCount, lineSize            uint32
	lines                              uint64
	lineCount, targetID, targetTypesFD uint32
	_                                  uint32
}

// statisticsLog has room for the statistics of a program, and for the reason why it has too many paths.
const statisticsLog = 1 << 16

// load loads the program for the target that has this id in the types of a module, or of the kernel if that is nil.
func (b *bound) load(target btf.TypeID, module *btf.Handle) (*ebpf.Program, error) {
	functions, lines, err := btf.MarshalExtInfos(b.insns, &b.types)
	if err != nil {
		return nil, err
	}
	var code bytes.Buffer
	if err := b.insns.Marshal(&code, b.spec.ByteOrder); err != nil {
		return nil, err
	}
	log := make([]byte, statisticsLog)
	var pins runtime.Pinner
	defer pins.Unpin()
	pin := func(data []byte) uint64 {
		if len(data) == 0 {
			return 0
		}
		pins.Pin(&data[0])
		return uint64(uintptr(unsafe.Pointer(&data[0])))
	}
	a := programAttributes{
		kind: uint32(b.spec.Type), length: uint32(code.Len() / asm.InstructionSize), code: pin(code.Bytes()), license: pin(append([]byte(b.spec.License), 0)),
		logLevel: uint32(ebpf.LogLevelStats), logSize: statisticsLog, log: pin(log), flags: b.spec.Flags, attachType: uint32(b.spec.AttachType),
		functionSize: btf.FuncInfoSize, functions: pin(functions), functionCount: uint32(len(functions)) / btf.FuncInfoSize,
		lineSize: btf.LineInfoSize, lines: pin(lines), lineCount: uint32(len(lines)) / btf.LineInfoSize,
		targetID: uint32(target),
	}
	if module != nil {
		a.targetTypesFD = uint32(module.FD())
	}
	copy(a.name[:len(a.name)-1], b.spec.Name)
	if !b.types.Empty() {
		own, err := btf.NewHandle(&b.types)
		if err != nil {
			return nil, err
		}
		defer own.Close() // the program keeps them
		a.typesFD = uint32(own.FD())
	}
	fd, err := a.load()
	if err != nil {
		return nil, &ebpf.VerifierError{Cause: err, Log: strings.Split(strings.TrimSpace(unix.ByteSliceToString(log)), "\n")}
	}
	return ebpf.NewProgramFromFD(fd)
}

// load asks the kernel once more if a signal interrupts the verifier.
func (a *programAttributes) load() (fd int, err error) {
	for range 5 {
		n, _, number := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a))
		if number == 0 {
			return int(n), nil
		}
		err = number
		if number != unix.EAGAIN && number != unix.EINTR {
			break
		}
	}
	return 0, err
}
