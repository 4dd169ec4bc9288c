//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What programs post and poll by libibverbs. Its calls are inline, through pointers in the context of a device into the provider's library:
 * Go finds the functions and attaches uprobes to them (probes/verbs). The structs are libibverbs' ABI, infiniband/verbs.h, the same in
 * rdma-core 33 to 65.
 */
#include "user_memory.h"
#include "ib_uobject.h"
#include "verbs_callers.h"
#include "verbs_open.h" /* no trap: windows are not for it */
#include "window.h"

/* enum ibv_qp_type */
enum ibv_qp_type {
	ibv_qp_type__RC = 2,
	ibv_qp_type__UC,
	ibv_qp_type__UD,
	ibv_qp_type__RAW_PACKET = 8,
	ibv_qp_type__XRC_SEND,
	ibv_qp_type__XRC_RECV,
	ibv_qp_type__DRIVER = 0xff,
};

/* enum ibv_wr_opcode */
enum ibv_wr_opcode {
	ibv_wr_opcode__RDMA_WRITE,
	ibv_wr_opcode__RDMA_WRITE_WITH_IMM,
	ibv_wr_opcode__SEND,
	ibv_wr_opcode__SEND_WITH_IMM,
	ibv_wr_opcode__RDMA_READ,
	ibv_wr_opcode__ATOMIC_CMP_AND_SWP,
	ibv_wr_opcode__ATOMIC_FETCH_AND_ADD,
	ibv_wr_opcode__LOCAL_INV,
	ibv_wr_opcode__BIND_MW,
	ibv_wr_opcode__SEND_WITH_INV,
	ibv_wr_opcode__TSO,
	ibv_wr_opcode__DRIVER1,
	ibv_wr_opcode__FLUSH = 14,
	ibv_wr_opcode__ATOMIC_WRITE,
};

/* enum ibv_send_flags */
enum ibv_send_flags {
	ibv_send_flags__FENCE = 1 << 0,
	ibv_send_flags__SIGNALED = 1 << 1,
	ibv_send_flags__SOLICITED = 1 << 2,
	ibv_send_flags__INLINE = 1 << 3,
	ibv_send_flags__IP_CSUM = 1 << 4,
};

/* enum ibv_wc_status */
enum ibv_wc_status {
	ibv_wc_status__SUCCESS,
	ibv_wc_status__LOC_LEN_ERR,
	ibv_wc_status__LOC_QP_OP_ERR,
	ibv_wc_status__LOC_EEC_OP_ERR,
	ibv_wc_status__LOC_PROT_ERR,
	ibv_wc_status__WR_FLUSH_ERR,
	ibv_wc_status__MW_BIND_ERR,
	ibv_wc_status__BAD_RESP_ERR,
	ibv_wc_status__LOC_ACCESS_ERR,
	ibv_wc_status__REM_INV_REQ_ERR,
	ibv_wc_status__REM_ACCESS_ERR,
	ibv_wc_status__REM_OP_ERR,
	ibv_wc_status__RETRY_EXC_ERR,
	ibv_wc_status__RNR_RETRY_EXC_ERR,
	ibv_wc_status__LOC_RDD_VIOL_ERR,
	ibv_wc_status__REM_INV_RD_REQ_ERR,
	ibv_wc_status__REM_ABORT_ERR,
	ibv_wc_status__INV_EECN_ERR,
	ibv_wc_status__INV_EEC_STATE_ERR,
	ibv_wc_status__FATAL_ERR,
	ibv_wc_status__RESP_TIMEOUT_ERR,
	ibv_wc_status__GENERAL_ERR,
	ibv_wc_status__TM_ERR,
	ibv_wc_status__TM_RNDV_INCOMPLETE,
};

/* enum ibv_wc_opcode */
enum ibv_wc_opcode {
	ibv_wc_opcode__SEND,
	ibv_wc_opcode__RDMA_WRITE,
	ibv_wc_opcode__RDMA_READ,
	ibv_wc_opcode__COMP_SWAP,
	ibv_wc_opcode__FETCH_ADD,
	ibv_wc_opcode__BIND_MW,
	ibv_wc_opcode__LOCAL_INV,
	ibv_wc_opcode__TSO,
	ibv_wc_opcode__FLUSH,
	ibv_wc_opcode__ATOMIC_WRITE,
	ibv_wc_opcode__RECV = 128,
	ibv_wc_opcode__RECV_RDMA_WITH_IMM,
	ibv_wc_opcode__TM_ADD,
	ibv_wc_opcode__TM_DEL,
	ibv_wc_opcode__TM_SYNC,
	ibv_wc_opcode__TM_RECV,
	ibv_wc_opcode__TM_NO_TAG,
	ibv_wc_opcode__DRIVER1,
	ibv_wc_opcode__DRIVER2,
	ibv_wc_opcode__DRIVER3,
};

