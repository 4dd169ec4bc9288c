//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scheduler: the raw tracepoint sched_switch (include/trace/events/sched.h). It comes before the kernel accounts for the wait of the next
 * task (sched_info_arrive, kernel/sched/stats.h), so what that will add to /proc/TID/schedstat is known.
 */
#include "task.h"

/* SCHED_*, include/uapi/linux/sched.h */
enum sched_policy {
	sched_policy__NORMAL,
	sched_policy__FIFO,
	sched_policy__RR,
	sched_policy__BATCH,
	sched_policy__IDLE = 5,
	sched_policy__DEADLINE,
	sched_policy__EXT,
};

/* TASK_DEAD, include/linux/sched.h */
#define DEAD 0x80

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct rq {
	__u64 clock;
};
struct cfs_rq {
	struct rq *rq;
};
struct sched_entity {
	struct cfs_rq *cfs_rq; /* of the task's cgroup, on the CPU that it waits for */
};
struct sched_info {
	__u64 run_delay;
	__u64 last_queued;
};
struct task_struct___queued {
	__s32 prio;
	__u32 policy;
	struct sched_entity se;
	struct sched_info sched_info;
	__u32 __state;
};
struct task_struct___old { /* before 5.14 */
	long state;
};
#pragma clang attribute pop

struct sched_runq {
	COMMON();
	ns_t latency DOC("how long the task was ready and waited for a CPU, as its /proc/TID/schedstat counts; absent if the kernel does not account for it");
	__s32 prio VERBOSE DOC("its priority: 0 to 99 of a real-time task, 100 to 139 otherwise");
	enum sched_policy policy VERBOSE DOC("its scheduling policy");
	struct {
		__u32 pid DOC("process that had the CPU before it; 0 is the idle task");
		__u32 tid VERBOSE DOC("thread that had the CPU");
		cgroup_t cgroup VERBOSE DOC("its cgroup");
		char comm[16] DOC("its name");
	} prev;
	struct {
		HAS_PAD;
		__u32 latency : 1;
	} has HAS_ALIGN;
} DOC("a task gets a CPU that it has waited for (raw tracepoint sched_switch); the task of the event is that task");
EVENT(sched_runq)

/*
 * What a task had waited in total when it last got a CPU. If it is moved to another CPU while it waits, the kernel adds the first part of the
 * wait to the total at once, and counts the second anew. The task is in the value as numbers are used again.
 */
struct waited {
	__u64 task;
	__u64 total;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct waited);
} sched_runq_waited SEC(".maps");

/* The states of a task: `state` was a long. */
static __always_inline __u32 state_of(void *task)
{
	struct task_struct___queued *now = task;
	struct task_struct___old *old = task;

	if (bpf_core_field_exists(now->__state))
		return BPF_CORE_READ(now, __state);
	return BPF_CORE_READ(old, state);
}

/* How long the task has waited since it had a CPU; false if the kernel does not account for it. */
static __always_inline bool wait_of(struct task_struct___queued *task, __u32 tid, __u64 *wait)
{
	__u64 queued, total;
	struct waited *before;

	/* CONFIG_SCHED_INFO, CONFIG_FAIR_GROUP_SCHED */
	if (!bpf_core_field_exists(task->sched_info.last_queued) || !bpf_core_field_exists(task->se.cfs_rq))
		return false;
	queued = BPF_CORE_READ(task, sched_info.last_queued);
	total = BPF_CORE_READ(task, sched_info.run_delay);
	if (!queued)
		return false;
	before = bpf_map_lookup_elem(&sched_runq_waited, &tid);
	*wait = BPF_CORE_READ(task, se.cfs_rq, rq, clock) - queued;
	if (before && before->task == (__u64)task) {
		__u64 moved = total - before->total;

		*wait += moved;
		before->total += *wait;
	} else {
		struct waited waited = {.task = (__u64)task, .total = total + *wait};

		if (bpf_map_update_elem(&sched_runq_waited, &tid, &waited, BPF_ANY))
			sched_runq_count(INFLIGHT_FULL);
	}
	return true;
}

static __always_inline void sched_runq_capture(struct sched_runq *e, struct task_struct *next, bool waited, __u64 wait, enum stage stage)
{
	CAPTURE_TIME(sched_runq, e, stage);
	CAPTURE_FROM_TASK(sched_runq, e, next, stage);
	if (WANT(sched_runq, latency, stage) && waited)
		SET(e, latency, wait);
	if (WANT(sched_runq, prio, stage))
		e->prio = BPF_CORE_READ((struct task_struct___queued *)next, prio);
	if (WANT(sched_runq, policy, stage))
		e->policy = BPF_CORE_READ((struct task_struct___queued *)next, policy);
	/* The task that had the CPU is still the current one. */
	if (WANT(sched_runq, prev.pid, stage))
		e->prev.pid = bpf_get_current_pid_tgid() >> 32;
	if (WANT(sched_runq, prev.tid, stage))
		e->prev.tid = (__u32)bpf_get_current_pid_tgid();
	if (WANT(sched_runq, prev.cgroup, stage))
		e->prev.cgroup = current_cgroup();
	if (WANT(sched_runq, prev.comm, stage))
		READ_COMM(e->prev.comm);
}

/* Arguments: bool preempt, struct task_struct *prev, struct task_struct *next, and since 5.18 unsigned int prev_state. */
SEC("raw_tp/sched_switch")
int raw_tp_sched_runq(__u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	__u32 tid = BPF_CORE_READ(next, pid);
	__u64 wait = 0;
	bool waited = false;
	struct sched_runq e;

	if (WANTED(sched_runq, latency) && state_of((void *)ctx[1]) & DEAD) {
		__u32 dead = bpf_get_current_pid_tgid();

		bpf_map_delete_elem(&sched_runq_waited, &dead);
	}
	if (!tid)
		return 0; /* the idle task waits for nothing */
	if (WANTED(sched_runq, latency))
		waited = wait_of((void *)next, tid, &wait);
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(sched_runq, ctx, &e, next, waited, wait);
	return 0;
}
