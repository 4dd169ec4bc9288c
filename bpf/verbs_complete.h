/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * verbs:complete joins a completion with the post of its request, by QP and wr_id. Where requests with the same wr_id are posted and not
 * completed, they are completed in the order of their posts: in the queue they are, and if threads post at once, which of them is which
 * cannot be known.
 *
 * Which requests get a completion is known without the QP's attributes: if a request of it asked for one (SIGNALED), those that ask, and
 * otherwise all. After an error all get one.
 */

struct verbs_complete {
	COMMON();
	OF_QP;
	__u64 wr_id DOC("the program's number of the work request");
	enum ibv_wr_opcode opcode DOC("what the work request does");
	enum ibv_wc_status status USUAL(SUCCESS) DOC("how the work request ended");
	bytes_t bytes DOC("sum over the lists of the work requests that it retires");
	ns_t latency DOC("from the call of ibv_post_send or ibv_wr_complete to the return of the ibv_poll_cq, ibv_start_poll or ibv_next_poll that gives the completion to the program");
	__u32 retired VERBOSE DOC("work requests that it retires: its own, and those before it that asked for no completion");
	__u32 depth DETAIL DOC("work requests of the QP that are posted and not completed, after this one");
	ns_t gap VERBOSE DOC("since the completion before it of the same QP; absent for the first one");
	ns_t runq OF_TASK VERBOSE
		DOC("for how long the thread was ready and waited for a CPU since its poll before, or since its post if that is later; absent without BTF of the kernel, and where the kernel does not account for it");
	hex32_t vendor_err NEEDS(verbs_read_vendor_err) DETAIL
		DOC("the device's own code of an error; of an ibv_cq_ex absent unless the program reads it");
	hex32_t imm DETAIL DOC("immediate data; absent if the opcode has none");
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 gap : 1;
		__u32 runq : 1;
		__u32 vendor_err : 1;
		__u32 imm : 1;
	} has HAS_ALIGN;
} DOC("a program gets the completion of a work request of a send queue (ibv_post_send or ibv_wr_complete to ibv_poll_cq, or to ibv_start_poll and ibv_next_poll)");
EVENT(verbs_complete)

/* A QP of a process, by the context of its device, which a post and a poll both know. */
struct verbs_qp_key {
	__u64 context;
	__u32 tgid, num;
};

/* A QP's posts since the first that was seen. Several threads change it: sums are added atomically. */
struct verbs_qp {
	__u64 born;                   /* of all the QPs with that number another one, and another one after each RESET */
	__u64 requests, bytes;        /* posted */
	__u64 retired, retired_bytes; /* completed */
	__u64 last;                   /* when its last completion came */
	__u64 asking;                 /* requests that asked for a completion */
	__u64 repeats;                /* requests whose wr_id another one had, which was not completed */
	__u64 fresh;                  /* its life began when posts were seen: there are no others */
	__u64 extended;               /* address of its CQ for sends, if that is extended */
	__u64 wr_id;                  /* in windows (window.h): of the last request that gets a completion, */
	__u64 alike, unlike;          /* and how many had the wr_id of the one before them, or another one */
};

/* A request, by the life of its QP, its wr_id and, if that repeats, a number. */
struct verbs_request_key {
	struct verbs_qp_key qp;
	__u64 born, wr_id, number;
};

struct verbs_request {
	__u64 wr_id, nsecs;
	__u64 requests, bytes; /* of the QP, with this one */
	__u32 opcode, imm, type, asks, tid;
	__u32 : 32;
	__u64 waited; /* for a CPU, until the post */
};

/* The numbers of the requests with a wr_id that repeats; the key has no number. */
struct verbs_numbers {
	__u64 next, first;
};