/* IBV_WC_WITH_IMM of enum ibv_wc_flags, and IBV_WC_RECV of enum ibv_wc_opcode */
enum { WITH_IMM_BIT = 1, RECV_BIT = 7 };

struct ibv_device {
	__u64 ops[2];
	__u32 node_type, transport_type;
	char name[64];
};

struct ibv_context {
	__u64 device;
};

struct ibv_cq {
	__u64 context;
};

struct ibv_cq_ex {
	__u64 context, channel, cq_context;
	__u32 handle, cqe;
	__u64 mutex[5], cond[6];
	__u32 comp_events_completed, async_events_completed, comp_mask, status;
	__u64 wr_id, start_poll;
};

struct ibv_qp {
	__u64 context, qp_context, pd, send_cq, recv_cq, srq;
	__u32 handle, qp_num, state, qp_type;
};

struct ibv_qp_ex {
	__u64 qp_base[20];
	__u64 comp_mask, wr_id;
	__u32 wr_flags;
};

struct ibv_data_buf {
	__u64 addr, length;
};

struct ibv_sge {
	__u64 addr;
	__u32 length, lkey;
};

struct ibv_recv_wr {
	__u64 wr_id, next, sg_list;
	__s32 num_sge;
};

struct ibv_send_wr {
	__u64 wr_id, next, sg_list;
	__s32 num_sge;
	__u32 opcode, send_flags, imm_data;
	__u64 remote_addr;
	__u32 rdma_rkey;
	__u32 : 32;
	__u64 swap;
	__u32 atomic_rkey;
};

struct ibv_wc {
	__u64 wr_id;
	__u32 status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags;
	__u64 rest;
};

/* Elements of a list that are read. What has more has no size. */
#define SGES 32

/*
 * What is behind the pthread_mutex_t of a struct comes 8 bytes later with glibc on arm64, where that has 48 bytes; with musl it has 40, as on amd64. The
 * last member of the context, abi_compat, shows which: it is ~0.
 */
#if defined(__TARGET_ARCH_x86)
#define BEHIND_MUTEX(object) 0
#else
enum { ABI_COMPAT = 320 };

static __always_inline __u64 behind_mutex(__u64 object)
{
	__u64 context = 0, abi = 0;

	bpf_probe_read_user(&context, sizeof(context), (void *)object);
	bpf_probe_read_user(&abi, sizeof(abi), (void *)(context + ABI_COMPAT));
	return abi == ~0ULL ? 0 : 8;
}
#define BEHIND_MUTEX(object) behind_mutex(object)
#endif

/* A member of a struct of the program; 0 if it cannot be read. The structs are not copied whole: the stack is shared with the user's code. */
#define MEMBER(type, address, member) \
	({ \
		typeof(((struct type *)0)->member) value = 0; \
		bpf_probe_read_user(&value, sizeof(value), (void *)((address) + __builtin_offsetof(struct type, member))); \
		value; \
	})

/*
 * A program handles one request of a chain, or one completion of a poll, and calls itself for the next: in a loop, the verifier would follow
 * the user's code once for each. Where it is stands in a map by thread. The kernel allows a few more calls than MOST (MAX_TAIL_CALL_CNT,
 * include/linux/bpf.h); what is beyond is counted as lost.
 *
 * Each program that uses more than a few bytes of stack needs such a call. The kernel gives a program that can be preempted a private stack
 * per CPU (6.13 on). Programs of uprobes are preempted, and threads then overwrite each other's stack: 16,000 posts by 8 threads were counted
 * as 16,013 on 7.2. Programs with a tail call get no private stack (bpf_enable_priv_stack, kernel/bpf/verifier.c).
 */
#define MOST 32

/* The array that Go puts the program into that refers to it: the last one, if it is for several calls (probes/table.go). */
#define ITSELF(name) \
	struct { \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY); \
		__uint(max_entries, 1); \
		__uint(key_size, sizeof(__u32)); \
		__uint(value_size, sizeof(__u32)); \
	} name SEC(".maps")

/* A tail call for a program without one. No thread has the stack pointer 0. */
#define OWN_STACK(ctx, array) \
	do { \
		if (!(ctx)->sp) \
			bpf_tail_call(ctx, array, 0); \
	} while (0)

/* The next request of a chain, by thread, and how many were before it. */
struct chain {
	__u64 wr;
	__u32 before;
};

/*
 * CHAINS(name): where threads are in a chain. name_go_on keeps the next request for the program's call of itself; false if there is none, or
 * were too many. name_over forgets the chain.
 */
