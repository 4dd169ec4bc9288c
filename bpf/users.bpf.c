//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reports the processes that make objects of RDMA devices, each time, and the QPs that they change: probes/verbs then looks into them. */
#include "trace.h"
#include "ib_uobject.h"

struct user {
	__u64 qp; /* address of the program's struct ibv_qp; 0: an object was made */
	__u32 pid;
	__u32 : 32;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 262144);
} users SEC(".maps");

/* Without room it is reported with its next object. */
static __always_inline int report(__u64 qp)
{
	struct user user = { .qp = qp, .pid = bpf_get_current_pid_tgid() >> 32 };

	bpf_ringbuf_output(&users, &user, sizeof(user), 0);
	return 0;
}

SEC("kprobe/rdma_restrack_add")
int kprobe_users(void *ctx)
{
	return report(0);
}

SEC("kprobe/ib_modify_qp_with_udata")
int kprobe_users_qp(struct kprobe_regs *ctx)
{
	__u64 qp = user_handle(KPROBE_ARG0(ctx));

	return qp ? report(qp) : 0;
}
