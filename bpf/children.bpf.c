//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The processes of a tree: some that user space names, and all that they fork. Generated code looks up the pid of each event.
 *
 * The map has a byte for every possible process id instead of a hash: there is always room, and a lookup is one load.
 */
#include "trace.h"

/* The greatest process id plus one: PID_MAX_LIMIT of a 64-bit kernel, include/linux/threads.h. */
#define PIDS (4 * 1024 * 1024)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
	__s32 pid;
};
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, PIDS);
} members SEC(".maps");

/*
 * Arguments: struct task_struct *parent, *child. The parent is the current task (kernel_fork in kernel/fork.c), and the child does
 * not run yet.
 *
 * An id stays when its process ends, because events of the process come later, too: of QPs that the kernel closes for it, of its NVMe
 * commands. It leaves the tree when a process outside the tree forks one that gets the same id. A new thread is added like a process:
 * no event has a thread's id as its pid.
 */
SEC("raw_tp/sched_process_fork")
int raw_tp_children(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[1];
	__u32 parent = bpf_get_current_pid_tgid() >> 32;
	__u32 child = BPF_CORE_READ(task, pid);
	__u32 zero = 0;
	__u8 *member = bpf_map_lookup_elem(&members, &zero);

	if (member && parent < PIDS && child < PIDS)
		member[child] = member[parent];
	return 0;
}
