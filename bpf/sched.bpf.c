//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scheduler: the raw tracepoint sched_switch and others (include/trace/events/sched.h). sched_switch comes before the kernel accounts for
 * the wait of the next task (sched_info_arrive, kernel/sched/stats.h), so what that will add to /proc/TID/schedstat is known.
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

/* The states of a task, and what may be beside them: TASK_WAKEKILL, TASK_FREEZABLE, __TASK_FREEZABLE_UNSAFE; include/linux/sched.h */
enum task_state {
	task_state__RUNNING = 0,
	task_state__INTERRUPTIBLE = 0x1,
	task_state__UNINTERRUPTIBLE = 0x2,
	task_state__STOPPED = 0x4,
	task_state__TRACED = 0x8,
	task_state__PARKED = 0x40,
	task_state__DEAD = 0x80,
	task_state__WAKING = 0x200, /* before 5.18: it is woken on its way out */
	task_state__IDLE = 0x402,
	task_state__RTLOCK = 0x1000,
	task_state__FROZEN = 0x8000,
};
#define BESIDE_STATE 0x6100

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct rq {
	__u64 clock;
	int cpu;
};
struct cgroup_root___hierarchy {
	int hierarchy_id;
};
struct cgroup___hierarchy {
	struct kernfs_node *kn;
	struct cgroup_root___hierarchy *root;
};
struct cgroup_subsys_state___group {
	struct cgroup___hierarchy *cgroup;
};
struct task_group {
	struct cgroup_subsys_state___group css;
};
struct cfs_rq {
	struct rq *rq;
	struct task_group *tg;
	__u64 throttled_clock;
	int throttled;
};
struct sched_entity {
	struct cfs_rq *cfs_rq; /* of the task's cgroup, on the CPU that it waits for */
	unsigned char sched_delayed; /* since 6.12 */
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
struct task_struct___iowait {
	unsigned int in_iowait : 1;
};
struct task_struct___hung {
	unsigned long last_switch_time; /* CONFIG_DETECT_HUNG_TASK */
};
#pragma clang attribute pop

ARGUMENTS(sched_switch);

/* The state of a task: `state` was a long. */
static __always_inline __u32 state_of(void *task)
{
	struct task_struct___queued *now = task;
	struct task_struct___old *old = task;

	if (bpf_core_field_exists(now->__state))
		return BPF_CORE_READ(now, __state);
	return BPF_CORE_READ(old, state);
}

/*
 * The state in which a task leaves the CPU; ctx has the arguments of sched_switch: bool preempt, struct task_struct *prev, struct task_struct *next,
 * and since 5.18 unsigned int prev_state, because a task on its way to another CPU may have another state already (fa2c3254d7cf). Who is
 * preempted goes on to run, whatever it was about to wait for. On PREEMPT_RT, who waits for a lock may have the mark of a preemption, too.
 */
static __always_inline enum task_state left_in(__u64 *ctx)
{
	__u32 state = sched_switch_arguments > 3 ? ctx[3] : state_of((void *)ctx[1]);

	if ((__u8)ctx[0] && !(state & task_state__RTLOCK))
		return task_state__RUNNING;
	return state & ~BESIDE_STATE;
}

struct sched_switch {
	COMMON();
	enum task_state state DOC("what the task leaves for; RUNNING: it is preempted, or yields");
	struct {
		__u32 pid DOC("process that comes; 0 is the idle task");
		__u32 tid VERBOSE DOC("thread that comes");
		cgroup_t cgroup VERBOSE DOC("its cgroup");
		char comm[16] DOC("its name");
	} next;
} DOC("a task leaves a CPU and another one comes (raw tracepoint sched_switch); the task of the event is the one that leaves");
EVENT(sched_switch)

static __always_inline void sched_switch_capture(struct sched_switch *e, __u64 *ctx, struct task_struct *next, enum stage stage)
{
	CAPTURE_COMMON(sched_switch, e, stage);
	if (WANT(sched_switch, state, stage))
		e->state = left_in(ctx);
	if (WANT(sched_switch, next.pid, stage))
		e->next.pid = BPF_CORE_READ(next, tgid);
	if (WANT(sched_switch, next.tid, stage))
		e->next.tid = BPF_CORE_READ(next, pid);
	if (WANT(sched_switch, next.cgroup, stage))
		e->next.cgroup = cgroup_of((void *)next);
	if (WANT(sched_switch, next.comm, stage))
		READ_STRING(e->next.comm, next->comm);
}

SEC("raw_tp/sched_switch")
int raw_tp_sched_switch(__u64 *ctx)
{
	struct sched_switch e;

	EMIT(sched_switch, ctx, &e, ctx, (void *)ctx[2]);
	return 0;
}

/*
 * Since 6.12 a task that falls asleep may stay in the queue of its CPU for a while (delayed dequeue). If it is moved to another CPU then, the
 * kernel takes it for ready, and counts until it gets a CPU: all of its sleep (enqueue_task, kernel/sched/core.c).
 */
#define COUNTS_SLEEP "counts sleep as well, as since 6.12 of tasks that are moved to another CPU as they fall asleep"

struct sched_runq {
	COMMON();
	ns_t latency NEEDS(sched_moved) DOC("how long the task was ready and waited for a CPU, as its /proc/TID/schedstat counts; absent if the kernel does not account for it, or " COUNTS_SLEEP);
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
	bool asleep; /* COUNTS_SLEEP */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct waited);
} sched_runq_waited SEC(".maps");

