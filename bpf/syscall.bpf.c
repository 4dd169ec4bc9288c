//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* System calls: the raw tracepoints sys_enter and sys_exit (include/trace/events/syscalls.h). */
#include "registers.h"
#include "syscall_nr.h"

struct syscall_enter {
	COMMON();
	enum syscall nr DOC("the system call; absent where raw_nr is less than 0, or a number without a name in a 32-bit process");
	__s32 raw_nr INSTEAD(nr) DOC("number of the system call as the process passed it");
	bool compat DOC("called as 32-bit processes call, whose numbers differ: also by int $0x80 in a 64-bit process");
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
	enum syscall nr DOC("the system call; absent where raw_nr is less than 0, or a number without a name in a 32-bit process");
	__s32 raw_nr INSTEAD(nr) DOC("number of the system call as the process passed it; -1 at the return of rt_sigreturn, which restores all registers");
	bool compat DOC("called as 32-bit processes call, whose numbers differ: also by int $0x80 in a 64-bit process");
	errno_t ret DOC("result: -errno on failure");
	ns_t latency NEEDS(syscall_start) DOC("time since the call was entered; absent if it was entered before tracing began");
	SPENT_FIELDS(NEEDS(syscall_start));
	struct {
		HAS_PAD;
		__u32 nr : 1;
		__u32 latency : 1;
	} has HAS_ALIGN;
} DOC("a system call returns (raw tracepoint sys_exit); exit and exit_group never do");
EVENT(syscall_exit)
OF_BEGINNING(syscall_exit)

struct syscall_start {
	__u64 at; /* ns */
	__s32 nr;
};

/*
 * The call that a thread is in, by its task_struct. The thread id is no key: in an execve by a thread that is not the leader, the
 * thread takes the leader's id (de_thread, fs/exec.c), and its old id is free for another thread.
 */
KEPT(syscall_starts, task, struct syscall_start, 65536)

/* The totals of a thread at the beginning of that call, kept only where somebody wants to know what it goes through. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct spent);
} syscall_spent SEC(".maps");

/* For each number of 32-bit processes the system call and 1; 0: none. In a map of its own, as this is no constant that Go could put into the code. */
static const __u16 compat_nr[COMPAT_NRS] SEC(".rodata.compat") = { COMPAT_CALLS };

/* The system call of a number of 32-bit processes, or -1. */
static __always_inline __s32 of_compat(__u32 number)
{
	return number < COMPAT_NRS ? (__s32)compat_nr[number] - 1 : -1;
}

/* compat: whether it is such a call, which is known if nr, compat or an argument is wanted. */
#define CAPTURE_NR(X, e, is_compat, number, stage) \
	do { \
		if (WANT(X, nr, stage)) { \
			__s32 call = (is_compat) ? of_compat(number) : (number); \
			if (call >= 0) \
				SET(e, nr, (enum syscall)call); \
		} \
		if (WANT(X, raw_nr, stage)) \
			(e)->raw_nr = (number); \
		if (WANT(X, compat, stage)) \
			(e)->compat = (is_compat); \
	} while (0)

#define WANT_CONVENTION(stage) \
	(WANT(syscall_enter, nr, stage) || WANT(syscall_enter, compat, stage) || WANT(syscall_enter, arg0, stage) || \
	 WANT(syscall_enter, arg1, stage) || WANT(syscall_enter, arg2, stage) || WANT(syscall_enter, arg3, stage) || \
	 WANT(syscall_enter, arg4, stage) || WANT(syscall_enter, arg5, stage))

static __always_inline void syscall_enter_capture(struct syscall_enter *e, bool known, struct kprobe_regs *regs, __s32 nr, enum stage stage)
{
	bool compat = WANT_CONVENTION(stage) && COMPAT(known, regs);

	CAPTURE_COMMON(syscall_enter, e, stage);
	CAPTURE_NR(syscall_enter, e, compat, nr, stage);
	if (WANT(syscall_enter, arg0, stage))
		e->arg0 = ARG(known, compat, regs, 0);
	if (WANT(syscall_enter, arg1, stage))
		e->arg1 = ARG(known, compat, regs, 1);
	if (WANT(syscall_enter, arg2, stage))
		e->arg2 = ARG(known, compat, regs, 2);
	if (WANT(syscall_enter, arg3, stage))
		e->arg3 = ARG(known, compat, regs, 3);
	if (WANT(syscall_enter, arg4, stage))
		e->arg4 = ARG(known, compat, regs, 4);
	if (WANT(syscall_enter, arg5, stage))
		e->arg5 = ARG(known, compat, regs, 5);
}

static __always_inline int enter(void *ctx, bool known, struct kprobe_regs *regs, __s32 nr)
{
	struct syscall_enter e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(syscall_enter, ctx, &e, known, regs, nr);
	return 0;
}

SEC("raw_tp/sys_enter")
int raw_tp_syscall_enter(__u64 *ctx)
{
	return enter(ctx, false, (struct kprobe_regs *)ctx[0], ctx[1]);
}

SEC("tp_btf/sys_enter")
int tp_btf_syscall_enter(__u64 *ctx)
{
	return enter(ctx, true, (struct kprobe_regs *)ctx[0], ctx[1]);
}

/*
 * The ftrace events of the same tracepoints (include/trace/events/syscalls.h), for kernels that preempt the programs of raw
 * tracepoints. They hold numbers; the registers come from the task.
 */