/* LRU: nothing removes the QPs of a process that ends. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct verbs_qp_key);
	__type(value, struct verbs_qp);
} verbs_qps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct verbs_request_key);
	__type(value, struct verbs_request);
} verbs_requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct verbs_request_key);
	__type(value, struct verbs_numbers);
} verbs_numbers SEC(".maps");

/* What was counted of a thread's call that posts, until its return shows what the provider refuses of it: only for the depth of verbs:post_send. */
struct verbs_counted {
	__u64 address; /* of the QP */
	__u32 depth;   /* before the call */
	__u32 depth_known;
	__u32 n;
	__u32 : 32;
	struct {
		struct verbs_request_key key;
		__u64 bytes;
	} request[MOST];
};

const volatile struct verbs_counted none_counted SEC(".rodata");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct verbs_counted);
} verbs_counted SEC(".maps");

/*
 * Posts.
 */

/* Of a QP with requests that ask, those that do not are kept for errors: the last SILENTS. */
#define SILENT (1ULL << 63)
#define SILENTS 64

/* Threads that post at once compete for a number: that many times. */
#define TRIES 16

#include "verbs_anonymous.h"

/* Reads a QP at once: each read of the program's memory takes 35 ns. */
static __always_inline struct ibv_qp read_qp(__u64 address)
{
	struct ibv_qp qp;

	bpf_probe_read_user(&qp, sizeof(qp), (void *)address); /* 0 if it cannot be read */
	return qp;
}

static __always_inline struct verbs_qp_key key_of_qp(struct ibv_qp *qp)
{
	return (struct verbs_qp_key){ qp->context, bpf_get_current_pid_tgid() >> 32, qp->qp_num };
}

/* Begins the life of a QP. */
static __always_inline void begin_life(struct verbs_qp_key *key, __u64 address, __u64 fresh, __u64 flags)
{
	struct verbs_qp life = { .born = bpf_ktime_get_boot_ns(), .fresh = fresh, .extended = extended_cq(address) };

	if (!bpf_map_update_elem(&verbs_qps, key, &life, flags) && life.extended)
		enlist(key, life.extended);
}

static __always_inline struct verbs_qp *find_qp(struct verbs_qp_key *key, __u64 address)
{
	struct verbs_qp *qp = bpf_map_lookup_elem(&verbs_qps, key);

	if (qp)
		return qp;
	begin_life(key, address, 0, BPF_NOEXIST); /* another thread may do so first */
	return bpf_map_lookup_elem(&verbs_qps, key);
}

static __always_inline struct verbs_numbers *find_numbers(struct verbs_request_key *key)
{
	struct verbs_numbers *numbers, none;

	key->number = 0;
	numbers = bpf_map_lookup_elem(&verbs_numbers, key);
	if (numbers)
		return numbers;
	none.next = none.first = bpf_ktime_get_boot_ns(); /* numbers that were forgotten may still be in use */
	bpf_map_update_elem(&verbs_numbers, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&verbs_numbers, key);
}

/*
 * Keeps a request under the next number of its wr_id. There is no atomic operation with a result before 5.12, so the insertion decides who
 * gets a number.
 */
static __always_inline bool keep_repeated(struct verbs_request_key *key, struct verbs_request *request)
{
	struct verbs_numbers *numbers = find_numbers(key);

	if (!numbers)
		return false;
	key->number = numbers->next;
#pragma clang loop unroll(disable)
	for (int i = 0; i < TRIES; i++) {
		int err = (int)bpf_map_update_elem(&verbs_requests, key, request, BPF_NOEXIST);

		if (!err && key->number >= numbers->first) {
			__sync_fetch_and_add(&numbers->next, 1);
			return true;
		}
		if (!err) /* this thread was preempted since it read the number, which has been completed */
			bpf_map_delete_elem(&verbs_requests, key);
		else if (err != -EEXIST)
			return false;
		key->number = key->number < numbers->next ? numbers->next : key->number + 1;
	}
	return false;
}

static __always_inline bool keep(struct verbs_qp *qp, struct verbs_request_key *key, struct verbs_request *request)
{
	if (!request->asks && qp->asking) {
		key->wr_id = 0;
		key->number = SILENT | request->requests % SILENTS;
		return !bpf_map_update_elem(&verbs_requests, key, request, BPF_ANY);
	}
	if (!qp->repeats) {
		int err = (int)bpf_map_update_elem(&verbs_requests, key, request, BPF_NOEXIST);

		if (err != -EEXIST)
			return !err;
		__sync_fetch_and_add(&qp->repeats, 1);
	}
	return keep_repeated(key, request);
}

