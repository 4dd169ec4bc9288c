//go:build linux

package probes

import (
	"errors"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"trace/probes/verbs"
)

// attachUprobe attaches a program to a function, at its entry or its return, in the processes of a reach.
func attachUprobe(prog *ebpf.Program, symbol string, atReturn bool, path string, offset uint64, to verbs.Reach) (io.Closer, error) {
	file, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	attach := file.Uprobe
	if atReturn {
		attach = file.Uretprobe
	}
	options := &link.UprobeOptions{Address: offset, PID: to.PID}
	is := whose(to, atReturn)
	if is == nil {
		return attach(symbol, prog, options)
	}
	of, err := newRestricted(prog, is)
	if err != nil {
		return nil, err
	}
	l, err := attach(symbol, of.program, options)
	if err != nil {
		return nil, errors.Join(err, of.Close())
	}
	of.link = l
	return of, nil
}

// whose returns code that jumps to "end" in processes that a reach leaves out; nil if the kernel calls the program in no other.
func whose(to verbs.Reach, atReturn bool) asm.Instructions {
	switch {
	case to.Whose == verbs.OneUsers, to.Whose == verbs.Others:
		skip := asm.JNE
		if to.Whose == verbs.Others {
			skip = asm.JEq
		}
		return asm.Instructions{
			asm.FnGetCurrentUidGid.Call(),
			asm.LSh.Imm(asm.R0, 32), // the user id is the lower half
			asm.RSh.Imm(asm.R0, 32),
			asm.LoadImm(asm.R7, int64(to.User), asm.DWord),
			skip.Reg(asm.R0, asm.R7, "end"),
		}
	case to.PID != 0 && atReturn:
		// At a return the kernel does not look at the process (uretprobe_perf_func, kernel/trace/trace_uprobe.c): with several processes of a file, each
		// return would count for all of them.
		return asm.Instructions{
			asm.FnGetCurrentPidTgid.Call(),
			asm.RSh.Imm(asm.R0, 32),
			asm.JNE.Imm(asm.R0, int32(to.PID), "end"),
		}
	}
	return nil
}

// restricted is a program that runs another one in some processes. That costs a call of a helper and a tail call, where the trap costs a hundred times as
// much.
type restricted struct {
	program *ebpf.Program
	calls   *ebpf.Map // the other program
	link    io.Closer
}

func newRestricted(of *ebpf.Program, is asm.Instructions) (_ *restricted, err error) {
	o := &restricted{}
	defer func() {
		if err != nil {
			err = errors.Join(explain(err), o.Close())
		}
	}()
	if o.calls, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1, Name: "restricted"}); err != nil {
		return nil, err
	}
	if err := o.calls.Put(uint32(0), of); err != nil {
		return nil, err
	}
	o.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "restricted", Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: append(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, is...),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, o.calls.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		),
	})
	return o, err
}

// Close detaches and releases the program.
func (o *restricted) Close() error {
	var err error
	if o.link != nil {
		err = o.link.Close()
	}
	return errors.Join(err, o.program.Close(), o.calls.Close())
}
