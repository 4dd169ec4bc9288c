/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The QP of a completion whose program does not read it (ibv_wc_read_qp_num): one of those that post to the CQ, with a request of the same
 * wr_id. If several have one, it cannot be known which of them completes.
 */

/* The QPs that have an extended CQ for sends, by their place in its list. */
struct verbs_member_key {
	struct verbs_object cq;
	__u64 place;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct verbs_member_key);
	__type(value, struct verbs_qp_key);
} verbs_members SEC(".maps");

/* As many of a CQ are listed. */
#define MEMBERS 64

/* The QP that was the last to post a wr_id. */
struct verbs_last_key {
	struct verbs_object cq;
	__u64 wr_id;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct verbs_last_key);
	__type(value, __u32);
} verbs_last SEC(".maps");

/* The CQ for sends of a QP, if it is extended, and 0 otherwise: libraries allocate CQs with zeros (calloc). */
static __always_inline __u64 extended_cq(__u64 qp)
{
	__u64 cq = MEMBER(ibv_qp, qp, send_cq);

	return MEMBER(ibv_cq_ex, cq + BEHIND_MUTEX(cq), start_poll) ? cq : 0;
}

/* Puts a QP into a place of a list, if that is free, or the QP there is gone; false if it is not in that place afterwards. */
static __always_inline bool enlist_at(struct verbs_member_key *key, struct verbs_qp_key *qp)
{
	struct verbs_qp_key *member = bpf_map_lookup_elem(&verbs_members, key);

	if (!member) /* another thread may take the place first */
		return !bpf_map_update_elem(&verbs_members, key, qp, BPF_NOEXIST);
	if (!bpf_map_lookup_elem(&verbs_qps, member))
		*member = *qp;
	return member->num == qp->num;
}

/*
 * Adds a QP to the list of its CQ. The loops here have one way back, without `continue`: 5.10 refuses code that falls into the head of a loop
 * from above when it has come there by a jump before (check_cfg, kernel/bpf/verifier.c).
 */
static __always_inline void enlist(struct verbs_qp_key *qp, __u64 cq)
{
	struct verbs_member_key key = { { cq, qp->tgid }, 0 };
	bool listed = false;

#pragma clang loop unroll(disable)
	for (int i = 0; i < MEMBERS && !listed; i++) {
		key.place = i;
		listed = enlist_at(&key, qp);
	}
}

static __always_inline void remember(__u64 cq, __u64 wr_id, __u32 qp)
{
	struct verbs_last_key key = { { cq, bpf_get_current_pid_tgid() >> 32 }, wr_id };

	bpf_map_update_elem(&verbs_last, &key, &qp, BPF_ANY);
}

/* Whether a QP has a request with a wr_id that is not completed. */
static __always_inline bool awaits(struct verbs_request_key *key)
{
	struct verbs_qp *qp = bpf_map_lookup_elem(&verbs_qps, &key->qp);
	struct verbs_numbers *numbers;

	if (!qp)
		return false;
	key->born = qp->born;
	if (bpf_map_lookup_elem(&verbs_requests, key))
		return true;
	numbers = bpf_map_lookup_elem(&verbs_numbers, key);
	return numbers && numbers->first < numbers->next;
}

/* The number of the QP of a completion; 0 if there is none. */
static __always_inline __u32 qp_of(__u64 cq, __u64 wr_id)
{
	struct verbs_last_key last_key = { { cq, bpf_get_current_pid_tgid() >> 32 }, wr_id };
	struct verbs_member_key member_key = { last_key.cq, 0 };
	struct verbs_request_key key = { .qp = { MEMBER(ibv_cq, cq, context), last_key.cq.tgid }, .wr_id = wr_id };
	__u32 *last = bpf_map_lookup_elem(&verbs_last, &last_key);
	struct verbs_qp_key *member = &key.qp; /* not NULL */
	bool found = false;

	if (last) {
		key.qp.num = *last;
		if (awaits(&key))
			return *last;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < MEMBERS && !found && member; i++) {
		member_key.place = i;
		member = bpf_map_lookup_elem(&verbs_members, &member_key);
		if (member) {
			key.qp.num = member->num;
			found = awaits(&key);
		}
	}
	if (found)
		return key.qp.num;
	/* After an error, one that asked for no completion. */
	return last ? *last : 0;
}
