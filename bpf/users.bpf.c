//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reports the processes that make objects of RDMA devices, each time: probes/verbs then looks into them. */
#include "trace.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} users SEC(".maps");

SEC("kprobe/rdma_restrack_add")
int kprobe_users(void *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	/* Without room it is reported with its next object. */
	bpf_ringbuf_output(&users, &pid, sizeof(pid), 0);
	return 0;
}
