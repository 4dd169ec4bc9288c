//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* System calls: the raw tracepoints sys_enter and sys_exit (include/trace/events/syscalls.h). */
#include "trace.h"
#include "syscall_nr.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di, si, dx, r10, r8, r9, orig_ax, cs;
};
#else
struct pt_regs {
	__u64 regs[31];
	__u64 pstate;
	__s32 syscallno;
};
#endif
#pragma clang attribute pop

struct syscall_enter {
	COMMON();
	enum syscall nr DOC("the system call; absent in 32-bit processes, whose numbers differ");
	__s32 raw_nr INSTEAD(nr) DOC("number of the system call as the process passed it");
	bool compat DOC("called by a 32-bit process");
	hex64_t arg0 DOC("first argument");
	hex64_t arg1 DOC("second argument");
	hex64_t arg2 DOC("third argument");
	hex64_t arg3 DOC("fourth argument");
	hex64_t arg4 DOC("fifth argument");
	hex64_t arg5 DOC("sixth argument");
	struct {
		HAS_PAD;
		__u32 nr : 1;
	} has HAS_ALIGN;
} DOC("a process enters a system call (raw tracepoint sys_enter)");
EVENT(syscall_enter)

struct syscall_exit {
	COMMON();
	enum syscall nr DOC("the system call; absent in 32-bit processes, whose numbers differ");
	__s32 raw_nr INSTEAD(nr) DOC("number of the system call as the process passed it");
	bool compat DOC("called by a 32-bit process");
	errno_t ret DOC("result: -errno on failure");
	ns_t latency NEEDS(syscall_start) DOC("time since the call was entered; absent if it was entered before tracing began");
	struct {
		HAS_PAD;
		__u32 nr : 1;
		__u32 latency : 1;
	} has HAS_ALIGN;
} DOC("a system call returns (raw tracepoint sys_exit); exit and exit_group never do");
EVENT(syscall_exit)
OF_BEGINNING(syscall_exit)

/* When the call that a thread is in began, ns; by thread id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u64);
} syscall_starts SEC(".maps");

/* The registers are a kernel pointer that the verifier knows under tp_btf, and a number under raw_tp. */
#define REG(known, regs, reg) ((known) ? (__u64)(regs)->reg : (__u64)BPF_CORE_READ(regs, reg))

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

#define CAPTURE_NR(X, e, known, regs, number, stage) \
	do { \
		if (WANT(X, nr, stage) && !COMPAT(known, regs)) \
			SET(e, nr, (enum syscall)(number)); \
		if (WANT(X, raw_nr, stage)) \
			(e)->raw_nr = (number); \
		if (WANT(X, compat, stage)) \
			(e)->compat = COMPAT(known, regs); \
	} while (0)

static __always_inline void syscall_enter_capture(struct syscall_enter *e, struct pt_regs *regs, __s32 nr, bool known,
						  enum stage stage)
{
	CAPTURE_COMMON(syscall_enter, e, stage);
	CAPTURE_NR(syscall_enter, e, known, regs, nr, stage);
	if (WANT(syscall_enter, arg0, stage))
		e->arg0 = ARG(known, regs, 0);
	if (WANT(syscall_enter, arg1, stage))
		e->arg1 = ARG(known, regs, 1);
	if (WANT(syscall_enter, arg2, stage))
		e->arg2 = ARG(known, regs, 2);
	if (WANT(syscall_enter, arg3, stage))
		e->arg3 = ARG(known, regs, 3);
	if (WANT(syscall_enter, arg4, stage))
		e->arg4 = ARG(known, regs, 4);
	if (WANT(syscall_enter, arg5, stage))
		e->arg5 = ARG(known, regs, 5);
}

static __always_inline int enter(void *ctx, struct pt_regs *regs, __s32 nr, bool known)
{
	struct syscall_enter e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(syscall_enter, ctx, &e, regs, nr, known);
	return 0;
}

SEC("tp_btf/sys_enter")
int tp_btf_syscall_enter(__u64 *ctx)
{
	return enter(ctx, (struct pt_regs *)ctx[0], ctx[1], true);
}

SEC("raw_tp/sys_enter")
int raw_tp_syscall_enter(__u64 *ctx)
{
	return enter(ctx, (struct pt_regs *)ctx[0], ctx[1], false);
}

/*
 * The records of the same tracepoints (include/trace/events/syscalls.h), for kernels that preempt the programs of raw tracepoints. They
 * hold numbers; the registers are those with which the task came.
 */
struct record {
	__u64 common;
	__s64 nr;
	__s64 ret; /* sys_enter: the arguments */
};

#define RECORD(name) SEC("tracepoint/raw_syscalls/" name) __attribute__((btf_decl_tag("calls:task_pt_regs")))

static __always_inline struct pt_regs *registers(void)
{
	return (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
}

RECORD("sys_enter")
int tracepoint_syscall_enter(struct record *ctx)
{
	return enter(ctx, registers(), ctx->nr, false);
}

static __always_inline int start(__s32 nr)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	if (nr == syscall__exit || nr == syscall__exit_group)
		return 0;
	if (bpf_map_update_elem(&syscall_starts, &tid, &now, BPF_ANY))
		syscall_exit_count(INFLIGHT_FULL);
	return 0;
}

SEC("tp_btf/sys_enter")
int tp_btf_syscall_start(__u64 *ctx)
{
	return start(ctx[1]);
}

SEC("raw_tp/sys_enter")
int raw_tp_syscall_start(__u64 *ctx)
{
	return start(ctx[1]);
}

RECORD("sys_enter")
int tracepoint_syscall_start(struct record *ctx)
{
	return start(ctx->nr);
}

/* started: when the call was entered, or 0. */
static __always_inline void syscall_exit_capture(struct syscall_exit *e, struct pt_regs *regs, __s64 ret, __u64 started,
						 bool known, enum stage stage)
{
	CAPTURE_COMMON(syscall_exit, e, stage);
	CAPTURE_NR(syscall_exit, e, known, regs, SYSCALL_NR(known, regs), stage);
	if (WANT(syscall_exit, ret, stage))
		e->ret = ret;
	COUNT_UNMATCHED(syscall_exit, started, stage);
	if (WANT(syscall_exit, latency, stage) && started)
		SET(e, latency, bpf_ktime_get_ns() - started);
}

static __always_inline int leave(void *ctx, struct pt_regs *regs, __s64 ret, bool known)
{
	struct syscall_exit e;
	__u64 started = 0;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	if (WANTED(syscall_exit, latency)) {
		__u32 tid = bpf_get_current_pid_tgid();
		__u64 *start = bpf_map_lookup_elem(&syscall_starts, &tid);

		if (start) {
			started = *start;
			bpf_map_delete_elem(&syscall_starts, &tid);
		}
	}
	EMIT(syscall_exit, ctx, &e, regs, ret, started, known);
	return 0;
}

SEC("tp_btf/sys_exit")
int tp_btf_syscall_exit(__u64 *ctx)
{
	return leave(ctx, (struct pt_regs *)ctx[0], ctx[1], true);
}

SEC("raw_tp/sys_exit")
int raw_tp_syscall_exit(__u64 *ctx)
{
	return leave(ctx, (struct pt_regs *)ctx[0], ctx[1], false);
}

RECORD("sys_exit")
int tracepoint_syscall_exit(struct record *ctx)
{
	return leave(ctx, registers(), ctx->ret, false);
}
