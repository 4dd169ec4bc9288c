/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Completions that a program gets one by one from an extended CQ (struct ibv_cq_ex): ibv_start_poll and ibv_next_poll give it one, and
 * ibv_next_poll or ibv_end_poll is the end of it. In the CQ are its status and its wr_id. The rest is the device's, and comes by ibv_wc_read_*,
 * if the program calls that: programs at the returns remember it, by CQ. One thread has a CQ between ibv_start_poll and ibv_end_poll.
 */

/* What a program may have read of a completion. */
enum { QP_READ = 1 << 0, OPCODE_READ = 1 << 1, BYTES_READ = 1 << 2, VENDOR_ERR_READ = 1 << 3, IMM_READ = 1 << 4, FLAGS_READ = 1 << 5,
       SRC_QP_READ = 1 << 6, TICKS_READ = 1 << 7, WALLCLOCK_READ = 1 << 8 };

/* What has no completion at hand is done, like one that all have seen (EVENTS_SENT, COMPLETIONS_AWAITED). */
enum { NOTHING_AT_HAND = ~0U };

/* When a poll returned, and for how long the thread had waited for a CPU until then; likewise of its poll before. */
struct poll_times {
	__u64 nsecs, waited;
	__u64 before_nsecs, before_waited;
};

/* The completion at hand of a CQ. */
struct iterated {
	struct ibv_wc wc;
	__u64 ticks, wallclock;
	__u64 empty; /* polls before it that returned nothing */
	__u32 read; /* what of it is known */
	__u32 done;
	struct poll_times times;
};

/* An object of a process. */
struct verbs_object {
	__u64 address, tgid;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct verbs_object);
	__type(value, struct iterated);
} verbs_iterated SEC(".maps");

/* A completion of an array, or the one at hand. */
#define OF_COMPLETION(wc, at_hand, member) ((at_hand) ? (at_hand)->wc.member : MEMBER(ibv_wc, wc, member))
#define IS_READ(at_hand, what) ((at_hand) ? ((at_hand)->read & what##_READ) / what##_READ : 1)

/* 1 if the completion is a success. */
#define SUCCEEDED(wc, at_hand) (1 ^ IS_NEGATIVE(-(__s64)OF_COMPLETION(wc, at_hand, status)))

static __always_inline struct iterated *iterated_of(__u64 cq)
{
	struct verbs_object key = { cq, bpf_get_current_pid_tgid() >> 32 };

	return bpf_map_lookup_elem(&verbs_iterated, &key);
}

/* The completion that is over now; NULL if there is none, or `who` has seen it. */
static __always_inline struct iterated *over(__u64 cq, __u32 who)
{
	struct iterated *at_hand = iterated_of(cq);

	return at_hand && !(at_hand->done & who) ? at_hand : 0;
}

/* The frequencies of devices' counters in kHz, by context. Go finds them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct verbs_object);
	__type(value, __u64);
} verbs_clocks SEC(".maps");

/* Reads the time of a completion by the clock of the device; 1 if it is known. */
static __always_inline __u32 read_clock(__u64 *ns, __u64 cq, struct iterated *at_hand)
{
	struct verbs_object key = { MEMBER(ibv_cq, cq, context), bpf_get_current_pid_tgid() >> 32 };
	__u64 *kilohertz, ticks = at_hand->ticks;

	*ns = at_hand->wallclock;
	if (IS_READ(at_hand, WALLCLOCK))
		return 1;
	kilohertz = bpf_map_lookup_elem(&verbs_clocks, &key);
	if (!kilohertz || !*kilohertz || !IS_READ(at_hand, TICKS))
		return 0;
	*ns = ticks / *kilohertz * 1000000 + ticks % *kilohertz * 1000000 / *kilohertz;
	return 1;
}