#define CHAINS(name) \
	SLOTTED(name, thread, struct chain, 4096) \
\
	static __always_inline bool name##_go_on(__u64 thread, struct chain *chain, __u64 next) \
	{ \
		if (!next) \
			return false; \
		if (!chain) { \
			chain = name##_begin(thread); \
			if (!chain) \
				return false; \
			chain->before = 0; \
		} \
		chain->wr = next; \
		return ++chain->before < MOST; \
	} \
\
	static __always_inline void name##_over(__u64 thread) \
	{ \
		struct chain *chain = name##_of(thread); \
\
		if (chain) \
			name##_end(chain); \
	}

/*
 * Presence bits are computed without branches: each branch in a loop doubles the paths through the rest of it, and the verifier of 5.10 gives
 * up after a million instructions.
 */
#define IS_NEGATIVE(n) \
	({ \
		__s64 number = (n); \
		/* clang would make a comparison of it. */ \
		asm volatile("" : "+r"(number)); \
		(__u64)number >> 63; \
	})
#define IS_IN(set, opcode) ((set) >> ((opcode) & 63) & 1)

/* Reads the name of a context's device; 1 if that succeeds. */
static __always_inline __u32 read_device(char *dev, __u32 size, __u64 context)
{
	__u64 device = MEMBER(ibv_context, context, device);

	__builtin_memset(dev, 0, size);
	return 1 ^ IS_NEGATIVE(bpf_probe_read_user_str(dev, size, (void *)(device + __builtin_offsetof(struct ibv_device, name))));
}

/* The bytes of the first elements of a list. */
static __always_inline __u64 add_sges(__u64 list, __s32 n)
{
	__u64 sum = 0;

#pragma clang loop unroll(disable)
	for (__s32 i = 0; i < SGES; i++) {
		if (i >= n)
			break;
		sum += MEMBER(ibv_sge, list + i * sizeof(struct ibv_sge), length);
	}
	return sum;
}

#define OF_QP \
	char dev[64] DOC("RDMA device, like mlx5_0"); \
	struct { \
		__u32 num DOC("number of the QP"); \
		enum ibv_qp_type type DOC("type of the QP"); \
	} qp

#define CAPTURE_QP(X, e, address, stage) \
	do { \
		if (WANT(X, dev, stage)) \
			(e)->has.dev = read_device((e)->dev, sizeof((e)->dev), MEMBER(ibv_qp, address, context)); \
		if (WANT(X, qp.num, stage)) \
			(e)->qp.num = MEMBER(ibv_qp, address, qp_num); \
		if (WANT(X, qp.type, stage)) \
			(e)->qp.type = MEMBER(ibv_qp, address, qp_type); \
	} while (0)

struct verbs_post_send {
	COMMON();
	OF_QP;
	__u64 wr_id DOC("the program's number of the work request");
	enum ibv_wr_opcode opcode DOC("what the work request does");
	__u32 num_sge VERBOSE DOC("elements of its list");
	bytes_t bytes DOC("sum over its list; absent if that has more than 32 elements");
	enum ibv_send_flags flags FLAGS DETAIL DOC("SIGNALED: it asks for a completion, which a QP may give for all");
	hex32_t rkey DETAIL DOC("key of the remote memory; absent if the opcode has none");
	hex32_t imm DETAIL DOC("immediate data; absent if the opcode has none");
	hex64_t remote_addr VERBOSE DOC("address of the remote memory; absent if the opcode has none");
	__u32 depth VERBOSE NEEDS(verbs_complete)
		DOC("work requests of the QP that are posted and not completed, with this one unless it is refused; absent while a QP may have requests from before");
	errno_t ret VERBOSE DOC("0, or if the provider refuses it, the errno of the call as a negative number; 0 for those before bad_wr");
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 bytes : 1;
		__u32 rkey : 1;
		__u32 imm : 1;
		__u32 remote_addr : 1;
		__u32 depth : 1;
	} has HAS_ALIGN;
} DOC("a program posts a work request to send, write, read or change remote memory (ibv_post_send, ibv_wr_complete, each request)");
EVENT(verbs_post_send)

#include "verbs_posts.h"

#include "verbs_built.h"

/* A member of a work request: of a chain, or of one that was built. */
#define OF_REQUEST(wr, built, member) ((built) ? (built)->member : MEMBER(ibv_send_wr, wr, member))

/* Sets of opcodes. */
#define BIT(opcode) (1ULL << ibv_wr_opcode__##opcode)
#define WITH_IMM_DATA (BIT(RDMA_WRITE_WITH_IMM) | BIT(SEND_WITH_IMM))
#define ATOMICS (BIT(ATOMIC_CMP_AND_SWP) | BIT(ATOMIC_FETCH_AND_ADD))
#define RDMA (BIT(RDMA_WRITE) | BIT(RDMA_WRITE_WITH_IMM) | BIT(RDMA_READ) | BIT(ATOMIC_WRITE))

