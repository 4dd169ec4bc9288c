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
	if to.Whose == verbs.Everyones {
		return attach(symbol, prog, options)
	}
	of, err := newOfUsers(prog, to)
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

// ofUsers is a program that runs another one in processes of some users. That costs a call of a helper and a tail call, where the trap costs a hundred
// times as much.
type ofUsers struct {
	program *ebpf.Program
	calls   *ebpf.Map // the other program
	link    io.Closer
}

func newOfUsers(of *ebpf.Program, to verbs.Reach) (_ *ofUsers, err error) {
	o := &ofUsers{}
	defer func() {
		if err != nil {
			err = errors.Join(explain(err), o.Close())
		}
	}()
	if o.calls, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1, Name: "of_users"}); err != nil {
		return nil, err
	}
	if err := o.calls.Put(uint32(0), of); err != nil {
		return nil, err
	}
	skip := asm.JNE
	if to.Whose == verbs.Others {
		skip = asm.JEq
	}
	o.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "of_users", Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.FnGetCurrentUidGid.Call(),
			asm.LSh.Imm(asm.R0, 32), // the user id is the lower half
			asm.RSh.Imm(asm.R0, 32),
			asm.LoadImm(asm.R7, int64(to.User), asm.DWord),
			skip.Reg(asm.R0, asm.R7, "end"),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, o.calls.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		},
	})
	return o, err
}

// Close detaches and releases the program.
func (o *ofUsers) Close() error {
	var err error
	if o.link != nil {
		err = o.link.Close()
	}
	return errors.Join(err, o.program.Close(), o.calls.Close())
}