static __always_inline void keep_waited(struct task_struct___queued *task, __u32 tid, __u64 total, bool asleep)
{
	struct waited waited = {.task = (__u64)task, .total = total, .asleep = asleep};

	if (bpf_map_update_elem(&sched_runq_waited, &tid, &waited, BPF_ANY))
		sched_runq_count(INFLIGHT_FULL);
}

volatile __u64 sched_runq_began SEC(".data"); /* when the program ran first */

/* How long the task has waited since it had a CPU; false if the kernel does not account for it, or may count its sleep. */
static __always_inline bool wait_of(struct task_struct___queued *task, __u32 tid, __u64 *wait)
{
	__u64 queued, total;
	__u64 now;
	struct waited *before;

	/* CONFIG_SCHED_INFO, CONFIG_FAIR_GROUP_SCHED */
	if (!bpf_core_field_exists(task->sched_info.last_queued) || !bpf_core_field_exists(task->se.cfs_rq))
		return false;
	queued = BPF_CORE_READ(task, sched_info.last_queued);
	total = BPF_CORE_READ(task, sched_info.run_delay);
	if (!queued)
		return false;
	before = bpf_map_lookup_elem(&sched_runq_waited, &tid);
	now = BPF_CORE_READ(task, se.cfs_rq, rq, clock);
	*wait = now - queued;
	if (before && before->task == (__u64)task) {
		__u64 moved = total - before->total;
		bool asleep = before->asleep;

		*wait += moved;
		before->total += *wait;
		before->asleep = false;
		return !asleep;
	}
	keep_waited(task, tid, total + *wait, false);
	/* Whether it was asleep before is unknown. */
	if (!sched_runq_began)
		sched_runq_began = now;
	return !bpf_core_field_exists(task->se.sched_delayed) || queued >= sched_runq_began;
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

SEC("raw_tp/sched_switch")
int raw_tp_sched_runq(__u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	__u32 tid = BPF_CORE_READ(next, pid);
	__u64 wait = 0;
	bool waited = false;
	struct sched_runq e;

	if (WANTED(sched_runq, latency) && state_of((void *)ctx[1]) & task_state__DEAD) {
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

struct sched_offcpu {
	COMMON();
	ns_t latency DOC("how long the task was off the CPU, by the scheduler's clock");
	ns_t runq NEEDS(sched_moved) DOC("part of it for which it was ready and waited for a CPU, as its /proc/TID/schedstat counts; absent if the kernel does not account for it, or " COUNTS_SLEEP);
	ns_t blocked NEEDS(sched_moved) DOC("the rest: for which it was not ready; absent if runq is");
	enum task_state state DOC("what it left for; RUNNING: it was preempted, or yielded");
	bool iowait DOC("it waited for a device, as far as the kernel marks that (in_iowait)");
	struct {
		__u32 pid NEEDS(sched_waker)
			DOC("process that woke it; absent if an interrupt did, if it was not seen, and where kallsyms does not show whether an interrupt did");
		__u32 tid NEEDS(sched_waker) VERBOSE DOC("thread that woke it; absent like waker.pid");
		bool irq NEEDS(sched_waker) DOC("an interrupt woke it, like a timer or a device; absent if that was not seen, and where kallsyms does not show it");
		struct {
			HAS_PAD;
			__u32 pid : 1;
			__u32 tid : 1;
			__u32 irq : 1;
			__u32 comm : 1;
		} has HAS_ALIGN;
		char comm[16] NEEDS(sched_waker) DOC("name of that thread; absent like waker.pid");
	} waker;
	struct {
		HAS_PAD;
		__u32 runq : 1;
		__u32 blocked : 1;
	} has HAS_ALIGN;
} STACK_OF_ARGUMENT(2) DOC("a task gets a CPU again (raw tracepoint sched_switch); the task of the event is that task, and kstack is where it waited");
EVENT(sched_offcpu)

/* When and how a task left the CPU. */
struct left {
	__u64 clock; /* 0: it has a CPU */
	__u64 run_delay;
	__u32 state;
	bool asleep; /* COUNTS_SLEEP */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct left);
} sched_offcpu_left SEC(".maps");

/* Who woke a task that has not got a CPU since. */
struct waker {
	__u32 pid, tid;
	char comm[16];
	enum { NOBODY, TASK, INTERRUPT } by;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct waker);
} sched_waker_of SEC(".maps");

/* The clock of the CPU that a task is on or waits for, as the kernel accounts by it; another one without CONFIG_FAIR_GROUP_SCHED. */
static __always_inline __u64 clock_of(struct task_struct___queued *task)
{
	if (!bpf_core_field_exists(task->se.cfs_rq))
		return bpf_ktime_get_ns();
	return BPF_CORE_READ(task, se.cfs_rq, rq, clock);
}

static __always_inline __u64 run_delay_of(struct task_struct___queued *task)
{
	return bpf_core_field_exists(task->sched_info.run_delay) ? BPF_CORE_READ(task, sched_info.run_delay) : 0;
}

/* How long the task has been ready since it left. What it waited before it was moved to another CPU is in run_delay. */
static __always_inline bool ready_since(struct task_struct___queued *task, struct left *left, __u64 now, __u64 *ready)
{
	__u64 queued = 0;

	if (bpf_core_field_exists(task->sched_info.last_queued) && bpf_core_field_exists(task->se.cfs_rq))
		queued = BPF_CORE_READ(task, sched_info.last_queued);
	*ready = run_delay_of(task) - left->run_delay + now - queued;
	return queued != 0 && !left->asleep;
}

static __always_inline bool waits_for_device(struct task_struct___iowait *task)
{
	__u64 iowait = 0;

	return GET(&iowait, task, in_iowait) && iowait;
}

static __always_inline void sched_offcpu_capture_waker(struct sched_offcpu *e, struct waker *waker, enum stage stage)
{
	bool task = waker && waker->by == TASK;

	if (WANT(sched_offcpu, waker.pid, stage) && task)
		SET(&e->waker, pid, waker->pid);
	if (WANT(sched_offcpu, waker.tid, stage) && task)
		SET(&e->waker, tid, waker->tid);
	if (WANT(sched_offcpu, waker.irq, stage) && waker && waker->by != NOBODY)
		SET(&e->waker, irq, waker->by == INTERRUPT);
	if (WANT(sched_offcpu, waker.comm, stage) && task) {
		__builtin_memcpy(e->waker.comm, waker->comm, sizeof(e->waker.comm));
		e->waker.has.comm = 1;
	}
}

static __always_inline void sched_offcpu_capture(struct sched_offcpu *e, struct task_struct *next, struct left *left, struct waker *waker, enum stage stage)
{
	__u64 now = 0, ready = 0;
	bool known = false;

	CAPTURE_TIME(sched_offcpu, e, stage);
	CAPTURE_FROM_TASK(sched_offcpu, e, next, stage);
	if (WANT(sched_offcpu, latency, stage) || WANT(sched_offcpu, runq, stage) || WANT(sched_offcpu, blocked, stage))
		now = clock_of((void *)next);
	if (WANT(sched_offcpu, latency, stage))
		e->latency = now - left->clock;
	if (WANT(sched_offcpu, runq, stage) || WANT(sched_offcpu, blocked, stage))
		known = ready_since((void *)next, left, now, &ready);
	if (WANT(sched_offcpu, runq, stage) && known)
		SET(e, runq, ready);
	if (WANT(sched_offcpu, blocked, stage) && known)
		/* The clocks of two CPUs differ a little. */
		SET(e, blocked, now - left->clock > ready ? now - left->clock - ready : 0);
	if (WANT(sched_offcpu, state, stage))
		e->state = left->state;
	if (WANT(sched_offcpu, iowait, stage))
		e->iowait = waits_for_device((void *)next);
	sched_offcpu_capture_waker(e, waker, stage);
}

#define WANTED_OF_WAKER \
	(WANTED(sched_offcpu, waker.pid) || WANTED(sched_offcpu, waker.tid) || WANTED(sched_offcpu, waker.irq) || WANTED(sched_offcpu, waker.comm))

/* The current task leaves. A dead one does not come back, and its number is used again. */
static __always_inline void leaves(struct task_struct *task, enum task_state state)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct left now = {.clock = clock_of((void *)task), .run_delay = run_delay_of((void *)task), .state = state}, *left;

	if (!tid)
		return;
	if (state == task_state__DEAD) {
		bpf_map_delete_elem(&sched_offcpu_left, &tid);
		if (WANTED_OF_WAKER)
			bpf_map_delete_elem(&sched_waker_of, &tid);
		return;
	}
	left = bpf_map_lookup_elem(&sched_offcpu_left, &tid);
	if (left)
		*left = now;
	else if (bpf_map_update_elem(&sched_offcpu_left, &tid, &now, BPF_ANY))
		sched_offcpu_count(INFLIGHT_FULL);
}

