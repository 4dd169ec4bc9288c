//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel kills processes because memory is short (mm/oom_kill.c). It chooses one, or all of a cgroup with memory.oom.group:
 *
 *     oom_kill_process(oc, message)             of the chosen process
 *         mark_oom_victim(task)                 if it was ending already; then nothing is killed
 *         __oom_kill_process(task, message)     of the chosen process, and then of each one of its group
 *             mark_oom_victim(task)             if the process still has memory
 *
 * The tracepoint mark_victim comes for tasks that were ending, too, and on 5.10 it has no task.
 */
#include "memory.h"

/* enum oom_constraint, include/linux/oom.h */
enum oom_constraint {
	oom_constraint__none,
	oom_constraint__cpuset,
	oom_constraint__memory_policy,
	oom_constraint__memcg,
};

/* include/linux/mm_types_task.h */
enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES, NR_MM_COUNTERS };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct oom_control {
	struct mem_cgroup *memcg;
	__u32 gfp_mask;
	__s32 order;
	struct task_struct *chosen;
	long chosen_points;
	enum oom_constraint constraint;
};
struct atomic64_t___long {
	__s64 counter;
};
struct percpu_counter {
	__s64 count;
};
struct mm_rss_stat {
	struct atomic64_t___long count[NR_MM_COUNTERS];
};
struct mm_struct {
	struct percpu_counter rss_stat[NR_MM_COUNTERS];
	struct atomic64_t___long pgtables_bytes;
	unsigned long total_vm;
};
struct mm_struct___old { /* before 6.2 */
	struct mm_rss_stat rss_stat;
};
struct signal_struct {
	__s16 oom_score_adj;
};
struct task_struct___memory {
	struct mm_struct *mm;
	struct signal_struct *signal;
};
#pragma clang attribute pop

#define COUNTED " (the CPUs of a kernel since 6.2 may have up to 32 pages each that are not counted yet, or twice as many as there are CPUs)"

struct oom_kill {
	COMMON();
	cgroup_t limit_cgroup DOC("cgroup whose limit was reached; absent if it was the machine's memory, and on hosts whose ids of cgroups are another v1 controller's");
	bytes_t limit DOC("its memory.max; absent if it has none");
	bytes_t anon DOC("anonymous memory of the victim" COUNTED);
	bytes_t file DOC("its memory of files, counted likewise");
	bytes_t shmem DETAIL DOC("its shared memory, counted likewise");
	bytes_t swap DETAIL DOC("what it has in swap, counted likewise");
	bytes_t pagetables VERBOSE DOC("its page tables");
	bytes_t total VERBOSE DOC("its address space");
	__s16 score_adj DETAIL DOC("its oom_score_adj: -1000 to 1000");
	__s64 points VERBOSE DOC("its badness in pages, as the kernel compared processes; absent if it was not chosen by that");
	enum oom_constraint constraint VERBOSE DOC("what confined the allocation: none is the machine");
	__s32 order DETAIL DOC("the allocation that found no memory was for 2^order pages; absent if sysrq f asked");
	enum gfp gfp FLAGS VERBOSE DOC("the flags of that allocation");
	bool group DOC("killed with the chosen process, as memory.oom.group of their cgroup asks");
	struct {
		__u32 pid DOC("process whose allocation found no memory, often the victim itself");
		char comm[16] DOC("name of its thread");
		cgroup_t cgroup VERBOSE DOC("its cgroup");
	} trigger;
	char message[48] VERBOSE DOC("the kernel's words for the reason, as in its log");
	struct {
		HAS_PAD;
		__u32 limit_cgroup : 1;
		__u32 limit : 1;
		__u32 points : 1;
		__u32 order : 1;
	} has HAS_ALIGN;
} DOC("the kernel kills a process because memory is short; the task of the event is that process's");
EVENT(oom_kill)

/* The killing in progress: oom_lock lets the kernel do one at a time. */
struct killing {
	__u64 thread; /* that kills */
	struct oom_control *control;
	const char *message;
	__u32 chosen; /* process */
	__u32 victim; /* process whose mark makes it an event, or 0 */
	bool begun;   /* the chosen process was the first */
	bool group;   /* members of its group follow, and it once more */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct killing);
} oom_kill_now SEC(".maps");

static __always_inline struct killing *killing(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&oom_kill_now, &zero);
}

/* What a process has of a kind of memory; below 0 is the error of an approximate sum. The kind must be a constant: CO-RE then knows the place. */
#define MEMORY_OF(mm, kind) \
	({ \
		struct mm_struct___old *old = (void *)(mm); \
		__s64 pages = bpf_core_field_exists(old->rss_stat.count) ? BPF_CORE_READ(old, rss_stat.count[kind].counter) \
									  : BPF_CORE_READ(mm, rss_stat[kind].count); \
		pages > 0 ? (__u64)pages << page_shift : 0; \
	})

