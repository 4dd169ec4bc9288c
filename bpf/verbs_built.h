/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Work requests that a program builds by ibv_wr_* (struct ibv_qp_ex): a call begins each, others say what it sends, and ibv_wr_complete posts
 * them all. Programs on the first remember by thread what the event of ibv_wr_complete needs. In windows (window.h) ibv_wr_start counts, too:
 * nothing else shows that requests were built before the window. Then those that are built in it are left out with them.
 */

struct built {
	__u64 wr_id, remote_addr, bytes;
	__u32 opcode, send_flags, imm_data, rkey;
	__s32 num_sge;
	__u32 : 32;
};

/* Who has seen that the requests were posted. Then they are over, as after ibv_wr_abort. */
enum { EVENTS_SENT = 1 << 0, COMPLETIONS_AWAITED = 1 << 1, ABORTED = 1 << 2 };

struct building {
	__u64 qp;
	__u32 n; /* requests; the last one is being built */
	__u32 done;
	struct built wr[MOST];
};

const volatile struct building no_building SEC(".rodata");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct building);
} verbs_building SEC(".maps");

static __always_inline struct building *building_of(__u64 thread)
{
	struct building *b = bpf_map_lookup_elem(&verbs_building, &thread);

	if (b)
		return b;
	bpf_map_update_elem(&verbs_building, &thread, (void *)&no_building, BPF_ANY);
	return bpf_map_lookup_elem(&verbs_building, &thread);
}

static __always_inline void begin_building(struct building *b, __u64 qp)
{
	b->qp = qp;
	b->n = 0;
	b->done = 0;
}

SEC("uprobe/built__wr_start")
int uprobe_verbs_built__wr_start(struct kprobe_regs *ctx)
{
	struct building *b;

	if (!in_windows || !window_open)
		return 0;
	b = building_of(bpf_get_current_pid_tgid());
	if (b)
		begin_building(b, KPROBE_ARG0(ctx));
	return 0;
}

static __always_inline int build(struct kprobe_regs *ctx, __u32 opcode, __u64 remote_addr, __u32 rkey, __u32 imm_data)
{
	__u64 qp = KPROBE_ARG0(ctx);
	struct building *b = building_of(bpf_get_current_pid_tgid());
	struct built *wr;
	__u32 i;

	if (!b)
		return 0;
	if (b->done || b->qp != qp) {
		if (in_windows)
			return 0;
		begin_building(b, qp);
	}
	i = b->n++;
	if (i >= MOST)
		return 0;
	wr = &b->wr[i];
	wr->wr_id = MEMBER(ibv_qp_ex, qp + BEHIND_MUTEX(qp), wr_id);
	wr->send_flags = MEMBER(ibv_qp_ex, qp + BEHIND_MUTEX(qp), wr_flags);
	wr->opcode = opcode;
	wr->remote_addr = remote_addr;
	wr->rkey = rkey;
	wr->imm_data = imm_data;
	wr->num_sge = 0;
	wr->bytes = opcode == ibv_wr_opcode__ATOMIC_WRITE ? 8 : 0;
	return 0;
}