SEC("tp_btf/sched_switch")
int tp_btf_sched_offcpu(__u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	__u32 tid = BPF_CORE_READ(next, pid);
	struct waker *waker = 0;
	struct left *left;
	struct sched_offcpu e;

	leaves((void *)ctx[1], left_in(ctx));
	if (!tid)
		return 0;
	left = bpf_map_lookup_elem(&sched_offcpu_left, &tid);
	if (!left || !left->clock)
		return 0; /* it is new, or left before this program was there */
	if (WANTED_OF_WAKER)
		waker = bpf_map_lookup_elem(&sched_waker_of, &tid);
	__builtin_memset(&e.has, 0, sizeof(e.has));
	__builtin_memset(&e.waker.has, 0, sizeof(e.waker.has));
	/* Who wakes a task that is ready does nothing for it. */
	EMIT(sched_offcpu, ctx, &e, next, left, left->state == task_state__RUNNING ? 0 : waker);
	left->clock = 0;
	if (waker)
		waker->by = NOBODY;
	return 0;
}

/* Argument: struct task_struct *, the task that is about to be woken. The current one wakes it, or an interrupt. */
SEC("raw_tp/sched_waking")
int raw_tp_sched_waker(__u64 *ctx)
{
	struct waker waker = {};
	__u32 tid = BPF_CORE_READ((struct task_struct *)ctx[0], pid);
	__u32 count;

	if (!preempt_count(&count))
		return 0;
	waker.by = count & IN_INTERRUPT ? INTERRUPT : TASK;
	waker.pid = bpf_get_current_pid_tgid() >> 32;
	waker.tid = bpf_get_current_pid_tgid();
	READ_COMM(waker.comm);
	if (bpf_map_update_elem(&sched_waker_of, &tid, &waker, BPF_ANY))
		sched_offcpu_count(INFLIGHT_FULL);
	return 0;
}