/* Memory that a page_counter does not limit has a limit of LONG_MAX / PAGE_SIZE pages or more. */
static __always_inline bool limit_of(struct mem_cgroup *memory, __u64 *bytes)
{
	__u64 pages = BPF_CORE_READ(memory, memory.max);

	*bytes = pages << page_shift;
	return pages < 0x7fffffffffffffffULL >> page_shift;
}

static __always_inline void oom_kill_capture(struct oom_kill *e, struct task_struct *victim, struct killing *now, enum stage stage)
{
	struct task_struct___memory *task = (void *)victim;
	struct oom_control *control = now->control;
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct mem_cgroup *memory = BPF_CORE_READ(control, memcg);
	__u64 value = 0;

	CAPTURE_TIME(oom_kill, e, stage);
	CAPTURE_FROM_TASK(oom_kill, e, victim, stage);
	if (WANT(oom_kill, limit_cgroup, stage) && cgroup_of_memory(memory, &value))
		SET(e, limit_cgroup, value);
	if (WANT(oom_kill, limit, stage) && memory && limit_of(memory, &value))
		SET(e, limit, value);
	if (WANT(oom_kill, anon, stage))
		e->anon = MEMORY_OF(mm, MM_ANONPAGES);
	if (WANT(oom_kill, file, stage))
		e->file = MEMORY_OF(mm, MM_FILEPAGES);
	if (WANT(oom_kill, shmem, stage))
		e->shmem = MEMORY_OF(mm, MM_SHMEMPAGES);
	if (WANT(oom_kill, swap, stage))
		e->swap = MEMORY_OF(mm, MM_SWAPENTS);
	if (WANT(oom_kill, pagetables, stage))
		e->pagetables = BPF_CORE_READ(mm, pgtables_bytes.counter);
	if (WANT(oom_kill, total, stage))
		e->total = (__u64)BPF_CORE_READ(mm, total_vm) << page_shift;
	if (WANT(oom_kill, score_adj, stage))
		e->score_adj = BPF_CORE_READ(task, signal, oom_score_adj);
	if (WANT(oom_kill, points, stage) && !now->group && BPF_CORE_READ(control, chosen_points))
		SET(e, points, BPF_CORE_READ(control, chosen_points));
	if (WANT(oom_kill, constraint, stage))
		e->constraint = BPF_CORE_READ(control, constraint);
	if (WANT(oom_kill, order, stage) && BPF_CORE_READ(control, order) >= 0)
		SET(e, order, BPF_CORE_READ(control, order));
	if (WANT(oom_kill, gfp, stage))
		e->gfp = BPF_CORE_READ(control, gfp_mask);
	if (WANT(oom_kill, group, stage))
		e->group = now->group;
	if (WANT(oom_kill, trigger.pid, stage))
		e->trigger.pid = bpf_get_current_pid_tgid() >> 32;
	if (WANT(oom_kill, trigger.comm, stage))
		READ_COMM(e->trigger.comm);
	if (WANT(oom_kill, trigger.cgroup, stage))
		e->trigger.cgroup = current_cgroup();
	if (WANT(oom_kill, message, stage))
		READ_STRING(e->message, now->message);
}

static __always_inline int oom_kill_begin(void *ctx, __u64 oc, __u64 message, __u64 unused)
{
	struct oom_control *control = (void *)oc;
	struct killing *now = killing();

	if (!now)
		return 0;
	now->thread = bpf_get_current_pid_tgid();
	now->control = control;
	now->message = (void *)message;
	now->chosen = BPF_CORE_READ(control, chosen, tgid);
	now->victim = 0;
	now->begun = false;
	return 0;
}

static __always_inline int oom_kill_of(void *ctx, __u64 task, __u64 message, __u64 unused)
{
	__u32 process = BPF_CORE_READ((struct task_struct *)task, tgid);
	struct killing *now = killing();

	if (!now)
		return 0;
	if (now->thread != bpf_get_current_pid_tgid()) {
		oom_kill_count(UNSEEN);
		return 0;
	}
	now->group = now->begun;
	now->begun = true;
	now->victim = now->group && process == now->chosen ? 0 : process;
	return 0;
}

static __always_inline int oom_kill_mark(void *ctx, __u64 task, __u64 none, __u64 unused)
{
	struct task_struct *victim = (void *)task;
	struct killing *now = killing();
	struct oom_kill e;

	if (!now || now->thread != bpf_get_current_pid_tgid() || !now->victim || now->victim != BPF_CORE_READ(victim, tgid))
		return 0;
	now->victim = 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(oom_kill, ctx, &e, victim, now);
	return 0;
}

ON_ENTER(oom_kill, oom_kill_process, 2, oom_kill_begin)
ON_ENTER(oom_kill, __oom_kill_process, 2, oom_kill_of)
ON_ENTER(oom_kill, mark_oom_victim, 1, oom_kill_mark)
