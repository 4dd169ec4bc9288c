//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What tasks do and wait for where memory is short. */
#include "memory.h"

/* Calls in progress, by thread. */
#define CALLS(name, call) KEPT(name, thread, call, 8192)

/*
 * Reclaim: try_to_free_pages and try_to_free_mem_cgroup_pages (mm/vmscan.c).
 */

struct memory_reclaim {
	COMMON();
	cgroup_t limit_cgroup DOC("cgroup whose limit was reached; absent if it was the machine's memory, and on hosts whose ids of cgroups are another v1 controller's");
	__u32 order DETAIL DOC("the allocation that found no memory is for 2^order pages; absent if a cgroup's limit was reached");
	enum gfp gfp FLAGS VERBOSE DOC("the flags of that allocation");
	bytes_t reclaimed AT_RETURN DOC("what the task freed; a page too many if it was killed while the kernel held it back");
	ns_t latency DOC("how long that took, with what it waited for");
	struct {
		HAS_PAD;
		__u32 limit_cgroup : 1;
		__u32 order : 1;
	} has HAS_ALIGN;
} DOC("a task has to free memory before it gets some (direct reclaim)");
EVENT(memory_reclaim)
OF_CALL(memory_reclaim)

struct reclaim {
	__u64 at; /* ns */
	struct mem_cgroup *memory;
	__u32 gfp;
	__u32 order;
};
CALLS(memory_reclaim_calls, struct reclaim)

static __always_inline int reclaim_begin(struct reclaim call)
{
	if (!memory_reclaim_entry)
		return 0;
	call.at = bpf_ktime_get_ns();
	BEGIN_CALL(memory_reclaim, memory_reclaim_calls, &call);
	return 0;
}

static __always_inline int reclaim_of_machine(void *ctx, __u64 zonelist, __u64 order, __u64 gfp)
{
	return reclaim_begin((struct reclaim){.gfp = gfp, .order = order});
}

static __always_inline int reclaim_of_cgroup(void *ctx, __u64 memory, __u64 pages, __u64 gfp)
{
	return reclaim_begin((struct reclaim){.memory = (void *)memory, .gfp = gfp});
}

static __always_inline void memory_reclaim_capture(struct memory_reclaim *e, struct reclaim *call, __u64 pages, enum stage stage)
{
	__u64 cgroup;

	CAPTURE_COMMON(memory_reclaim, e, stage);
	if (WANT(memory_reclaim, limit_cgroup, stage) && cgroup_of_memory(call->memory, &cgroup))
		SET(e, limit_cgroup, cgroup);
	if (WANT(memory_reclaim, order, stage) && !call->memory)
		SET(e, order, call->order);
	if (WANT(memory_reclaim, gfp, stage))
		e->gfp = call->gfp;
	if (WANT(memory_reclaim, reclaimed, stage))
		e->reclaimed = pages << page_shift;
	if (WANT(memory_reclaim, latency, stage))
		e->latency = bpf_ktime_get_ns() - call->at;
}

static __always_inline int reclaim_end(void *ctx, __s64 pages)
{
	struct reclaim *call = memory_reclaim_entry ? memory_reclaim_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct memory_reclaim e;

	if (memory_reclaim_unseen(call))
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(memory_reclaim, ctx, &e, call, pages);
	if (memory_reclaim_entry)
		memory_reclaim_calls_end(call);
	return 0;
}

ON_CALL(memory_reclaim, try_to_free_pages, 4, reclaim_of_machine, reclaim_end)
ON_CALL_OF(memory_reclaim, try_to_free_mem_cgroup_pages, 4, 5, reclaim_of_cgroup, reclaim_end)

/*
 * Stalls: what the kernel's PSI counts as waiting for memory (kernel/sched/psi.c). Calls may be nested, and only the outer ones count. Each
 * passes the address of a variable on its stack. A nested call has a lower one.
 */

struct memory_stall {
	COMMON();
	ns_t latency DOC("how long it lasted");
} DOC("the end of a time that the kernel counts as waiting for memory, for whatever reason: reclaim, compaction, throttling, pages that come back (PSI)");
EVENT(memory_stall)

struct stall {
	__u64 at; /* ns */
	__u64 flags;
};
CALLS(memory_stall_calls, struct stall)

