/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The registers of a process that makes a system call. */
#pragma once
#include "trace.h"

/*
 * A register of the process, at an offset that every kernel has: this needs no BTF. Where the verifier knows the type of the registers it is a load, and
 * otherwise a call, which takes 10 to 45 ns.
 */
#define REG(known, regs, reg) ((known) ? (__u64)(regs)->reg : register_at(&(regs)->reg, sizeof((regs)->reg)))

static __always_inline __u64 register_at(void *reg, __u32 size)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, size, reg);
	return value;
}

#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NR(known, regs) ((__s32)REG(known, regs, orig_ax))
/* The code segment of 32-bit user code: __USER32_CS, arch/x86/include/asm/segment.h. */
#define COMPAT(known, regs) (REG(known, regs, cs) == 0x23)
#define ARG(known, regs, n) REG(known, regs, ARG_##n)
#define ARG_0 di
#define ARG_1 si
#define ARG_2 dx
#define ARG_3 r10
#define ARG_4 r8
#define ARG_5 r9
#else
#define SYSCALL_NR(known, regs) ((__s32)REG(known, regs, syscallno))
/* PSR_MODE32_BIT, arch/arm64/include/uapi/asm/ptrace.h. */
#define COMPAT(known, regs) ((REG(known, regs, pstate) & 0x10) != 0)
#define ARG(known, regs, n) REG(known, regs, regs[n])
#endif

/*
 * Programs for the system call of an event OF_CALL, sys(name) in the table: enter(ctx, regs) gets the registers of the process. The fentry
 * program may not read its argument itself where the kernel's BTF does not know struct pt_regs there, as for mremap in 5.10.
 */
#define ON_SYSCALL(X, name, enter, leave) \
	SEC("fentry/" #name) __attribute__((btf_decl_tag("args:1"))) \
	int fentry_##X##__##name(__u64 *ctx) \
	{ \
		return X##_entry ? enter(ctx, (void *)register_at(ctx, sizeof(*ctx))) : 0; \
	} \
	SEC("kprobe/" #name) \
	int kprobe_##X##__##name(struct kprobe_regs *ctx) \
	{ \
		return X##_entry ? enter(ctx, (void *)KPROBE_ARG0(ctx)) : 0; \
	} \
	ON_LEAVE(X, name, 1, leave)
