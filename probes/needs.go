//go:build linux

package probes

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"trace/probes/rewrite"
)

// needs are what a program needs of the kernel.
type needs struct {
	types bool // whose types it must describe
	reads bool // whose memory it must read for the program, which takes a call each time
}

func needsOf(insns asm.Instructions) needs {
	reads := func(ins asm.Instruction) bool {
		return ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnProbeReadKernel
	}
	return needs{types: rewrite.Relocated(insns), reads: slices.ContainsFunc(insns, reads)}
}