/* post is NULL at the beginning of the call. */
static __always_inline void verbs_post_send_capture(struct verbs_post_send *e, __u64 qp, __u64 wr, struct built *built, struct post *post, enum stage stage)
{
	CAPTURE_COMMON(verbs_post_send, e, stage);
	CAPTURE_POST(verbs_post_send, e, post, stage);
	if (WANT(verbs_post_send, depth, stage) && post) {
		e->depth = post->depth;
		e->has.depth = post->depth_known;
	}
	CAPTURE_QP(verbs_post_send, e, qp, stage);
	if (WANT(verbs_post_send, wr_id, stage))
		e->wr_id = OF_REQUEST(wr, built, wr_id);
	if (WANT(verbs_post_send, opcode, stage))
		e->opcode = OF_REQUEST(wr, built, opcode);
	if (WANT(verbs_post_send, num_sge, stage))
		e->num_sge = OF_REQUEST(wr, built, num_sge);
	if (WANT(verbs_post_send, bytes, stage)) {
		__s32 n = OF_REQUEST(wr, built, num_sge);

		e->bytes = built ? built->bytes : add_sges(MEMBER(ibv_send_wr, wr, sg_list), n);
		e->has.bytes = IS_NEGATIVE(n - SGES - 1);
	}
	if (WANT(verbs_post_send, flags, stage))
		e->flags = OF_REQUEST(wr, built, send_flags);
	if (WANT(verbs_post_send, imm, stage)) {
		e->imm = __builtin_bswap32(OF_REQUEST(wr, built, imm_data));
		e->has.imm = IS_IN(WITH_IMM_DATA, OF_REQUEST(wr, built, opcode));
	}
	if (WANT(verbs_post_send, remote_addr, stage)) {
		e->remote_addr = OF_REQUEST(wr, built, remote_addr);
		e->has.remote_addr = IS_IN(RDMA | ATOMICS, OF_REQUEST(wr, built, opcode));
	}
	if (WANT(verbs_post_send, rkey, stage)) {
		__u64 atomic = IS_IN(ATOMICS, OF_REQUEST(wr, built, opcode));

		if (built)
			e->rkey = built->rkey;
		else /* The keys of RDMA and of atomics are in two places. */
			bpf_probe_read_user(&e->rkey, sizeof(e->rkey), (void *)(wr + __builtin_offsetof(struct ibv_send_wr, rdma_rkey) +
				atomic * (__builtin_offsetof(struct ibv_send_wr, atomic_rkey) - __builtin_offsetof(struct ibv_send_wr, rdma_rkey))));
		e->has.rkey = IS_IN(RDMA | ATOMICS, OF_REQUEST(wr, built, opcode));
	}
}

CHAINS(verbs_post_send_chains)
ITSELF(verbs_post_send_next);
ITSELF(verbs_post_send_next_built);
POSTS(verbs_post_send_posts)
ITSELF(verbs_post_send_next_returned);
ITSELF(verbs_post_send_next_built_returned);

#define SENT_AT_RETURN (WANTED(verbs_post_send, ret) || WANTED(verbs_post_send, depth))

/* int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr) */
SEC("uprobe/post_send__post_send")
int uprobe_verbs_post_send__post_send(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid(), wr = KPROBE_ARG1(ctx);
	struct chain *chain;
	struct verbs_post_send e;

	keep_caller();
	if (SENT_AT_RETURN) {
		OWN_STACK(ctx, &verbs_post_send_next);
		BEGIN_POST(verbs_post_send, thread, KPROBE_ARG0(ctx), wr, KPROBE_ARG2(ctx));
		return 0;
	}
	chain = verbs_post_send_chains_of(thread);
	if (chain)
		wr = chain->wr;
	if (!wr)
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(verbs_post_send, ctx, &e, KPROBE_ARG0(ctx), wr, 0, 0);
	wr = MEMBER(ibv_send_wr, wr, next);
	if (verbs_post_send_chains_go_on(thread, chain, wr))
		bpf_tail_call(ctx, &verbs_post_send_next, 0);
	if (wr)
		verbs_post_send_count(CUT);
	if (wr || chain)
		verbs_post_send_chains_over(thread);
	return 0;
}