static __always_inline int stall_begin(__u64 flags)
{
	struct stall *outer = memory_stall_calls_of(bpf_get_current_pid_tgid());
	struct stall call;

	if (outer && flags < outer->flags)
		return 0;
	call.at = bpf_ktime_get_ns();
	call.flags = flags;
	BEGIN_CALL(memory_stall, memory_stall_calls, &call);
	return 0;
}

static __always_inline void memory_stall_capture(struct memory_stall *e, struct stall *call, enum stage stage)
{
	CAPTURE_COMMON(memory_stall, e, stage);
	if (WANT(memory_stall, latency, stage))
		e->latency = bpf_ktime_get_ns() - call->at;
}

static __always_inline int stall_end(void *ctx, __u64 flags)
{
	struct stall *call = memory_stall_calls_of(bpf_get_current_pid_tgid());
	struct memory_stall e;

	if (!call) {
		memory_stall_count(UNSEEN);
		return 0;
	}
	if (call->flags != flags)
		return 0;
	EMIT(memory_stall, ctx, &e, call);
	memory_stall_calls_end(call);
	return 0;
}

/* By kprobes only: fentry of 5.10 refuses an argument that is the address of a number. */
SEC("kprobe/psi_memstall_enter")
int kprobe_memory_stall__psi_memstall_enter(struct kprobe_regs *ctx)
{
	return stall_begin(KPROBE_ARG0(ctx));
}

SEC("kprobe/psi_memstall_leave")
int kprobe_memory_stall__psi_memstall_leave(struct kprobe_regs *ctx)
{
	return stall_end(ctx, KPROBE_ARG0(ctx));
}

/*
 * Compaction: try_to_compact_pages (mm/compaction.c).
 */

/* enum compact_priority, include/linux/compaction.h */
enum compact_priority {
	compact_priority__sync_full,
	compact_priority__sync_light,
	compact_priority__async,
};

/* enum compact_result, include/linux/compaction.h */
enum compact_result {
	compact_result__not_suitable_zone,
	compact_result__skipped,
	compact_result__deferred,
	compact_result__no_suitable_page,
	compact_result__continue,
	compact_result__complete,
	compact_result__partial_skipped,
	compact_result__contended,
	compact_result__success,
};

struct memory_compact {
	COMMON();
	__u32 order DOC("the allocation is for 2^order pages that stand together");
	enum gfp gfp FLAGS VERBOSE DOC("the flags of that allocation");
	enum compact_priority mode DOC("how hard the task tries: async does not wait");
	enum compact_result result AT_RETURN DOC("how it ended: success has found room for that order, complete has tried everywhere; skipped and deferred did nothing");
	ns_t latency DOC("how long that took");
} DOC("a task has to move pages of others to get some that stand together (direct compaction)");
EVENT(memory_compact)
OF_CALL(memory_compact)

struct compaction {
	__u64 at; /* ns */
	__u32 order;
	__u32 gfp;
	__u32 mode;
};
CALLS(memory_compact_calls, struct compaction)

static __always_inline int compact_begin(void *ctx, __u64 gfp, __u64 order, __u64 alloc_flags, __u64 context, __u64 priority)
{
	struct compaction call;

	if (!memory_compact_entry)
		return 0;
	__builtin_memset(&call, 0, sizeof(call));
	call.at = bpf_ktime_get_ns();
	call.order = order;
	call.gfp = gfp;
	call.mode = priority;
	BEGIN_CALL(memory_compact, memory_compact_calls, &call);
	return 0;
}

static __always_inline void memory_compact_capture(struct memory_compact *e, struct compaction *call, __u32 result, enum stage stage)
{
	CAPTURE_COMMON(memory_compact, e, stage);
	if (WANT(memory_compact, order, stage))
		e->order = call->order;
	if (WANT(memory_compact, gfp, stage))
		e->gfp = call->gfp;
	if (WANT(memory_compact, mode, stage))
		e->mode = call->mode;
	if (WANT(memory_compact, result, stage))
		e->result = result;
	if (WANT(memory_compact, latency, stage))
		e->latency = bpf_ktime_get_ns() - call->at;
}

static __always_inline int compact_end(void *ctx, __s64 result)
{
	struct compaction *call = memory_compact_entry ? memory_compact_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct memory_compact e;

	if (memory_compact_unseen(call))
		return 0;
	EMIT(memory_compact, ctx, &e, call, result);
	if (memory_compact_entry)
		memory_compact_calls_end(call);
	return 0;
}