/*
 * In windows: how many requests were on their way before is unknown. If all have the same wr_id, nothing shows when these are completed; if
 * it changes from each to the next and does not come again, no request on its way is taken to have the wr_id of another.
 */
static __always_inline void compare(struct verbs_qp *qp, struct verbs_request *request)
{
	if (!in_windows || (!request->asks && qp->asking))
		return;
	if (qp->alike + qp->unlike && qp->wr_id == request->wr_id)
		__sync_fetch_and_add(&qp->alike, 1);
	else
		__sync_fetch_and_add(&qp->unlike, 1);
	qp->wr_id = request->wr_id;
}

/* Whether a wr_id shows which request of the QP is meant. */
static __always_inline bool identifies(struct verbs_qp *qp)
{
	return !in_windows || qp->fresh || (!qp->alike && !qp->repeats && qp->unlike > 1);
}

/* Notes how many requests of a QP there are before a call that posts. */
static __always_inline void begin_counting(__u64 address, struct verbs_qp *qp)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct verbs_counted *c = bpf_map_lookup_elem(&verbs_counted, &thread);

	if (!c) {
		bpf_map_update_elem(&verbs_counted, &thread, (void *)&none_counted, BPF_ANY);
		c = bpf_map_lookup_elem(&verbs_counted, &thread);
	}
	/* A thread that posts while another one's request is refused counts that, too. */
	if (qp->retired > qp->requests)
		qp->retired = qp->requests;
	if (!c)
		return;
	c->address = address;
	c->depth = qp->requests - qp->retired;
	c->depth_known = qp->fresh || (qp->retired && identifies(qp));
	c->n = 0;
}

static __always_inline void note_counted(struct verbs_request_key *key, __u64 bytes)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct verbs_counted *c = bpf_map_lookup_elem(&verbs_counted, &thread);
	__u32 i;

	if (!c)
		return;
	i = c->n;
	if (i >= MOST)
		return;
	c->request[i].key = *key;
	c->request[i].bytes = bytes;
	c->n = i + 1;
}

static __always_inline void count_depth(struct post *post, __u64 thread)
{
	struct verbs_counted *c = bpf_map_lookup_elem(&verbs_counted, &thread);
	__u32 i = post->before;
	struct verbs_qp *qp;

	post->depth_known = 0;
	if (!c || c->address != post->queue || i >= c->n || i >= MOST)
		return;
	post->depth_known = c->depth_known;
	if (!i)
		post->depth = c->depth;
	if (!post->ret) {
		post->depth++;
		return;
	}
	qp = bpf_map_lookup_elem(&verbs_qps, &c->request[i].key.qp);
	if (!qp || qp->born != c->request[i].key.born)
		return;
	bpf_map_delete_elem(&verbs_requests, &c->request[i].key);
	__sync_fetch_and_add(&qp->requests, -1);
	__sync_fetch_and_add(&qp->bytes, -c->request[i].bytes);
}

/* How long this thread has waited for a CPU. */
#define WAITED (WANTED(verbs_complete, runq) ? TOTAL_runq : 0)