/* Arguments: struct task_struct *, int. */
SEC("raw_tp/sched_migrate_task")
int raw_tp_sched_moved(__u64 *ctx)
{
	struct task_struct___queued *task = (void *)ctx[0];
	__u32 tid = BPF_CORE_READ((struct task_struct *)ctx[0], pid);
	__u64 delayed = 0;

	if (!GET(&delayed, task, se.sched_delayed) || !delayed)
		return 0;
	if (WANTED(sched_runq, latency)) {
		struct waited *waited = bpf_map_lookup_elem(&sched_runq_waited, &tid);

		if (waited && waited->task == (__u64)task)
			waited->asleep = true;
		else
			keep_waited(task, tid, run_delay_of(task), true);
	}
	if (WANTED(sched_offcpu, runq) || WANTED(sched_offcpu, blocked)) {
		struct left *left = bpf_map_lookup_elem(&sched_offcpu_left, &tid);

		if (left)
			left->asleep = true;
	}
	return 0;
}

struct sched_migrate {
	COMMON();
	__u32 from DOC("CPU that the task was on, or waited for; absent without CONFIG_FAIR_GROUP_SCHED");
	__u32 to DOC("CPU that it will run on");
	struct {
		HAS_PAD;
		__u32 from : 1;
	} has HAS_ALIGN;
} DOC("a task is moved to another CPU (raw tracepoint sched_migrate_task); the task of the event is that task, while it waits or sleeps");
EVENT(sched_migrate)