ON_CALL5(memory_compact, try_to_compact_pages, 6, compact_begin, compact_end)

/*
 * Migration: the raw tracepoint mm_migrate_pages, at the end of migrate_pages (mm/migrate.c).
 */

/* enum migrate_mode, include/linux/migrate_mode.h */
enum migrate_mode {
	migrate_mode__async,
	migrate_mode__sync_light,
	migrate_mode__sync,
	migrate_mode__sync_no_copy,
};

/* enum migrate_reason, include/linux/migrate_mode.h; kernels have added some at the end. */
enum migrate_reason {
	migrate_reason__compaction,
	migrate_reason__memory_failure,
	migrate_reason__memory_hotplug,
	migrate_reason__syscall,
	migrate_reason__mempolicy_mbind,
	migrate_reason__numa_misplaced,
	migrate_reason__contig_range,
	migrate_reason__longterm_pin,
	migrate_reason__demotion,
	migrate_reason__damon,
};

struct memory_migrate {
	COMMON();
	enum migrate_reason reason DOC("why; absent without BTF of the kernel");
	enum migrate_mode mode VERBOSE DOC("whether it may wait: async does not; absent without BTF of the kernel");
	__u64 moved DOC("pages that were moved");
	__u64 failed DETAIL DOC("pages that could not be moved");
	ns_t latency NEEDS(memory_migrating) DOC("how long that took; absent if it began before tracing did");
	struct {
		HAS_PAD;
		__u32 reason : 1;
		__u32 mode : 1;
		__u32 latency : 1;
	} has HAS_ALIGN;
} DOC("pages were moved to other places (raw tracepoint mm_migrate_pages)");
EVENT(memory_migrate)
OF_BEGINNING(memory_migrate)

/* The last two arguments are the mode and the reason. Since 6.7 there is one more before them. */
ARGUMENTS(mm_migrate_pages);

#define LAST_ARGUMENT(e, field, ctx, back) \
	do { \
		__u64 value; \
		if (mm_migrate_pages_arguments == 7) { \
			LOAD_ARG(value, ctx, 7 - (back)); \
			SET(e, field, value); \
		} else if (mm_migrate_pages_arguments == 8) { \
			LOAD_ARG(value, ctx, 8 - (back)); \
			SET(e, field, value); \
		} \
	} while (0)

CALLS(memory_migrating_calls, __u64)