static __always_inline void posted(__u64 qp_address, struct built *wr, bool first)
{
	struct ibv_qp of = read_qp(qp_address);
	struct verbs_request_key key = {
		.qp = key_of_qp(&of),
		.wr_id = wr->wr_id,
	};
	struct verbs_request request = {
		.wr_id = wr->wr_id,
		.nsecs = bpf_ktime_get_boot_ns(),
		.opcode = wr->opcode,
		.imm = __builtin_bswap32(wr->imm_data),
		.type = of.qp_type,
		.asks = wr->send_flags & ibv_send_flags__SIGNALED,
		.tid = (__u32)bpf_get_current_pid_tgid(),
		.waited = WAITED,
	};
	struct verbs_qp *qp = find_qp(&key.qp, qp_address);

	if (!qp) {
		verbs_complete_count(INFLIGHT_FULL);
		return;
	}
	key.born = qp->born;
	if (WANTED(verbs_post_send, depth) && first)
		begin_counting(qp_address, qp);
	__sync_fetch_and_add(&qp->bytes, wr->bytes);
	__sync_fetch_and_add(&qp->requests, 1);
	request.requests = qp->requests;
	request.bytes = qp->bytes;
	if (request.asks)
		__sync_fetch_and_add(&qp->asking, 1);
	if (qp->extended)
		remember(qp->extended, wr->wr_id, key.qp.num);
	compare(qp, &request);
	if (!keep(qp, &key, &request))
		verbs_complete_count(INFLIGHT_FULL);
	if (WANTED(verbs_post_send, depth))
		note_counted(&key, wr->bytes);
}

CHAINS(verbs_posted_chains)
ITSELF(verbs_posted_next);

SEC("uprobe/posted__post_send")
int uprobe_verbs_posted__post_send(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid(), address = KPROBE_ARG1(ctx);
	struct chain *chain = verbs_posted_chains_of(thread);
	struct ibv_send_wr wr = {};

	keep_caller();
	if (chain)
		address = chain->wr;
	if (SEES && address && !bpf_probe_read_user(&wr, sizeof(wr), (void *)address)) {
		struct built request = {
			.wr_id = wr.wr_id, .opcode = wr.opcode, .send_flags = wr.send_flags, .imm_data = wr.imm_data,
			.bytes = WANTED(verbs_complete, bytes) ? add_sges(wr.sg_list, wr.num_sge) : 0,
		};

		posted(KPROBE_ARG0(ctx), &request, !chain);
	}
	if (verbs_posted_chains_go_on(thread, chain, wr.next))
		bpf_tail_call(ctx, &verbs_posted_next, 0);
	if (wr.next)
		verbs_complete_count(CUT);
	if (wr.next || chain)
		verbs_posted_chains_over(thread);
	return 0;
}

ITSELF(verbs_posted_next_built);

SEC("uprobe/posted__wr_complete")
int uprobe_verbs_posted__wr_complete(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct chain *chain = verbs_posted_chains_of(thread);
	__u32 i = chain ? chain->wr : 0;
	struct building *building = posted_now(thread, KPROBE_ARG0(ctx), i, COMPLETIONS_AWAITED);

	keep_caller();
	if (!SEES || !building)
		return 0;
	posted(building->qp, nth(building, i), !i);
	if (i + 1 < building->n && verbs_posted_chains_go_on(thread, chain, i + 1))
		bpf_tail_call(ctx, &verbs_posted_next_built, 0);
	if (i + 1 < building->n)
		verbs_complete_count(CUT);
	if (chain || i + 1 < building->n)
		verbs_posted_chains_over(thread);
	building->done |= COMPLETIONS_AWAITED;
	return 0;
}

/* enum ib_qp_attr_mask and enum ib_qp_state, include/rdma/ib_verbs.h */
enum { IB_QP_STATE = 1, IB_QPS_INIT = 1 };

/*
 * int ib_modify_qp_with_udata(struct ib_qp *qp, struct ib_qp_attr *attr, int attr_mask, struct ib_udata *udata): a QP that goes to RESET or
 * INIT has a new life. What it posted before never completes. attr begins with the state.
 */
SEC("kprobe/ib_modify_qp_with_udata")
int kprobe_verbs_renewed__ib_modify_qp_with_udata(struct kprobe_regs *ctx)
{
	__u64 qp = user_handle(KPROBE_ARG0(ctx));
	__u32 state = 0;
	struct verbs_qp_key key;
	struct ibv_qp of;

	bpf_probe_read_kernel(&state, sizeof(state), (void *)KPROBE_ARG1(ctx));
	if (!SEES || !qp || !(KPROBE_ARG2(ctx) & IB_QP_STATE) || state > IB_QPS_INIT)
		return 0;
	of = read_qp(qp);
	key = key_of_qp(&of);
	begin_life(&key, qp, 1, BPF_ANY);
	return 0;
}

