/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that remember what a program gets from an extended CQ: see verbs_iterated.h. */

const volatile struct iterated not_iterated SEC(".rodata");

/* The CQ of the call that a thread makes: its return does not have it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} verbs_iterating SEC(".maps");

static __always_inline int call_of_cq(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid(), cq = KPROBE_ARG0(ctx);

	bpf_map_update_elem(&verbs_iterating, &thread, &cq, BPF_ANY);
	return 0;
}

static __always_inline __u64 called_cq(void)
{
	__u64 thread = bpf_get_current_pid_tgid(), *cq = bpf_map_lookup_elem(&verbs_iterating, &thread);

	return cq ? *cq : 0;
}

/* ibv_start_poll or ibv_next_poll returns: 0 if there is a completion. */
static __always_inline int given(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct verbs_object key = { called_cq(), thread >> 32 };
	struct iterated *at_hand = bpf_map_lookup_elem(&verbs_iterated, &key);

	if (!key.address)
		return 0;
	if (!at_hand) {
		bpf_map_update_elem(&verbs_iterated, &key, (void *)&not_iterated, BPF_ANY);
		at_hand = bpf_map_lookup_elem(&verbs_iterated, &key);
	}
	if (!at_hand)
		return 0;
	polled(&at_hand->times);
	at_hand->read = 0;
	at_hand->done = NOTHING_AT_HAND;
	if ((int)KPROBE_RET(ctx)) {
		if (WANTED(verbs_poll_cq, empty))
			count_empty(thread, key.address);
		return 0;
	}
	if (WANTED(verbs_poll_cq, empty))
		at_hand->empty = take_empty(thread, key.address);
	at_hand->wc.status = MEMBER(ibv_cq_ex, key.address + BEHIND_MUTEX(key.address), status);
	at_hand->wc.wr_id = MEMBER(ibv_cq_ex, key.address + BEHIND_MUTEX(key.address), wr_id);
	at_hand->done = 0;
	return 0;
}

#define ON_GIVE(call) \
	SEC("uprobe/given__" #call) \
	int uprobe_verbs_given__##call(struct kprobe_regs *ctx) \
	{ \
		keep_caller(); \
		return call_of_cq(ctx); \
	} \
	SEC("uretprobe/given__" #call) \
	int uretprobe_verbs_given__##call(struct kprobe_regs *ctx) \
	{ \
		return given(ctx); \
	}

ON_GIVE(start_poll)
ON_GIVE(next_poll)

/* ibv_wc_read_* returns a member of the completion at hand. */
#define ON_READ(hook, call, member, what) \
	SEC("uprobe/" #hook "__" #call) \
	int uprobe_verbs_##hook##__##call(struct kprobe_regs *ctx) \
	{ \
		return call_of_cq(ctx); \
	} \
	SEC("uretprobe/" #hook "__" #call) \
	int uretprobe_verbs_##hook##__##call(struct kprobe_regs *ctx) \
	{ \
		struct iterated *at_hand = iterated_of(called_cq()); \
		if (!at_hand) \
			return 0; \
		at_hand->member = KPROBE_RET(ctx); \
		at_hand->read |= what##_READ; \
		return 0; \
	}

ON_READ(read_qp, read_qp_num, wc.qp_num, QP)
ON_READ(read_opcode, read_opcode, wc.opcode, OPCODE)
ON_READ(read_bytes, read_byte_len, wc.byte_len, BYTES)
ON_READ(read_vendor_err, read_vendor_err, wc.vendor_err, VENDOR_ERR)
ON_READ(read_imm, read_imm_data, wc.imm_data, IMM)
ON_READ(read_imm, read_wc_flags, wc.wc_flags, FLAGS)
ON_READ(read_src_qp, read_src_qp, wc.src_qp, SRC_QP)
ON_READ(read_ticks, read_completion_ts, ticks, TICKS)
ON_READ(read_wallclock, read_completion_wallclock_ns, wallclock, WALLCLOCK)
