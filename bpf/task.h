/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Views of a task that is not the current one (include/linux/sched.h), and its cgroup. */
#pragma once
#include "trace.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
	__s32 pid;
	__s32 tgid;
	char comm[16];
};
struct kernfs_node {
	__u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct css_set {
	struct cgroup *dfl_cgrp;
};
struct cred {
	struct {
		__u32 val;
	} uid;
};
struct task_struct___owner {
	const struct cred *cred;
	struct css_set *cgroups;
};
#pragma clang attribute pop

/* The id of the cgroup of a task that is not the current one. */
static __always_inline __u64 cgroup_of(struct task_struct___owner *task)
{
	if (cgroup_controller == CGROUP_V2)
		return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	return v1_cgroup((void *)task);
}

/* Captures the common fields, without the time and the CPU, from a task that is not the current one. */
#define CAPTURE_FROM_TASK(X, e, task, stage) \
	do { \
		struct task_struct___owner *owner = (void *)(task); \
		if (WANT(X, pid, stage)) \
			(e)->pid = BPF_CORE_READ(task, tgid); \
		if (WANT(X, tid, stage)) \
			(e)->tid = BPF_CORE_READ(task, pid); \
		if (WANT(X, uid, stage)) \
			(e)->uid = BPF_CORE_READ(owner, cred, uid.val); \
		if (WANT(X, cgroup, stage)) \
			(e)->cgroup = cgroup_of(owner); \
		if (WANT(X, comm, stage)) \
			READ_STRING((e)->comm, (task)->comm); \
		CAPTURE_OF_TASK(X, e, task, stage); \
	} while (0)

/*
 * The kernel's preempt_count() of this CPU: what a program interrupts. False if the kernel does not show where it is. On amd64 that is a
 * variable of each CPU, from 6.2 to 6.14 in pcpu_hot; /proc/kallsyms has variables with CONFIG_KALLSYMS_ALL.
 */
#if defined(__TARGET_ARCH_x86)
extern void __per_cpu_offset __ksym __weak;
extern void __preempt_count __ksym __weak;
extern void pcpu_hot __ksym __weak;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pcpu_hot {
	int preempt_count;
};
#pragma clang attribute pop

static __always_inline bool preempt_count(__u32 *count)
{
	__u64 at = (__u64)&__preempt_count, offset = 0;

	if (!at && &pcpu_hot && bpf_core_field_exists(((struct pcpu_hot *)0)->preempt_count))
		at = (__u64)&pcpu_hot + bpf_core_field_offset(((struct pcpu_hot *)0)->preempt_count);
	if (!at || bpf_probe_read_kernel(&offset, sizeof(offset), (void *)&__per_cpu_offset + 8 * bpf_get_smp_processor_id()))
		return false;
	return !bpf_probe_read_kernel(count, sizeof(*count), (void *)(offset + at));
}
#elif defined(__TARGET_ARCH_arm64)
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_info {
	struct {
		__u32 count;
	} preempt;
};
struct task_struct___thread {
	struct thread_info thread_info;
};
#pragma clang attribute pop

static __always_inline bool preempt_count(__u32 *count)
{
	struct task_struct___thread *task = (void *)bpf_get_current_task();

	*count = BPF_CORE_READ(task, thread_info.preempt.count);
	return true;
}
#endif

/* HARDIRQ_MASK and NMI_MASK, and of SOFTIRQ_MASK what an interrupt sets rather than local_bh_disable(): include/linux/preempt.h */
#define IN_INTERRUPT 0xff0100
