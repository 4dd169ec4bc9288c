package plan

import (
	"sync"

	"github.com/cilium/ebpf"

	"trace/lang/codegen"
)

// CompareExchange tells whether the kernel has an atomic compare-and-exchange for BPF: it tries.
var CompareExchange = sync.OnceValue(func() bool {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "Dual BSD/GPL", Instructions: codegen.CompareExchange(),
	})
	if err != nil {
		return false
	}
	prog.Close()
	return true
})
