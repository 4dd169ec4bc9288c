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
