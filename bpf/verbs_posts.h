/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls that post work requests, whose events come at their return: `ret` is known then, and `depth` after all programs at the beginning of
 * the call, whose order is the kernel's. The fields are of the beginning, as without these two.
 */

/* A call under way, by thread: its return does not have the arguments. */
struct post {
	__u64 queue, wr, bad; /* the next request, and where the provider puts the first one that it refuses */
	__u64 nsecs;
	__u32 before;         /* requests before the next one */
	__s32 ret;            /* of the request at hand */
	__u32 depth;
	__u32 depth_known;
};

#define POSTS(name) SLOTTED(name, thread, struct post, 4096)

/* A post that the thread has already is of a call whose return was missed. */
#define BEGIN_POST(X, thread, queue_, wr_, bad_) \
	do { \
		struct post *begun = X##_posts_of(thread); \
\
		if (begun) \
			X##_count(UNENDED); \
		else \
			begun = X##_posts_begin(thread); \
		if (begun) \
			*begun = (struct post){ queue_, wr_, bad_, bpf_ktime_get_boot_ns() }; \
		else \
			X##_count(INFLIGHT_FULL); \
	} while (0)

/* Notes a refusal. The functions return an errno; some providers make it negative. */
static __always_inline void refuse(struct post *post, int result) { post->ret = result > 0 ? -result : result; }

/*
 * Notes what became of the request at hand of a chain. If the call has failed, it is refused if one before it is, if it is the one that the
 * provider names, or if it is the last one, as one must be.
 */
static __always_inline void answer(struct post *post, int result, __u64 next)
{
	__u64 bad = 0;

	if (!result || post->ret)
		return;
	bpf_probe_read_user(&bad, sizeof(bad), (void *)post->bad);
	if (bad == post->wr || !next)
		refuse(post, result);
}

/* Counts the request at hand, which was posted or refused, into the depth. See verbs_complete.h. */
static __always_inline void count_depth(struct post *post, __u64 thread);

#define CAPTURE_POST(X, e, post, stage) \
	do { \
		if (WANT(X, nsecs, stage) && (post)) \
			(e)->nsecs = (post)->nsecs; \
		if (WANT(X, ret, stage) && (post)) \
			(e)->ret = (post)->ret; \
	} while (0)
