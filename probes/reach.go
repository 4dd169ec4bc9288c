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
func attachUprobe(prog *ebpf.Program, symbol string, atReturn bool, path string, offset uint64, to verbs.Reach) (_ verbs.Attached, err error) {
	var only *oneUser
	if to.OneUser {
		if only, err = newOneUser(prog, to.User); err != nil {
			return nil, err
		}
		prog = only.program
	}
	l, err := linkUprobe(prog, symbol, atReturn, path, &link.UprobeOptions{Address: offset, PID: to.PID})
	if err != nil {
		return nil, errors.Join(err, only.Close())
	}
	return reached{l, only}, nil
}

func linkUprobe(prog *ebpf.Program, symbol string, atReturn bool, path string, o *link.UprobeOptions) (io.Closer, error) {
	file, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	if atReturn {
		return file.Uretprobe(symbol, prog, o)
	}
	return file.Uprobe(symbol, prog, o)
}

// reached is what is attached, for one user only or for all.
type reached struct {
	io.Closer
	only *oneUser // nil: for all
}

// Widen lets the program run for all users.
func (r reached) Widen() error { return r.only.widen() }

// Close detaches it.
func (r reached) Close() error { return errors.Join(r.Closer.Close(), r.only.Close()) }

// A oneUser is a program that runs another one in processes of one user, by their real user id, and widened in all. It costs a call of a helper and a
// tail call, beside a trap that costs a hundred times as much.
type oneUser struct {
	program *ebpf.Program
	user    *ebpf.Map // the user id, or everyUser
	calls   *ebpf.Map // the other program
}

// everyUser is no user id: they have 32 bits.
const everyUser = 1 << 32

func newOneUser(of *ebpf.Program, user uint32) (_ *oneUser, err error) {
	o := &oneUser{}
	defer func() {
		if err != nil {
			err = errors.Join(explain(err), o.Close())
		}
	}()
	if o.user, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Name: "one_user"}); err != nil {
		return nil, err
	}
	if o.calls, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1, Name: "one_user_calls"}); err != nil {
		return nil, err
	}
	if err := errors.Join(o.user.Put(uint32(0), uint64(user)), o.calls.Put(uint32(0), of)); err != nil {
		return nil, err
	}
	o.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "one_user", Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, o.user.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord),
			asm.LoadImm(asm.R8, everyUser, asm.DWord),
			asm.JEq.Reg(asm.R7, asm.R8, "run"),
			asm.FnGetCurrentUidGid.Call(),
			asm.LSh.Imm(asm.R0, 32), // the user id is the lower half
			asm.RSh.Imm(asm.R0, 32),
			asm.JNE.Reg(asm.R0, asm.R7, "end"),
			asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("run"),
			asm.LoadMapPtr(asm.R2, o.calls.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		},
	})
	return o, err
}

func (o *oneUser) widen() error {
	if o == nil {
		return nil
	}
	return o.user.Put(uint32(0), uint64(everyUser))
}

// Close releases the program. It may be nil.
func (o *oneUser) Close() error {
	if o == nil {
		return nil
	}
	if o.program != nil {
		o.program.Close()
	}
	return errors.Join(o.user.Close(), o.calls.Close())
}
