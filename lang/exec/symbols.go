package exec

import (
	"context"
	"fmt"

	"trace/lang/ir"
	"trace/probes/symbols"
)

// This file implements ksym, kaddr and usym, which read the functions of the running kernel and of processes.

// symbolTables are the tables that a program needs; nil: it does not need them.
type symbolTables struct {
	kernel    *symbols.Kernel
	processes *symbols.Member
	patience  *patience
}

// openSymbols opens what the functions of a program read.
func openSymbols(names *symbols.Names, patience *patience, p *ir.Program) (*symbolTables, error) {
	t := &symbolTables{patience: patience}
	var err error
	if p.Calls("ksym") || p.Calls("kaddr") {
		if t.kernel, err = names.Kernel(); err != nil {
			return nil, fmt.Errorf("ksym and kaddr: %w", err)
		}
	}
	if p.Calls("usym") {
		if t.processes, err = names.Processes(func() (map[int]bool, error) { return nil, nil }); err != nil {
			return nil, fmt.Errorf("usym: %w", err)
		}
	}
	return t, nil
}

func (t *symbolTables) close() error {
	if t == nil || t.processes == nil {
		return nil
	}
	return t.processes.Close()
}

// kernelName returns the name of the function at an address of the kernel. An address without one is written as a number.
func (t *symbolTables) kernelName(address uint64) any {
	return nameOf(t.kernel.Frames([]uint64{address})[0])
}

// kernelAddress returns the address of a function of the kernel, or nil if it has no such function.
func (t *symbolTables) kernelAddress(name string) any {
	from, size := t.kernel.Range(name)
	if size == 0 {
		return nil
	}
	return from
}

// userName returns the name of the function at an address of a process, at a time.
func (t *symbolTables) userName(pid int, nsecs, address uint64) any {
	var frames []symbols.Frame
	t.patience.search(t.processes.User(pid), func(ctx context.Context) (ok bool) {
		frames, ok = t.processes.Frames(ctx, pid, nsecs, []uint64{address})
		return ok
	})
	return nameOf(frames[0])
}

func nameOf(f symbols.Frame) string {
	switch {
	case f.Function != "":
		return f.Function
	case f.Address == 0:
		return "0"
	}
	return fmt.Sprintf("%#x", f.Address)
}