SEC("uretprobe/post_send__post_send")
int uretprobe_verbs_post_send__post_send(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid(), next;
	struct verbs_post_send e;
	struct post *post;

	if (!SENT_AT_RETURN)
		return 0;
	post = verbs_post_send_posts_of(thread);
	if (!post) {
		verbs_post_send_count(UNSEEN);
		return 0;
	}
	if (post->wr) {
		next = MEMBER(ibv_send_wr, post->wr, next);
		answer(post, (int)KPROBE_RET(ctx), next);
		if (WANTED(verbs_post_send, depth))
			count_depth(post, thread);
		__builtin_memset(&e.has, 0, sizeof(e.has));
		EMIT(verbs_post_send, ctx, &e, post->queue, post->wr, 0, post);
		post->wr = next;
		if (next && ++post->before < MOST)
			bpf_tail_call(ctx, &verbs_post_send_next_returned, 0);
		if (next)
			verbs_post_send_count(CUT);
	}
	verbs_post_send_posts_end(post);
	return 0;
}

/* int wr_complete(struct ibv_qp_ex *qp) */
SEC("uprobe/post_send__wr_complete")
int uprobe_verbs_post_send__wr_complete(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct building *building;
	struct verbs_post_send e;
	struct chain *chain;
	__u32 i;

	keep_caller();
	if (SENT_AT_RETURN) {
		OWN_STACK(ctx, &verbs_post_send_next_built);
		BEGIN_POST(verbs_post_send, thread, KPROBE_ARG0(ctx), 0, 0);
		return 0;
	}
	chain = verbs_post_send_chains_of(thread);
	i = chain ? chain->wr : 0;
	building = posted_now(thread, KPROBE_ARG0(ctx), i, EVENTS_SENT);
	if (!building)
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(verbs_post_send, ctx, &e, building->qp, 0, nth(building, i), 0);
	if (i + 1 < building->n && verbs_post_send_chains_go_on(thread, chain, i + 1))
		bpf_tail_call(ctx, &verbs_post_send_next_built, 0);
	if (i + 1 < building->n)
		verbs_post_send_count(CUT);
	if (chain || i + 1 < building->n)
		verbs_post_send_chains_over(thread);
	building->done |= EVENTS_SENT;
	return 0;
}

SEC("uretprobe/post_send__wr_complete")
int uretprobe_verbs_post_send__wr_complete(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct building *building;
	struct verbs_post_send e;
	struct post *post;
	__u32 i;

	if (!SENT_AT_RETURN)
		return 0;
	post = verbs_post_send_posts_of(thread);
	if (!post) {
		verbs_post_send_count(UNSEEN);
		return 0;
	}
	i = post->before;
	building = posted_now(thread, post->queue, i, EVENTS_SENT);
	if (building) {
		refuse(post, (int)KPROBE_RET(ctx)); /* all or none: ibv_wr_post(3) */
		if (WANTED(verbs_post_send, depth))
			count_depth(post, thread);
		__builtin_memset(&e.has, 0, sizeof(e.has));
		EMIT(verbs_post_send, ctx, &e, building->qp, 0, nth(building, i), post);
		post->before = i + 1;
		if (i + 1 < building->n && i + 1 < MOST)
			bpf_tail_call(ctx, &verbs_post_send_next_built_returned, 0);
		if (i + 1 < building->n)
			verbs_post_send_count(CUT);
		building->done |= EVENTS_SENT;
	}
	verbs_post_send_posts_end(post);
	return 0;
}

struct verbs_post_recv {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	struct {
		__u32 num DOC("number of the QP; absent for a shared receive queue");
		enum ibv_qp_type type DOC("type of the QP; absent for a shared receive queue");
		struct {
			HAS_PAD;
			__u32 num : 1;
			__u32 type : 1;
		} has HAS_ALIGN;
	} qp;
	__u64 wr_id DOC("the program's number of the work request");
	__u32 num_sge VERBOSE DOC("elements of its list");
	bytes_t bytes DOC("room: sum over its list; absent if that has more than 32 elements");
	bool srq DOC("it is posted to a shared receive queue");
	errno_t ret VERBOSE DOC("0, or if the provider refuses it, the errno of the call as a negative number; 0 for those before bad_wr");
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 bytes : 1;
	} has HAS_ALIGN;
} DOC("a program posts a work request to receive (ibv_post_recv, ibv_post_srq_recv, each request of the chain)");
EVENT(verbs_post_recv)

