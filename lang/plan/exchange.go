package plan

import (
	"sync"

	"github.com/cilium/ebpf"

	"trace/lang/codegen"
)

// CompareExchange reports whether the kernel supports atomic compare-and-exchange in BPF. It loads a BPF program to find out.
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