static __always_inline void sched_migrate_capture(struct sched_migrate *e, struct task_struct *task, bool known, __u32 from, __u32 to, enum stage stage)
{
	CAPTURE_TIME(sched_migrate, e, stage);
	CAPTURE_FROM_TASK(sched_migrate, e, task, stage);
	if (WANT(sched_migrate, from, stage) && known)
		SET(e, from, from);
	if (WANT(sched_migrate, to, stage))
		e->to = to;
}

/* Arguments: struct task_struct *, int. It also comes where the task stays (set_task_cpu, kernel/sched/core.c). */
SEC("raw_tp/sched_migrate_task")
int raw_tp_sched_migrate(__u64 *ctx)
{
	struct task_struct___queued *task = (void *)ctx[0];
	__u32 to = ctx[1], from = 0;
	bool known = bpf_core_field_exists(task->se.cfs_rq);
	struct sched_migrate e;

	if (known)
		from = BPF_CORE_READ(task, se.cfs_rq, rq, cpu);
	if (known && from == to)
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(sched_migrate, ctx, &e, (struct task_struct *)task, known, from, to);
	return 0;
}

struct sched_throttle {
	COMMON();
	ns_t latency DOC("how long it might not run there, as throttled_usec in its cpu.stat adds up for all CPUs");
	__u32 runqueue DOC("CPU on which the cgroup might not run");
	struct {
		HAS_PAD;
		TASK_HAS();
	} has HAS_ALIGN;
} DOC("a cgroup may run on a CPU again after it used up its quota, cpu.max (unthrottle_cfs_rq); it has a cgroup, and no task");
EVENT(sched_throttle)

/* What a CPU lets run again: it does so with interrupts off. */
struct throttled {
	struct cfs_rq *group; /* NULL: nothing */
	__u64 since;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct throttled);
} sched_throttle_begun SEC(".maps");

static __always_inline struct throttled *throttled_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sched_throttle_begun, &zero);
}

static __always_inline int throttle_enter(void *ctx, __u64 a0, __u64 a1, __u64 a2)
{
	struct throttled *here = throttled_here();
	struct cfs_rq *group = (void *)a0;

	if (!here)
		return 0;
	here->group = group;
	here->since = BPF_CORE_READ(group, throttled_clock);
	return 0;
}