static __always_inline void verbs_post_recv_capture(struct verbs_post_recv *e, __u64 queue, __u64 wr, bool srq, struct post *post, enum stage stage)
{
	CAPTURE_COMMON(verbs_post_recv, e, stage);
	CAPTURE_POST(verbs_post_recv, e, post, stage);
	/* struct ibv_qp and struct ibv_srq both begin with it. */
	if (WANT(verbs_post_recv, dev, stage))
		e->has.dev = read_device(e->dev, sizeof(e->dev), MEMBER(ibv_qp, queue, context));
	if (WANT(verbs_post_recv, qp.num, stage) && !srq)
		SET(&e->qp, num, MEMBER(ibv_qp, queue, qp_num));
	if (WANT(verbs_post_recv, qp.type, stage) && !srq)
		SET(&e->qp, type, MEMBER(ibv_qp, queue, qp_type));
	if (WANT(verbs_post_recv, wr_id, stage))
		e->wr_id = MEMBER(ibv_recv_wr, wr, wr_id);
	if (WANT(verbs_post_recv, num_sge, stage))
		e->num_sge = MEMBER(ibv_recv_wr, wr, num_sge);
	if (WANT(verbs_post_recv, bytes, stage)) {
		__s32 n = MEMBER(ibv_recv_wr, wr, num_sge);

		e->bytes = add_sges(MEMBER(ibv_recv_wr, wr, sg_list), n);
		e->has.bytes = IS_NEGATIVE(n - SGES - 1);
	}
	if (WANT(verbs_post_recv, srq, stage))
		e->srq = srq;
}

CHAINS(verbs_post_recv_chains)
ITSELF(verbs_post_recv_next);
ITSELF(verbs_post_srq_recv_next);
POSTS(verbs_post_recv_posts)
ITSELF(verbs_post_recv_next_returned);
ITSELF(verbs_post_srq_recv_next_returned);

#define RECEIVES_AT_RETURN WANTED(verbs_post_recv, ret)

static __always_inline int post_recv(struct kprobe_regs *ctx, bool srq, void *itself)
{
	__u64 thread = bpf_get_current_pid_tgid(), wr = KPROBE_ARG1(ctx);
	struct chain *chain;
	struct verbs_post_recv e;

	keep_caller();
	if (RECEIVES_AT_RETURN) {
		OWN_STACK(ctx, itself);
		BEGIN_POST(verbs_post_recv, thread, KPROBE_ARG0(ctx), wr, KPROBE_ARG2(ctx));
		return 0;
	}
	chain = verbs_post_recv_chains_of(thread);
	if (chain)
		wr = chain->wr;
	if (!wr)
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	__builtin_memset(&e.qp.has, 0, sizeof(e.qp.has));
	EMIT(verbs_post_recv, ctx, &e, KPROBE_ARG0(ctx), wr, srq, 0);
	wr = MEMBER(ibv_recv_wr, wr, next);
	if (verbs_post_recv_chains_go_on(thread, chain, wr))
		bpf_tail_call(ctx, itself, 0);
	if (wr)
		verbs_post_recv_count(CUT);
	if (wr || chain)
		verbs_post_recv_chains_over(thread);
	return 0;
}

static __always_inline int post_recv_returned(struct kprobe_regs *ctx, bool srq, void *itself)
{
	__u64 thread = bpf_get_current_pid_tgid(), next;
	struct verbs_post_recv e;
	struct post *post;

	if (!RECEIVES_AT_RETURN)
		return 0;
	post = verbs_post_recv_posts_of(thread);
	if (!post) {
		verbs_post_recv_count(UNSEEN);
		return 0;
	}
	if (post->wr) {
		next = MEMBER(ibv_recv_wr, post->wr, next);
		answer(post, (int)KPROBE_RET(ctx), next);
		__builtin_memset(&e.has, 0, sizeof(e.has));
		__builtin_memset(&e.qp.has, 0, sizeof(e.qp.has));
		EMIT(verbs_post_recv, ctx, &e, post->queue, post->wr, srq, post);
		post->wr = next;
		if (next && ++post->before < MOST)
			bpf_tail_call(ctx, itself, 0);
		if (next)
			verbs_post_recv_count(CUT);
	}
	verbs_post_recv_posts_end(post);
	return 0;
}

SEC("uprobe/post_recv__post_recv")
int uprobe_verbs_post_recv__post_recv(struct kprobe_regs *ctx)
{
	return post_recv(ctx, false, &verbs_post_recv_next);
}

SEC("uprobe/post_recv__post_srq_recv")
int uprobe_verbs_post_recv__post_srq_recv(struct kprobe_regs *ctx)
{
	return post_recv(ctx, true, &verbs_post_srq_recv_next);
}

SEC("uretprobe/post_recv__post_recv")
int uretprobe_verbs_post_recv__post_recv(struct kprobe_regs *ctx)
{
	return post_recv_returned(ctx, false, &verbs_post_recv_next_returned);
}

SEC("uretprobe/post_recv__post_srq_recv")
int uretprobe_verbs_post_recv__post_srq_recv(struct kprobe_regs *ctx)
{
	return post_recv_returned(ctx, true, &verbs_post_srq_recv_next_returned);
}