/* int ib_destroy_qp_user(struct ib_qp *qp, struct ib_udata *udata) */
SEC("kprobe/ib_destroy_qp_user")
int kprobe_verbs_renewed__ib_destroy_qp_user(struct kprobe_regs *ctx)
{
	__u64 qp = user_handle(KPROBE_ARG0(ctx));
	struct verbs_qp_key key;
	struct ibv_qp of;

	if (!qp)
		return 0;
	of = read_qp(qp);
	key = key_of_qp(&of);
	bpf_map_delete_elem(&verbs_qps, &key);
	return 0;
}

/*
 * Completions.
 */

/* A poll under way, by thread, and the completion at hand. There is no room for that on the stack. */
struct verbs_poller {
	struct poll poll;
	struct poll_times times;
	struct ibv_wc wc;
	struct verbs_request request;
	__u64 retired, bytes, depth, gap;
	__u64 follows; /* another completion of the QP, after which the gap is */
};

SLOTTED(verbs_pollers, thread, struct verbs_poller, 4096)
ITSELF(verbs_complete_next);

/* Whether the completion of a request that does not ask may come. */
static __always_inline bool may_complete(struct verbs_request *request, struct verbs_qp *qp, bool failed)
{
	return request->asks || failed || !qp->asking;
}

/* Takes the request with a key from those that are kept, unless another thread that polls does so. */
static __always_inline bool take(struct verbs_request_key *key, struct verbs_request *request, struct verbs_request *taken)
{
	*taken = *request;
	return !bpf_map_delete_elem(&verbs_requests, key);
}

/* Finds the request of a completion whose wr_id does not repeat, or did not when it was posted. */
static __always_inline bool take_only(struct verbs_qp *qp, struct verbs_request_key *key, bool failed, struct verbs_request *taken)
{
	struct verbs_request *request;

	key->number = 0;
	request = bpf_map_lookup_elem(&verbs_requests, key);
	return request && may_complete(request, qp, failed) && take(key, request, taken);
}

/* How many requests that get no completion may be before the first that gets one. */
#define SKIPPED 128

/* Finds the first request of a completion whose wr_id repeats. */
static __always_inline bool take_first(struct verbs_qp *qp, struct verbs_request_key *key, bool failed, struct verbs_request *taken)
{
	struct verbs_numbers *numbers;
	__u64 first;

	key->number = 0;
	numbers = bpf_map_lookup_elem(&verbs_numbers, key);
	if (!numbers)
		return false;
	first = numbers->first;
#pragma clang loop unroll(disable)
	for (int i = 0; i < SKIPPED; i++) {
		struct verbs_request *request;

		key->number = first + i;
		request = bpf_map_lookup_elem(&verbs_requests, key);
		if (!request && key->number >= numbers->next)
			return false;
		numbers->first = key->number + 1;
		if (request && may_complete(request, qp, failed) && take(key, request, taken))
			return true;
	}
	return false;
}

/* Finds the request of a failed completion among those that did not ask for one. */
static __always_inline bool take_silent(struct verbs_qp *qp, struct verbs_request_key *key, struct verbs_request *taken)
{
	__u64 wr_id = key->wr_id, retired = qp->retired;

	key->wr_id = 0;
#pragma clang loop unroll(disable)
	for (int i = 1; i <= SILENTS; i++) {
		struct verbs_request *request;

		key->number = SILENT | (retired + i) % SILENTS;
		request = bpf_map_lookup_elem(&verbs_requests, key);
		if (request && request->wr_id == wr_id && request->requests > retired && take(key, request, taken))
			return true;
	}
	return false;
}

/* What of a QP's sum `posted`, with a request, is retired by its completion. Two polls at once may retire the same; then later ones retire less. */
static __always_inline __u64 retire(__u64 *retired, __u64 posted)
{
	__s64 more = posted - *retired;

	if (more < 0)
		more = 0;
	__sync_fetch_and_add(retired, more);
	return more;
}