struct raw_syscall {
	__u64 common;
	__s64 nr;
	__s64 ret; /* sys_enter: the arguments */
};

#define FTRACE(name) SEC("tracepoint/raw_syscalls/" name) __attribute__((btf_decl_tag("calls:task_pt_regs")))

static __always_inline struct kprobe_regs *registers(void)
{
	return (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
}

FTRACE("sys_enter")
int tracepoint_syscall_enter(struct raw_syscall *ctx)
{
	return enter(ctx, true, registers(), ctx->nr);
}

static __always_inline void start_spent(__u64 task)
{
	struct spent spent = {};

	BEGIN_SPENT(syscall_exit, &spent);
	if (bpf_map_update_elem(&syscall_spent, &task, &spent, BPF_ANY))
		syscall_exit_count(INFLIGHT_FULL);
}

/* exit and exit_group; 32-bit processes have other numbers for them. */
static __always_inline bool never_returns(bool known, struct kprobe_regs *regs, __s32 nr)
{
	if (nr == syscall__exit || nr == syscall__exit_group)
		return !COMPAT(known, regs);
	return (nr == COMPAT_NR_exit || nr == COMPAT_NR_exit_group) && COMPAT(known, regs);
}

static __always_inline int start(bool known, struct kprobe_regs *regs, __s32 nr)
{
	__u64 task = bpf_get_current_task();
	struct syscall_start *call;

	if (never_returns(known, regs, nr))
		return 0;
	call = syscall_starts_begin(task);
	if (call) {
		call->at = bpf_ktime_get_ns();
		call->nr = nr;
	} else {
		syscall_exit_count(INFLIGHT_FULL);
	}
	if (ANY_SPENT(WANTED_FIELD, syscall_exit))
		start_spent(task);
	return 0;
}

SEC("raw_tp/sys_enter")
int raw_tp_syscall_start(__u64 *ctx)
{
	return start(false, (struct kprobe_regs *)ctx[0], ctx[1]);
}

FTRACE("sys_enter")
int tracepoint_syscall_start(struct raw_syscall *ctx)
{
	return start(true, registers(), ctx->nr);
}

/* Whether a number is of a call that restores all registers, in one of the two conventions. */
static __always_inline bool restores(__s32 nr)
{
	return nr == syscall__rt_sigreturn || nr == COMPAT_NR_rt_sigreturn || nr == COMPAT_NR_sigreturn;
}

/*
 * When the call that returns was entered; 0 if that was not seen. What is kept may be of an earlier call whose return was not seen.
 * Registers that rt_sigreturn has restored hold no number of a call.
 */
static __always_inline __u64 started_at(__s32 nr)
{
	struct syscall_start *call = syscall_starts_of(bpf_get_current_task());
	__u64 at;

	if (!call)
		return 0;
	at = call->nr == nr || (nr == -1 && restores(call->nr)) ? call->at : 0;
	syscall_starts_end(call);
	return at;
}

/* started: when the call was entered, or 0; spent: the totals of the thread then, or NULL. */
static __always_inline void syscall_exit_capture(struct syscall_exit *e, bool known, struct kprobe_regs *regs, __s64 ret,
						 __u64 started, struct spent *spent, enum stage stage)
{
	bool compat = (WANT(syscall_exit, nr, stage) || WANT(syscall_exit, compat, stage)) && COMPAT(known, regs);

	CAPTURE_COMMON(syscall_exit, e, stage);
	CAPTURE_NR(syscall_exit, e, compat, SYSCALL_NR(known, regs), stage);
	if (WANT(syscall_exit, ret, stage))
		e->ret = ret;
	COUNT_UNMATCHED(syscall_exit, started, stage);
	if (WANT(syscall_exit, latency, stage) && started)
		SET(e, latency, bpf_ktime_get_ns() - started);
	CAPTURE_SPENT(syscall_exit, e, spent, stage);
}

static __always_inline int leave(void *ctx, bool known, struct kprobe_regs *regs, __s64 ret)
{
	__u64 task = bpf_get_current_task(), started = 0;
	struct spent *spent = 0;
	struct syscall_exit e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	if (WANTED(syscall_exit, latency) || ANY_SPENT(WANTED_FIELD, syscall_exit))
		started = started_at(SYSCALL_NR(known, regs));
	if (ANY_SPENT(WANTED_FIELD, syscall_exit) && started)
		spent = bpf_map_lookup_elem(&syscall_spent, &task);
	EMIT(syscall_exit, ctx, &e, known, regs, ret, started, spent);
	if (ANY_SPENT(WANTED_FIELD, syscall_exit))
		bpf_map_delete_elem(&syscall_spent, &task);
	return 0;
}

SEC("raw_tp/sys_exit")
int raw_tp_syscall_exit(__u64 *ctx)
{
	return leave(ctx, false, (struct kprobe_regs *)ctx[0], ctx[1]);
}

SEC("tp_btf/sys_exit")
int tp_btf_syscall_exit(__u64 *ctx)
{
	return leave(ctx, true, (struct kprobe_regs *)ctx[0], ctx[1]);
}

FTRACE("sys_exit")
int tracepoint_syscall_exit(struct raw_syscall *ctx)
{
	return leave(ctx, true, registers(), ctx->ret);
}