/* The parameters behind the QP, by the number of their register. */
#define ON_BUILD(call, opcode, remote_addr, rkey, imm_data) \
	SEC("uprobe/built__" #call) \
	int uprobe_verbs_built__##call(struct kprobe_regs *ctx) \
	{ \
		return build(ctx, ibv_wr_opcode__##opcode, remote_addr, rkey, imm_data); \
	}

ON_BUILD(wr_atomic_cmp_swp, ATOMIC_CMP_AND_SWP, KPROBE_ARG2(ctx), KPROBE_ARG1(ctx), 0)
ON_BUILD(wr_atomic_fetch_add, ATOMIC_FETCH_AND_ADD, KPROBE_ARG2(ctx), KPROBE_ARG1(ctx), 0)
ON_BUILD(wr_bind_mw, BIND_MW, 0, 0, 0)
ON_BUILD(wr_local_inv, LOCAL_INV, 0, 0, 0)
ON_BUILD(wr_rdma_read, RDMA_READ, KPROBE_ARG2(ctx), KPROBE_ARG1(ctx), 0)
ON_BUILD(wr_rdma_write, RDMA_WRITE, KPROBE_ARG2(ctx), KPROBE_ARG1(ctx), 0)
ON_BUILD(wr_rdma_write_imm, RDMA_WRITE_WITH_IMM, KPROBE_ARG2(ctx), KPROBE_ARG1(ctx), KPROBE_ARG3(ctx))
ON_BUILD(wr_send, SEND, 0, 0, 0)
ON_BUILD(wr_send_imm, SEND_WITH_IMM, 0, 0, KPROBE_ARG1(ctx))
ON_BUILD(wr_send_inv, SEND_WITH_INV, 0, 0, 0)
ON_BUILD(wr_send_tso, TSO, 0, 0, 0)
ON_BUILD(wr_atomic_write, ATOMIC_WRITE, KPROBE_ARG2(ctx), KPROBE_ARG1(ctx), 0)
ON_BUILD(wr_flush, FLUSH, KPROBE_ARG2(ctx), KPROBE_ARG1(ctx), 0)

/* Adds to the request that is being built. */
static __always_inline int add(struct kprobe_regs *ctx, __s32 num_sge, __u64 bytes)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct building *b = bpf_map_lookup_elem(&verbs_building, &thread);
	__u32 last;

	if (!b || b->qp != KPROBE_ARG0(ctx))
		return 0;
	last = b->n - 1;
	if (last >= MOST)
		return 0;
	b->wr[last].num_sge += num_sge;
	b->wr[last].bytes += bytes;
	return 0;
}

SEC("uprobe/built__wr_set_sge")
int uprobe_verbs_built__wr_set_sge(struct kprobe_regs *ctx)
{
	return add(ctx, 1, (__u32)KPROBE_ARG3(ctx));
}

SEC("uprobe/built__wr_set_sge_list")
int uprobe_verbs_built__wr_set_sge_list(struct kprobe_regs *ctx)
{
	__s32 n = (__s32)KPROBE_ARG1(ctx);

	return add(ctx, n, add_sges(KPROBE_ARG2(ctx), n));
}

SEC("uprobe/built__wr_set_inline_data")
int uprobe_verbs_built__wr_set_inline_data(struct kprobe_regs *ctx)
{
	return add(ctx, 1, KPROBE_ARG2(ctx));
}

SEC("uprobe/built__wr_set_inline_data_list")
int uprobe_verbs_built__wr_set_inline_data_list(struct kprobe_regs *ctx)
{
	__s32 n = (__s32)KPROBE_ARG1(ctx);
	__u64 list = KPROBE_ARG2(ctx), bytes = 0;

#pragma clang loop unroll(disable)
	for (__s32 i = 0; i < SGES; i++) {
		if (i >= n)
			break;
		bytes += MEMBER(ibv_data_buf, list + i * sizeof(struct ibv_data_buf), length);
	}
	return add(ctx, n, bytes);
}

SEC("uprobe/built__wr_abort")
int uprobe_verbs_built__wr_abort(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct building *b = bpf_map_lookup_elem(&verbs_building, &thread);

	if (b)
		b->done = ABORTED;
	return 0;
}

/* A request, whose number the verifier would not follow: clang compares a copy of it. */
static __always_inline struct built *nth(struct building *b, __u64 request)
{
	asm volatile("%0 &= %1" : "+r"(request) : "i"(MOST - 1));
	return &b->wr[request];
}

/* What a thread posts by ibv_wr_complete; NULL if `who` has seen it, or it has no such request. */
static __always_inline struct building *posted_now(__u64 thread, __u64 qp, __u32 request, __u32 who)
{
	struct building *b = bpf_map_lookup_elem(&verbs_building, &thread);

	if (!b || b->qp != qp || b->done & (who | ABORTED) || request >= b->n || request >= MOST)
		return 0;
	return b;
}