/* Its seven arguments are too many for fentry before 6.6. */
SEC("kprobe/migrate_pages")
int kprobe_memory_migrating__migrate_pages(struct kprobe_regs *ctx)
{
	__u64 *began = memory_migrating_calls_begin(bpf_get_current_pid_tgid());

	if (began)
		*began = bpf_ktime_get_ns();
	else
		memory_migrate_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void memory_migrate_capture(struct memory_migrate *e, __u64 *ctx, __u64 *began, enum stage stage)
{
	CAPTURE_COMMON(memory_migrate, e, stage);
	COUNT_UNMATCHED(memory_migrate, began, stage);
	if (WANT(memory_migrate, moved, stage))
		e->moved = ctx[0];
	if (WANT(memory_migrate, failed, stage))
		e->failed = ctx[1];
	if (WANT(memory_migrate, mode, stage))
		LAST_ARGUMENT(e, mode, ctx, 2);
	if (WANT(memory_migrate, reason, stage))
		LAST_ARGUMENT(e, reason, ctx, 1);
	if (WANT(memory_migrate, latency, stage) && began)
		SET(e, latency, bpf_ktime_get_ns() - *began);
}

SEC("raw_tp/mm_migrate_pages")
int raw_tp_memory_migrate(__u64 *ctx)
{
	__u64 *began = WANTED(memory_migrate, latency) ? memory_migrating_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct memory_migrate e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(memory_migrate, ctx, &e, ctx, began);
	if (began)
		memory_migrating_calls_end(began);
	return 0;
}

/*
 * Throttling: balance_dirty_pages (mm/page-writeback.c), and mem_cgroup_handle_over_high (mm/memcontrol.c), which since 6.13 is the inline
 * part of __mem_cgroup_handle_over_high. Both are also called where there is nothing to wait for.
 */

enum throttle_reason {
	throttle_reason__dirty,       /* too many dirty pages */
	throttle_reason__memory_high, /* above memory.high */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct___waits {
	unsigned long nvcsw;
	unsigned int memcg_nr_pages_over_high;
};
struct backing_dev_info {
	char dev_name[64];
};
struct bdi_writeback {
	struct backing_dev_info *bdi;
};
#pragma clang attribute pop

struct memory_throttle {
	COMMON();
	enum throttle_reason reason DOC("dirty: it writes faster than disks do; memory_high: its cgroup is above memory.high");
	char bdi[16] DOC("the device that it writes to: its name in /sys/class/bdi, major:minor of a disk; absent with memory_high");
	ns_t latency DOC("how long it was held back; with memory_high, what it had to reclaim meanwhile included");
	struct {
		HAS_PAD;
		__u32 bdi : 1;
	} has HAS_ALIGN;
} DOC("the kernel holds a task back, as it writes too fast or uses too much memory; only calls in which the task has waited");
EVENT(memory_throttle)

struct throttle {
	__u64 at; /* ns */
	struct bdi_writeback *writeback;
	__u32 reason;
	__u32 waits; /* of the thread until then */
};
CALLS(memory_throttle_calls, struct throttle)

/* How often the thread has waited. */
#define WAITS (__u32)BPF_CORE_READ((struct task_struct___waits *)bpf_get_current_task(), nvcsw)

/* mem_cgroup_handle_over_high begins with this question, whenever a task returns to user space with something to do. */
#define IS_OVER_HIGH (BPF_CORE_READ((struct task_struct___waits *)bpf_get_current_task(), memcg_nr_pages_over_high) != 0)

static __always_inline int throttle_begin(__u32 reason, void *writeback)
{
	struct throttle call = {.at = bpf_ktime_get_ns(), .writeback = writeback, .reason = reason, .waits = WAITS};

	BEGIN_CALL(memory_throttle, memory_throttle_calls, &call);
	return 0;
}

static __always_inline int throttle_dirty(void *ctx, __u64 writeback, __u64 none, __u64 unused)
{
	return throttle_begin(throttle_reason__dirty, (void *)writeback);
}

static __always_inline int throttle_high(void *ctx, __u64 gfp, __u64 none, __u64 unused)
{
	return IS_OVER_HIGH ? throttle_begin(throttle_reason__memory_high, 0) : 0;
}

static __always_inline void memory_throttle_capture(struct memory_throttle *e, struct throttle *call, enum stage stage)
{
	struct bdi_writeback *writeback = call->writeback;

	CAPTURE_COMMON(memory_throttle, e, stage);
	if (WANT(memory_throttle, reason, stage))
		e->reason = call->reason;
	if (WANT(memory_throttle, bdi, stage) && writeback && READ_STRING(e->bdi, BPF_CORE_READ(writeback, bdi)->dev_name) > 0)
		e->has.bdi = 1;
	if (WANT(memory_throttle, latency, stage))
		e->latency = bpf_ktime_get_ns() - call->at;
}

static __always_inline int throttle_end(void *ctx, struct throttle *call)
{
	struct memory_throttle e;

	if (WAITS != call->waits) {
		__builtin_memset(&e.has, 0, sizeof(e.has));
		EMIT(memory_throttle, ctx, &e, call);
	}
	memory_throttle_calls_end(call);
	return 0;
}

static __always_inline int throttle_dirty_end(void *ctx, __s64 unused)
{
	struct throttle *call = memory_throttle_calls_of(bpf_get_current_pid_tgid());

	if (call)
		return throttle_end(ctx, call);
	memory_throttle_count(UNSEEN);
	return 0;
}

static __always_inline int throttle_high_end(void *ctx, __s64 unused)
{
	struct throttle *call = memory_throttle_calls_of(bpf_get_current_pid_tgid());

	return call ? throttle_end(ctx, call) : 0; /* it was not above */
}

ON_SPAN(memory_throttle, balance_dirty_pages, 1, throttle_dirty, throttle_dirty_end)
ON_SPAN(memory_throttle, mem_cgroup_handle_over_high, 0, throttle_high, throttle_high_end)
ON_SPAN(memory_throttle, __mem_cgroup_handle_over_high, 0, throttle_high, throttle_high_end)