struct verbs_poll_cq {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	struct {
		__u32 num NEEDS(verbs_read_qp) DOC("number of the QP; of an ibv_cq_ex absent unless the program reads it");
		struct {
			HAS_PAD;
			__u32 num : 1;
		} has HAS_ALIGN;
	} qp;
	__u64 wr_id DOC("the program's number of the work request");
	enum ibv_wc_status status USUAL(SUCCESS) DOC("how the work request ended");
	enum ibv_wc_opcode opcode NEEDS(verbs_read_opcode) DOC("what was done; absent after an error, and of an ibv_cq_ex unless the program reads it");
	bytes_t bytes NEEDS(verbs_read_bytes)
		DOC("length of what was received, or of what the device wrote; absent after an error, and of an ibv_cq_ex unless the program reads it");
	hex32_t vendor_err NEEDS(verbs_read_vendor_err) DETAIL
		DOC("the device's own code of an error; of an ibv_cq_ex absent unless the program reads it");
	hex32_t imm NEEDS(verbs_read_imm) DETAIL
		DOC("immediate data; absent if the message had none; of an ibv_cq_ex what the program reads as such, unless it reads flags without IBV_WC_WITH_IMM");
	__u32 src_qp NEEDS(verbs_read_src_qp) DETAIL
		DOC("number of the QP that sent the message, of UD; absent if nothing was received, and of an ibv_cq_ex unless the program reads it");
	__u64 hw_ticks NEEDS(verbs_read_ticks) VERBOSE
		DOC("when the request was completed, by the counter of the device; absent unless the program reads it (ibv_wc_read_completion_ts), and after an error");
	__u64 hw_time NEEDS(verbs_read_ticks) NEEDS(verbs_read_wallclock) VERBOSE
		DOC("likewise in ns: what the program reads as wall clock (ibv_wc_read_completion_wallclock_ns), or hw_ticks by the frequency of the counter (hca_core_clock); absent unless the program reads one of them, where the frequency is not known, and after an error");
	__u64 empty VERBOSE
		DOC("polls of the CQ by this thread that returned nothing since its completion before; of the completions of one poll the first has them, the others have 0");
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 opcode : 1;
		__u32 bytes : 1;
		__u32 vendor_err : 1;
		__u32 imm : 1;
		__u32 src_qp : 1;
		__u32 hw_ticks : 1;
		__u32 hw_time : 1;
	} has HAS_ALIGN;
} DOC("a program gets a completion (ibv_poll_cq, each completion that it returns; ibv_start_poll and ibv_next_poll, when it is done with it)");
EVENT(verbs_poll_cq)

#include "verbs_poll.h"

/* A poll that is under way, by thread: its return does not have the arguments. */
struct poll {
	__u64 cq, wc;
	__u32 next; /* completion */
};
SLOTTED(verbs_polls, thread, struct poll, 16384)
ITSELF(verbs_poll_cq_next);

#include "verbs_iterated.h"

static __always_inline void verbs_poll_cq_capture(struct verbs_poll_cq *e, __u64 cq, __u64 wc, struct iterated *at_hand, __u64 empty, enum stage stage)
{
	CAPTURE_COMMON(verbs_poll_cq, e, stage);
	if (WANT(verbs_poll_cq, empty, stage))
		e->empty = empty;
	if (WANT(verbs_poll_cq, dev, stage))
		e->has.dev = read_device(e->dev, sizeof(e->dev), MEMBER(ibv_cq, cq, context));
	if (WANT(verbs_poll_cq, qp.num, stage)) {
		e->qp.num = OF_COMPLETION(wc, at_hand, qp_num);
		e->qp.has.num = IS_READ(at_hand, QP);
	}
	if (WANT(verbs_poll_cq, wr_id, stage))
		e->wr_id = OF_COMPLETION(wc, at_hand, wr_id);
	if (WANT(verbs_poll_cq, status, stage))
		e->status = OF_COMPLETION(wc, at_hand, status);
	if (WANT(verbs_poll_cq, vendor_err, stage)) {
		e->vendor_err = OF_COMPLETION(wc, at_hand, vendor_err);
		e->has.vendor_err = IS_READ(at_hand, VENDOR_ERR);
	}
	/* After an error only these are valid: ibv_poll_cq(3). */
	if (WANT(verbs_poll_cq, opcode, stage)) {
		e->opcode = OF_COMPLETION(wc, at_hand, opcode);
		e->has.opcode = SUCCEEDED(wc, at_hand) & IS_READ(at_hand, OPCODE);
	}
	if (WANT(verbs_poll_cq, bytes, stage)) {
		e->bytes = OF_COMPLETION(wc, at_hand, byte_len);
		e->has.bytes = SUCCEEDED(wc, at_hand) & IS_READ(at_hand, BYTES);
	}
	if (WANT(verbs_poll_cq, imm, stage)) {
		e->imm = __builtin_bswap32(OF_COMPLETION(wc, at_hand, imm_data));
		e->has.imm = SUCCEEDED(wc, at_hand) & IS_READ(at_hand, IMM) &
			(OF_COMPLETION(wc, at_hand, wc_flags) >> WITH_IMM_BIT | (1 ^ IS_READ(at_hand, FLAGS)));
	}
	if (WANT(verbs_poll_cq, src_qp, stage)) {
		e->src_qp = OF_COMPLETION(wc, at_hand, src_qp);
		e->has.src_qp = SUCCEEDED(wc, at_hand) & IS_READ(at_hand, SRC_QP) &
			(OF_COMPLETION(wc, at_hand, opcode) >> RECV_BIT | (1 ^ IS_READ(at_hand, OPCODE)));
	}
	if (WANT(verbs_poll_cq, hw_ticks, stage) && at_hand) {
		e->hw_ticks = at_hand->ticks;
		e->has.hw_ticks = SUCCEEDED(wc, at_hand) & IS_READ(at_hand, TICKS);
	}
	if (WANT(verbs_poll_cq, hw_time, stage) && at_hand)
		e->has.hw_time = SUCCEEDED(wc, at_hand) & read_clock(&e->hw_time, cq, at_hand);
}