/* Describes a completion; read is what is known of it. False if it is of no request that was posted to a send queue. */
static __always_inline bool completed(struct verbs_poller *c, __u32 read)
{
	struct verbs_request_key key = {
		.qp = { MEMBER(ibv_cq, c->poll.cq, context), bpf_get_current_pid_tgid() >> 32, c->wc.qp_num },
		.wr_id = c->wc.wr_id,
	};
	bool failed = c->wc.status != ibv_wc_status__SUCCESS;
	struct verbs_qp *qp = bpf_map_lookup_elem(&verbs_qps, &key.qp);

	if (!SEES || (!failed && read & OPCODE_READ && c->wc.opcode >> RECV_BIT))
		return false;
	key.born = qp ? qp->born : 0;
	if (!qp || (!take_only(qp, &key, failed, &c->request) && !take_first(qp, &key, failed, &c->request) &&
		    !(failed && !in_windows && take_silent(qp, &key, &c->request)))) {
		/* A failed completion, or one whose opcode the program does not read, does not show whether it is of a send queue. */
		if (!failed && read & OPCODE_READ)
			verbs_complete_count(UNSEEN);
		return false;
	}
	c->retired = retire(&qp->retired, c->request.requests);
	c->bytes = retire(&qp->retired_bytes, c->request.bytes);
	c->depth = qp->requests - qp->retired;
	c->follows = qp->last;
	c->gap = c->times.nsecs - qp->last;
	qp->last = c->times.nsecs;
	if (identifies(qp))
		return true;
	verbs_complete_count(UNSEEN);
	return false;
}

static __always_inline void verbs_complete_capture(struct verbs_complete *e, struct verbs_poller *c, __u32 read, enum stage stage)
{
	CAPTURE_COMMON(verbs_complete, e, stage);
	if (WANT(verbs_complete, dev, stage))
		e->has.dev = read_device(e->dev, sizeof(e->dev), MEMBER(ibv_cq, c->poll.cq, context));
	if (WANT(verbs_complete, qp.num, stage))
		e->qp.num = c->wc.qp_num;
	if (WANT(verbs_complete, qp.type, stage))
		e->qp.type = c->request.type;
	if (WANT(verbs_complete, wr_id, stage))
		e->wr_id = c->wc.wr_id;
	if (WANT(verbs_complete, opcode, stage))
		e->opcode = c->request.opcode;
	if (WANT(verbs_complete, status, stage))
		e->status = c->wc.status;
	if (WANT(verbs_complete, bytes, stage))
		e->bytes = c->bytes;
	if (WANT(verbs_complete, latency, stage))
		e->latency = c->times.nsecs - c->request.nsecs;
	if (WANT(verbs_complete, retired, stage))
		e->retired = c->retired;
	if (WANT(verbs_complete, depth, stage))
		e->depth = c->depth;
	if (WANT(verbs_complete, gap, stage)) {
		e->gap = c->gap;
		e->has.gap = c->follows != 0;
	}
	if (WANT(verbs_complete, runq, stage)) {
		bool posted_later = c->request.tid == (__u32)bpf_get_current_pid_tgid() && c->request.nsecs > c->times.before_nsecs;

		e->runq = c->times.waited - (posted_later ? c->request.waited : c->times.before_waited);
		e->has.runq = (posted_later || c->times.before_nsecs) && ACCOUNTS_FOR_runq;
	}
	if (WANT(verbs_complete, vendor_err, stage)) {
		e->vendor_err = c->wc.vendor_err;
		e->has.vendor_err = (read & VENDOR_ERR_READ) != 0;
	}
	if (WANT(verbs_complete, imm, stage)) {
		e->imm = c->request.imm;
		e->has.imm = IS_IN(WITH_IMM_DATA, c->request.opcode);
	}
}

