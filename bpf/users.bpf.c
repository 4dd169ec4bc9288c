//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reports the processes that make objects of RDMA devices, each time, and the QPs that they change: probes/verbs then looks into them. */
#include "trace.h"
#include "ib_uobject.h"
#include "verbs_callers.h"

/* include/rdma/restrack.h */
enum rdma_restrack_type { RDMA_RESTRACK_CTX = 5 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct rdma_restrack_entry {
	enum rdma_restrack_type type;
};
#pragma clang attribute pop

struct user {
	__u64 qp;    /* address of the program's struct ibv_qp; 0: an object was made */
	__u32 pid;
	__u32 num;   /* the kernel's number of the QP */
	__u32 event; /* enum event */
	__u32 : 32;
	__u64 nsecs; /* since boot without suspension, of OPENS */
};

enum event {
	OTHER,
	OPENS,    /* the object that was made is a context: the process opens a device */
	CAN_SEND, /* the QP goes to RTS */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 262144);
} users SEC(".maps");

/* Without room it is reported with its next object. */
static __always_inline int report(struct user *user)
{
	user->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_ringbuf_output(&users, user, sizeof(*user), 0);
	return 0;
}

SEC("kprobe/rdma_restrack_add")
int kprobe_users(struct kprobe_regs *ctx)
{
	struct user user = {};
	__u32 type = 0;

	GET(&type, (struct rdma_restrack_entry *)KPROBE_ARG0(ctx), type);
	if (type == RDMA_RESTRACK_CTX) {
		user.event = OPENS;
		user.nsecs = bpf_ktime_get_ns();
	}
	return report(&user);
}

/* enum ib_qp_attr_mask and enum ib_qp_state, include/rdma/ib_verbs.h */
enum { IB_QP_STATE = 1, IB_QPS_RTS = 3 };

/* ib_modify_qp_with_udata(struct ib_qp *, struct ib_qp_attr *, int attr_mask, struct ib_udata *); the attributes begin with the state. */
SEC("kprobe/ib_modify_qp_with_udata")
int kprobe_users_qp(struct kprobe_regs *ctx)
{
	struct user user = { .qp = user_handle(KPROBE_ARG0(ctx)) };
	__u32 state = 0;

	if (!user.qp)
		return 0;
	GET(&user.num, (struct ib_qp *)KPROBE_ARG0(ctx), qp_num);
	bpf_probe_read_kernel(&state, sizeof(state), (void *)KPROBE_ARG1(ctx));
	if (KPROBE_ARG2(ctx) & IB_QP_STATE && state == IB_QPS_RTS)
		user.event = CAN_SEND;
	return report(&user);
}

/* A function of the data path, attached to nothing else. */
SEC("uprobe")
int uprobe_users_caller(void *ctx)
{
	keep_caller();
	return 0;
}