/* int poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc) */
SEC("uprobe/poll_cq__poll_cq")
int uprobe_verbs_poll_cq__poll_cq(struct kprobe_regs *ctx)
{
	/* Of a poll whose return was missed, the thread still has one. */
	struct poll *poll = verbs_polls_begin(bpf_get_current_pid_tgid());

	keep_caller();
	if (poll)
		*poll = (struct poll){ KPROBE_ARG0(ctx), KPROBE_ARG2(ctx) };
	else
		verbs_poll_cq_count(INFLIGHT_FULL);
	return 0;
}

SEC("uretprobe/poll_cq__poll_cq")
int uretprobe_verbs_poll_cq__poll_cq(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct poll *poll = verbs_polls_of(thread);
	int n = (int)KPROBE_RET(ctx);
	struct verbs_poll_cq e;
	__u32 i;

	if (!poll) {
		if (n > 0)
			verbs_poll_cq_count(UNSEEN);
		return 0;
	}
	i = poll->next++;
	if (!n && WANTED(verbs_poll_cq, empty))
		count_empty(thread, poll->cq);
	if (n > 0) {
		__u64 empty = 0;

		if (!i && WANTED(verbs_poll_cq, empty))
			empty = take_empty(thread, poll->cq);
		__builtin_memset(&e.has, 0, sizeof(e.has));
		__builtin_memset(&e.qp.has, 0, sizeof(e.qp.has));
		EMIT(verbs_poll_cq, ctx, &e, poll->cq, poll->wc + i * sizeof(struct ibv_wc), 0, empty);
		if (i + 1 < n && i + 1 < MOST)
			bpf_tail_call(ctx, &verbs_poll_cq_next, 0);
		if (i + 1 < n)
			verbs_poll_cq_count(CUT);
	}
	verbs_polls_end(poll);
	return 0;
}

ITSELF(verbs_poll_cq_over);

/* void end_poll(struct ibv_cq_ex *cq), and int next_poll(struct ibv_cq_ex *cq), whose program ends here */
SEC("uprobe/poll_cq__end_poll")
int uprobe_verbs_poll_cq__end_poll(struct kprobe_regs *ctx)
{
	struct iterated *at_hand = over(KPROBE_ARG0(ctx), EVENTS_SENT);
	struct verbs_poll_cq e;

	if (!at_hand)
		return 0;
	at_hand->done |= EVENTS_SENT;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	__builtin_memset(&e.qp.has, 0, sizeof(e.qp.has));
	EMIT(verbs_poll_cq, ctx, &e, KPROBE_ARG0(ctx), 0, at_hand, at_hand->empty);
	if (!KPROBE_ARG0(ctx)) /* never, see MOST */
		bpf_tail_call(ctx, &verbs_poll_cq_over, 0);
	return 0;
}

SEC("uprobe/poll_cq__next_poll")
int uprobe_verbs_poll_cq__next_poll(struct kprobe_regs *ctx)
{
	bpf_tail_call(ctx, &verbs_poll_cq_over, 0);
	return 0;
}

#include "verbs_complete.h"
#include "verbs_read.h"