/* The last polls of threads. LRU: nothing removes the poll of a thread that ends. */
struct verbs_last_poll {
	__u64 nsecs, waited;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct verbs_last_poll);
} verbs_last_polls SEC(".maps");

/* A poll of the thread returns. */
static __always_inline void polled(struct poll_times *times)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct verbs_last_poll *before, now = { bpf_ktime_get_boot_ns(), WAITED };

	times->nsecs = now.nsecs;
	if (!WANTED(verbs_complete, runq))
		return;
	times->waited = now.waited;
	before = bpf_map_lookup_elem(&verbs_last_polls, &thread);
	times->before_nsecs = before ? before->nsecs : 0;
	times->before_waited = before ? before->waited : 0;
	bpf_map_update_elem(&verbs_last_polls, &thread, &now, BPF_ANY);
}

SEC("uprobe/complete__poll_cq")
int uprobe_verbs_complete__poll_cq(struct kprobe_regs *ctx)
{
	/* Of a poll whose return was missed, the thread still has one. */
	struct verbs_poller *c = verbs_pollers_begin(bpf_get_current_pid_tgid());

	if (!c) {
		verbs_complete_count(INFLIGHT_FULL);
		return 0;
	}
	keep_caller();
	c->poll.cq = KPROBE_ARG0(ctx);
	c->poll.wc = KPROBE_ARG2(ctx);
	c->poll.next = 0;
	return 0;
}

SEC("uretprobe/complete__poll_cq")
int uretprobe_verbs_complete__poll_cq(struct kprobe_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct verbs_poller *c = verbs_pollers_of(thread);
	int n = (int)KPROBE_RET(ctx);
	__u32 i;

	if (!c) {
		if (n > 0)
			verbs_complete_count(UNSEEN);
		return 0;
	}
	i = c->poll.next++;
	if (!i)
		polled(&c->times);
	if (n > 0) {
		if (!bpf_probe_read_user(&c->wc, sizeof(c->wc), (void *)(c->poll.wc + i * sizeof(c->wc))) && completed(c, ~0)) {
			struct verbs_complete e; /* here, so that it shares its stack with what completed() has there */

			__builtin_memset(&e.has, 0, sizeof(e.has));
			EMIT(verbs_complete, ctx, &e, c, ~0);
		}
		if (i + 1 < n && i + 1 < MOST)
			bpf_tail_call(ctx, &verbs_complete_next, 0);
		if (i + 1 < n)
			verbs_complete_count(CUT);
	}
	verbs_pollers_end(c);
	return 0;
}

ITSELF(verbs_complete_over);

SEC("uprobe/complete__end_poll")
int uprobe_verbs_complete__end_poll(struct kprobe_regs *ctx)
{
	struct iterated *at_hand = over(KPROBE_ARG0(ctx), COMPLETIONS_AWAITED);
	struct verbs_poller *c;

	if (!at_hand)
		return 0;
	c = verbs_pollers_begin(bpf_get_current_pid_tgid());
	if (!c) {
		verbs_complete_count(INFLIGHT_FULL);
		return 0;
	}
	at_hand->done |= COMPLETIONS_AWAITED;
	c->poll.cq = KPROBE_ARG0(ctx);
	c->wc = at_hand->wc;
	c->times = at_hand->times;
	if (!(at_hand->read & QP_READ))
		c->wc.qp_num = qp_of(KPROBE_ARG0(ctx), c->wc.wr_id);
	if (completed(c, at_hand->read)) {
		struct verbs_complete e;

		__builtin_memset(&e.has, 0, sizeof(e.has));
		EMIT(verbs_complete, ctx, &e, c, at_hand->read);
	}
	verbs_pollers_end(c);
	if (!KPROBE_ARG0(ctx)) /* never, see MOST */
		bpf_tail_call(ctx, &verbs_complete_over, 0);
	return 0;
}

SEC("uprobe/complete__next_poll")
int uprobe_verbs_complete__next_poll(struct kprobe_regs *ctx)
{
	bpf_tail_call(ctx, &verbs_complete_over, 0);
	return 0;
}
