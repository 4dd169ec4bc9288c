/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Polls, whatever they return: verbs:poll, and the polls before a completion that returned nothing. A program that spins makes millions a
 * second, so nothing of the program's memory is read unless a field asks for it.
 */

struct verbs_poll {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	__u32 room DOC("completions that the program has room for (num_entries); 1 of an ibv_cq_ex");
	__u32 entries AT_RETURN DOC("completions that the call returned, of an ibv_cq_ex 1 or 0; absent if it failed");
	bool empty AT_RETURN DOC("the call returned no completion");
	__s32 ret AT_RETURN VERBOSE DOC("result of the call: completions, or a negative number if it failed; of an ibv_cq_ex 0, or an errno, which is ENOENT if there is no completion");
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 entries : 1;
	} has HAS_ALIGN;
} DOC("a program polls a CQ (ibv_poll_cq, ibv_start_poll, ibv_next_poll, each call); its events are counted in the kernel, and cannot be printed");
EVENT(verbs_poll)
OF_CALL(verbs_poll)

struct verbs_poll_call {
	__u64 cq;
	__u32 room;
	__u32 : 32;
};

SLOTTED(verbs_poll_calls, thread, struct verbs_poll_call, 16384)
ITSELF(verbs_poll_own_stack);

/* entries is negative if the call failed. */
static __always_inline void verbs_poll_capture(struct verbs_poll *e, struct verbs_poll_call *call, int ret, int entries, enum stage stage)
{
	CAPTURE_COMMON(verbs_poll, e, stage);
	if (WANT(verbs_poll, dev, stage) && call)
		e->has.dev = read_device(e->dev, sizeof(e->dev), MEMBER(ibv_cq, call->cq, context));
	if (WANT(verbs_poll, room, stage) && call)
		e->room = call->room;
	if (WANT(verbs_poll, entries, stage)) {
		e->entries = entries;
		e->has.entries = 1 ^ IS_NEGATIVE(entries);
	}
	if (WANT(verbs_poll, empty, stage))
		e->empty = !entries;
	if (WANT(verbs_poll, ret, stage))
		e->ret = ret;
}

static __always_inline int poll_begins(__u64 cq, __u32 room)
{
	struct verbs_poll_call *call;

	if (!verbs_poll_entry)
		return 0;
	/* Of a poll whose return was missed, the thread still has one. */
	call = verbs_poll_calls_begin(bpf_get_current_pid_tgid());
	if (call)
		*call = (struct verbs_poll_call){ cq, room };
	else
		verbs_poll_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline int poll_ends(struct kprobe_regs *ctx, int entries)
{
	struct verbs_poll_call *call = verbs_poll_entry ? verbs_poll_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct verbs_poll e;

	OWN_STACK(ctx, &verbs_poll_own_stack);
	keep_caller();
	if (verbs_poll_unseen(call))
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(verbs_poll, ctx, &e, call, (int)KPROBE_RET(ctx), entries);
	if (call)
		verbs_poll_calls_end(call);
	return 0;
}

/* int poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc) */
SEC("uprobe/poll__poll_cq")
int uprobe_verbs_poll__poll_cq(struct kprobe_regs *ctx)
{
	return poll_begins(KPROBE_ARG0(ctx), KPROBE_ARG1(ctx));
}

SEC("uretprobe/poll__poll_cq")
int uretprobe_verbs_poll__poll_cq(struct kprobe_regs *ctx)
{
	return poll_ends(ctx, (int)KPROBE_RET(ctx));
}

/* int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr) and int next_poll(struct ibv_cq_ex *cq) */
#define ENOENT 2
#define ON_POLL(call) \
	SEC("uprobe/poll__" #call) \
	int uprobe_verbs_poll__##call(struct kprobe_regs *ctx) \
	{ \
		return poll_begins(KPROBE_ARG0(ctx), 1); \
	} \
	SEC("uretprobe/poll__" #call) \
	int uretprobe_verbs_poll__##call(struct kprobe_regs *ctx) \
	{ \
		int ret = KPROBE_RET(ctx); \
		return poll_ends(ctx, ret == ENOENT ? 0 : ret ? -1 : 1); \
	}

ON_POLL(start_poll)
ON_POLL(next_poll)

/* The number of empty polls of a thread, by CQ. LRU: nothing removes the number of a thread that ends. */
struct verbs_empty_key {
	__u64 thread, cq;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct verbs_empty_key);
	__type(value, __u64);
} verbs_empty SEC(".maps");

static __always_inline void count_empty(__u64 thread, __u64 cq)
{
	struct verbs_empty_key key = { thread, cq };
	__u64 *n = bpf_map_lookup_elem(&verbs_empty, &key), first = 1;

	if (n)
		++*n;
	else
		bpf_map_update_elem(&verbs_empty, &key, &first, BPF_ANY);
}

/* Returns how many they are, and begins again. */
static __always_inline __u64 take_empty(__u64 thread, __u64 cq)
{
	struct verbs_empty_key key = { thread, cq };
	__u64 *n = bpf_map_lookup_elem(&verbs_empty, &key), taken;

	if (!n)
		return 0;
	taken = *n;
	*n = 0;
	return taken;
}
