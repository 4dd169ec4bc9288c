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

/*
 * COMPAT: whether the process makes the call as 32-bit processes do, which have numbers and registers of their own. ARG: an argument of a call; such
 * a process passes 32 bits, though more may be in the register.
 */
#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NR(known, regs) ((__s32)REG(known, regs, orig_ax))

/* Where the kernel notes that in a task_struct: status of thread_info, its first member (arch/x86/include/asm/thread_info.h). Go sets it. */
const volatile __u8 status_at SEC(".rodata");

enum {
	TS_COMPAT = 2,
	STATUS_AT = 16, /* since 5.11, which also has the helper */
};

/* 64-bit code may make such a call, too: by int $0x80. So its code segment does not tell. */
static __always_inline bool is_compat(bool known)
{
	__u32 status = 0;

	if (known && status_at == STATUS_AT)
		status = *(__u32 *)((void *)bpf_get_current_task_btf() + STATUS_AT);
	else
		bpf_probe_read_kernel(&status, sizeof(status), (void *)bpf_get_current_task() + status_at);
	return status & TS_COMPAT;
}

#define COMPAT(known, regs) is_compat(known)
#define ARG(known, compat, regs, n) ((compat) ? (__u32)REG(known, regs, COMPAT_ARG_##n) : REG(known, regs, ARG_##n))
#define ARG_0 di
#define ARG_1 si
#define ARG_2 dx
#define ARG_3 r10
#define ARG_4 r8
#define ARG_5 r9
#define COMPAT_ARG_0 bx
#define COMPAT_ARG_1 cx
#define COMPAT_ARG_2 dx
#define COMPAT_ARG_3 si
#define COMPAT_ARG_4 di
#define COMPAT_ARG_5 bp
#else
#define SYSCALL_NR(known, regs) ((__s32)REG(known, regs, syscallno))
/* PSR_MODE32_BIT, arch/arm64/include/uapi/asm/ptrace.h. */
#define COMPAT(known, regs) ((REG(known, regs, pstate) & 0x10) != 0)
#define ARG(known, compat, regs, n) ((compat) ? (__u32)REG(known, regs, regs[n]) : REG(known, regs, regs[n]))
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
