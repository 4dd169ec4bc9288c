//go:build linux

package probes

// trappedMachine is EM_X86_64.
const trappedMachine = 62

// callsTrapped calls the function behind it 100 times:
//
//	mov $100, %ecx; call function; dec %ecx; jnz -9; ret; nop…
var callsTrapped = []byte{0xb9, 0x64, 0, 0, 0, 0xe8, 6, 0, 0, 0, 0xff, 0xc9, 0x75, 0xf7, 0xc3, 0xcc}

// The functions begin as a provider's functions do: with push %rbp, which the kernel emulates, and with mov %rdi, %rax, which it single-steps.
var (
	emulated = trapped{append(callsTrapped[:16:16], 0x55, 0x5d, 0xc3), 16}
	stepped  = trapped{append(callsTrapped[:16:16], 0x48, 0x89, 0xf8, 0xc3), 16}
)