/* The id of the group's cgroup; false if the controller is in a hierarchy of v1, as only v2's is 0. */
static __always_inline bool cgroup_of_group(struct cfs_rq *group, __u64 *id)
{
	struct cgroup___hierarchy *cgroup = BPF_CORE_READ(group, tg, css.cgroup);

	*id = BPF_CORE_READ(cgroup, kn, id);
	return cgroup_controller == CGROUP_V2 && BPF_CORE_READ(cgroup, root, hierarchy_id) == 0;
}

static __always_inline void sched_throttle_capture(struct sched_throttle *e, struct cfs_rq *group, __u64 since, enum stage stage)
{
	__u64 id;

	CAPTURE_TIME(sched_throttle, e, stage);
	if (WANT(sched_throttle, cgroup, stage) && cgroup_of_group(group, &id))
		SET(e, cgroup, id);
	if (WANT(sched_throttle, latency, stage))
		e->latency = BPF_CORE_READ(group, rq, clock) - since;
	if (WANT(sched_throttle, runqueue, stage))
		e->runqueue = BPF_CORE_READ(group, rq, cpu);
}

static __always_inline int throttle_leave(void *ctx, __s64 ret)
{
	struct throttled *here = throttled_here();
	struct sched_throttle e;
	struct cfs_rq *group;
	__u64 still = 0;

	if (!here || !here->group)
		return 0;
	group = here->group;
	here->group = 0;
	/* It may have too little time to go on. Since 7.0, its clock runs only if a task of it was held up. */
	if (!here->since || (GET(&still, group, throttled) && still))
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(sched_throttle, ctx, &e, group, here->since);
	return 0;
}
ON_CALL(sched_throttle, unthrottle_cfs_rq, 1, throttle_enter, throttle_leave)

struct sched_hung {
	COMMON();
	ns_t latency DOC("how long it is blocked, at least: since khungtaskd saw it so first; absent where the kernel does not keep that");
	enum task_state state DOC("its state");
	bool iowait DOC("it waits for a device, as far as the kernel marks that (in_iowait)");
	struct {
		HAS_PAD;
		__u32 latency : 1;
	} has HAS_ALIGN;
} STACK_OF_ARGUMENT(0) DOC("khungtaskd finds a task that is blocked for longer than kernel.hung_task_timeout_secs (raw tracepoint sched_process_hang); the task of the event is that task, and kstack is where it waits");
EVENT(sched_hung)

/*
 * How long a tick is, TICK_NSEC. The kernel's variable of that name is gone since 6.13, so Go asks for the resolution of a
 * coarse clock; 0 is unknown.
 */
const volatile __u32 tick_ns SEC(".rodata");

/* How long the task is blocked: khungtaskd keeps when it first saw that, in ticks (check_hung_task, kernel/hung_task.c). */
static __always_inline bool hung_for(struct task_struct___hung *task, __u64 *ns)
{
	__u64 since = 0;

	if (!tick_ns || !GET(&since, task, last_switch_time))
		return false;
	*ns = (bpf_jiffies64() - since) * tick_ns;
	return true;
}

static __always_inline void sched_hung_capture(struct sched_hung *e, struct task_struct *task, enum stage stage)
{
	__u64 latency;

	CAPTURE_TIME(sched_hung, e, stage);
	CAPTURE_FROM_TASK(sched_hung, e, task, stage);
	if (WANT(sched_hung, latency, stage) && hung_for((void *)task, &latency))
		SET(e, latency, latency);
	if (WANT(sched_hung, state, stage))
		e->state = state_of(task) & ~BESIDE_STATE;
	if (WANT(sched_hung, iowait, stage))
		e->iowait = waits_for_device((void *)task);
}

SEC("tp_btf/sched_process_hang")
int tp_btf_sched_hung(__u64 *ctx)
{
	struct sched_hung e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(sched_hung, ctx, &e, (struct task_struct *)ctx[0]);
	return 0;
}
