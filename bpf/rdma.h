/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the probes of RDMA objects share: views of the kernel's types (include/rdma/ib_verbs.h), the fields that events of the same
 * object have in common, and how they are captured.
 */
#pragma once
#include "task.h"

/* enum ib_qp_state, include/rdma/ib_verbs.h. */
enum ib_qp_state {
	ib_qp_state__RESET,
	ib_qp_state__INIT,
	ib_qp_state__RTR,
	ib_qp_state__RTS,
	ib_qp_state__SQD,
	ib_qp_state__SQE,
	ib_qp_state__ERR,
};

/* enum ib_qp_type; DRIVER is DC on mlx5 and SRD on EFA. */
enum ib_qp_type {
	ib_qp_type__SMI,
	ib_qp_type__GSI,
	ib_qp_type__RC,
	ib_qp_type__UC,
	ib_qp_type__UD,
	ib_qp_type__RAW_IPV6,
	ib_qp_type__RAW_ETHERTYPE,
	ib_qp_type__RAW_PACKET = 8,
	ib_qp_type__XRC_INI,
	ib_qp_type__XRC_TGT,
	ib_qp_type__DRIVER = 0xff,
};

/* enum ib_gid_type. */
enum ib_gid_type {
	ib_gid_type__IB,
	ib_gid_type__RoCEv1,
	ib_gid_type__RoCEv2,
};

/* enum ib_access_flags: what an MR may be used for. */
enum ib_access_flags {
	ib_access_flags__LOCAL_WRITE = 1 << 0,
	ib_access_flags__REMOTE_WRITE = 1 << 1,
	ib_access_flags__REMOTE_READ = 1 << 2,
	ib_access_flags__REMOTE_ATOMIC = 1 << 3,
	ib_access_flags__MW_BIND = 1 << 4,
	ib_access_flags__ZERO_BASED = 1 << 5,
	ib_access_flags__ON_DEMAND = 1 << 6,
	ib_access_flags__HUGETLB = 1 << 7,
	ib_access_flags__FLUSH_GLOBAL = 1 << 8,
	ib_access_flags__FLUSH_PERSISTENT = 1 << 9,
	ib_access_flags__RELAXED_ORDERING = 1 << 20,
};

/* enum ib_qp_attr_mask: which members of ib_qp_attr count. */
enum {
	IB_QP_STATE = 1 << 0,
	IB_QP_PORT = 1 << 5,
	IB_QP_AV = 1 << 7,
	IB_QP_PATH_MTU = 1 << 8,
	IB_QP_TIMEOUT = 1 << 9,
	IB_QP_RETRY_CNT = 1 << 10,
	IB_QP_RNR_RETRY = 1 << 11,
	IB_QP_RQ_PSN = 1 << 12,
	IB_QP_MIN_RNR_TIMER = 1 << 15,
	IB_QP_SQ_PSN = 1 << 16,
	IB_QP_DEST_QPN = 1 << 20,
};

enum {
	IB_AH_GRH = 1, /* the address has a global route: GIDs */
};

enum ib_mtu {
	IB_MTU_256 = 1, /* 2: 512, 3: 1024, 4: 2048, 5: 4096 */
};

enum rdma_restrack_type {
	RDMA_RESTRACK_PD,
	RDMA_RESTRACK_CQ,
	RDMA_RESTRACK_QP,
	RDMA_RESTRACK_MR = 4,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct rdma_restrack_entry {
	bool valid;       /* in the kernel's table, with an id */
	__u8 no_track: 1; /* not in the table */
	enum rdma_restrack_type type;
	__u32 id;
	struct task_struct *task; /* owner of a user's object, NULL for the kernel's own */
	const char *kern_name;    /* owner of a kernel object */
};
struct ib_device {
	char name[64];
};
union ib_gid {
	__u8 raw[16];
};
struct net_device {
	char name[16];
};
struct ib_gid_attr {
	struct net_device *ndev;
	struct ib_device *device;
	union ib_gid gid;
	enum ib_gid_type gid_type;
	__u16 index;
	__u32 port_num;
};
struct ib_pd {
	struct ib_device *device;
	struct rdma_restrack_entry res;
};
struct ib_wc;
struct ib_cq {
	struct ib_device *device;
	__s32 cqe;
	struct ib_wc *wc;
	__u32 comp_vector;
	struct rdma_restrack_entry res;
};
struct ib_cq_init_attr {
	unsigned int cqe;
	__u32 comp_vector;
};
struct ib_mr {
	struct ib_device *device;
	struct ib_pd *pd;
	__u32 lkey;
	__u32 rkey;
	__u64 iova;
	__u64 length;
	struct rdma_restrack_entry res;
};
struct ib_qp_init_attr {
	enum ib_qp_type qp_type;
};
struct ib_qp {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_qp *real_qp;
	const struct ib_gid_attr *av_sgid_attr;
	__u32 qp_num;
	enum ib_qp_type qp_type;
	__u32 port;
	struct rdma_restrack_entry res;
};
struct ib_global_route {
	const struct ib_gid_attr *sgid_attr;
	union ib_gid dgid;
	__u8 traffic_class;
};
struct rdma_ah_attr {
	struct ib_global_route grh;
	__u8 ah_flags;
};
struct ib_qp_attr {
	enum ib_qp_state qp_state;
	enum ib_mtu path_mtu;
	__u32 rq_psn;
	__u32 sq_psn;
	__u32 dest_qp_num;
	struct rdma_ah_attr ah_attr;
	__u8 min_rnr_timer;
	__u32 port_num;
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
};
#pragma clang attribute pop

/* include/linux/err.h: addresses in the last page are errors. */
#define IS_ERR(ret) ((__u64)(ret) >= (__u64)-4095)

/* The fields of every event: its QP and the call. */
#define QP(state_meaning) \
	struct { \
		__u32 num DOC("QP number"); \
		enum ib_qp_type type DOC("transport service"); \
		enum ib_qp_state state state_meaning; \
		__u32 port VERBOSE DOC("port of the device; absent until the change to INIT that sets it"); \
		struct { \
			HAS_PAD; \
			__u32 num : 1; \
			__u32 type : 1; \
			__u32 state : 1; \
			__u32 port : 1; \
		} has HAS_ALIGN; \
	}

#define OWNER() \
	struct { \
		__u32 pid VERBOSE DOC("process that owns the object; absent for the kernel's own"); \
		char comm[16] VERBOSE DOC("name of that process"); \
		char kernel[32] DETAIL DOC("kernel module that owns the object; absent for objects of a process"); \
		struct { \
			HAS_PAD; \
			__u32 pid : 1; \
			__u32 comm : 1; \
			__u32 kernel : 1; \
		} has HAS_ALIGN; \
	}

#define QP_FIELDS(state_meaning) \
	char dev[64] DOC("RDMA device, like mlx5_0"); \
	QP(state_meaning) qp; \
	OWNER() owner; \
	errno_t ret AT_RETURN DOC("result: -errno on failure"); \
	ns_t latency DOC("time in the call"); \
	SPENT_FIELDS()

/* The arguments of a change of a QP: the mask, and the attributes that it selects. */
#define MODIFY_FIELDS(helper) \
	hex32_t attr_mask VERBOSE DOC("attributes that the call sets (enum ib_qp_attr_mask)"); \
	enum ib_qp_state prev_state NEEDS(helper) VERBOSE DOC("state before the call; absent until a change of this QP was seen"); \
	ATTRIBUTES(", as resolved by the call")

/* Attributes of a QP; how the local GID is known. */
#define ATTRIBUTES(known) \
	__u32 dest_qpn DOC("QP number of the remote side"); \
	__u32 path_mtu VERBOSE DOC("path MTU in bytes"); \
	__u32 rq_psn VERBOSE DOC("first packet sequence number to receive"); \
	__u32 sq_psn VERBOSE DOC("first packet sequence number to send"); \
	__u8 timeout VERBOSE DOC("local ACK timeout: 4.096 us * 2^timeout, 0 means no timeout"); \
	__u8 retry_cnt VERBOSE DOC("retries after a timeout before the QP fails"); \
	__u8 rnr_retry VERBOSE DOC("retries after receiver-not-ready, 7 means without limit"); \
	__u8 min_rnr_timer VERBOSE DOC("code of the wait that receiver-not-ready asks for (IBTA spec 9.7.5.2.8)"); \
	hex8_t traffic_class VERBOSE DOC("traffic class of the address; DSCP is its upper 6 bits"); \
	gid_t16 sgid DOC("local GID" known); \
	__u32 sgid_index VERBOSE DOC("its index in the GID table of the port"); \
	enum ib_gid_type sgid_type VERBOSE DOC("its type"); \
	gid_t16 dgid DOC("remote GID")

#define MODIFY_HAS() \
	__u32 prev_state : 1; \
	ATTRIBUTES_HAS()

#define ATTRIBUTES_HAS() \
	__u32 dest_qpn : 1; \
	__u32 path_mtu : 1; \
	__u32 rq_psn : 1; \
	__u32 sq_psn : 1; \
	__u32 timeout : 1; \
	__u32 retry_cnt : 1; \
	__u32 rnr_retry : 1; \
	__u32 min_rnr_timer : 1; \
	__u32 traffic_class : 1; \
	__u32 sgid : 1; \
	__u32 sgid_index : 1; \
	__u32 sgid_type : 1; \
	__u32 dgid : 1

/* Calls in progress, by thread. */
#define CALLS(name, call) KEPT(name, thread, struct call, 4096)

#define CAPTURE_DEV(X, e, device, stage) \
	do { \
		if (WANT(X, dev, stage)) { \
			struct ib_device *d = (device); \
			if (bpf_core_field_exists(d->name)) \
				(e)->has.dev = is_positive(READ_STRING((e)->dev, d->name)); \
		} \
	} while (0)

#define HAS_IF_WANTED(X, e, field, stage) \
	do { \
		if (WANT(X, field, stage)) \
			(e)->has.field = 1; \
	} while (0)

/* Captures the common fields of an event that no task causes at this moment: they describe the object's maker, if there is one. */
#define CAPTURE_TASK(X, e, task, stage) \
	do { \
		struct task_struct *maker = (task); \
		if (!maker) \
			break; \
		CAPTURE_FROM_TASK(X, e, maker, stage); \
		HAS_IF_WANTED(X, e, pid, stage); \
		HAS_IF_WANTED(X, e, tid, stage); \
		HAS_IF_WANTED(X, e, uid, stage); \
		HAS_IF_WANTED(X, e, cgroup, stage); \
		HAS_IF_WANTED(X, e, comm, stage); \
	} while (0)

#define WANT_OWNER(X, stage) (WANT(X, owner.pid, stage) || WANT(X, owner.comm, stage) || WANT(X, owner.kernel, stage))

/* Captures the owner from what an object has: the task, or the name of a part of the kernel. */
#define CAPTURE_OWNER_FROM(X, e, task, name) \
	do { \
		(e)->owner.pid = BPF_CORE_READ(task, tgid); \
		READ_STRING((e)->owner.comm, (task)->comm); \
		(e)->owner.has.pid = is_set((__u64)(task)); \
		(e)->owner.has.comm = is_set((__u64)(task)); \
		(e)->owner.has.kernel = is_positive(READ_STRING((e)->owner.kernel, name)) & ~is_set((__u64)(task)); \
	} while (0)

#define CAPTURE_OWNER(X, e, p, stage) \
	do { \
		struct task_struct *task; \
		const char *name; \
		if (!WANT_OWNER(X, stage)) \
			break; \
		task = GET_POINTER(p, res.task); \
		name = GET_POINTER(p, res.kern_name); \
		CAPTURE_OWNER_FROM(X, e, task, name); \
	} while (0)

/*
 * The owner of an object p in a PD. ib_core sets it when it begins to track the object and clears it when it stops
 * (rdma_restrack_del). It may stop before it calls the driver, which can still refuse. The owner is the PD's owner, or nobody.
 */
#define CAPTURE_OWNER_OR_OF_PD(X, e, p, pd, stage) \
	do { \
		struct task_struct *task; \
		const char *name; \
		struct ib_pd *parent; \
		if (!WANT_OWNER(X, stage)) \
			break; \
		task = GET_POINTER(p, res.task); \
		name = GET_POINTER(p, res.kern_name); \
		if (!task && !name) { \
			parent = (pd); \
			task = GET_POINTER(parent, res.task); \
			name = GET_POINTER(parent, res.kern_name); \
		} \
		CAPTURE_OWNER_FROM(X, e, task, name); \
	} while (0)

#define CAPTURE_QP(X, e, p, stage) \
	do { \
		CAPTURE_DEV(X, e, GET_POINTER(p, device), stage); \
		if (WANT(X, qp.num, stage) && GET(&(e)->qp.num, p, qp_num)) \
			(e)->qp.has.num = 1; \
		if (WANT(X, qp.type, stage) && GET(&(e)->qp.type, p, qp_type)) \
			(e)->qp.has.type = 1; \
		/* 0 until the change to INIT that sets it. */ \
		if (WANT(X, qp.port, stage) && GET(&(e)->qp.port, p, port)) \
			(e)->qp.has.port = is_set((e)->qp.port); \
		CAPTURE_OWNER(X, e, p, stage); \
	} while (0)

/* A pointer, or NULL if it is not to be followed: a read from NULL gives zeros. No branch, see NOT_A_BRANCH. */
#define IF_SET(p, condition) ((typeof(p))((__u64)(p) & -(__u64)is_set(condition)))

/* Captures a member of ib_qp_attr if the mask selects it. */
#define CAPTURE_ATTR(X, e, field, bit, attr, mask, member, stage) \
	do { \
		if (WANT(X, field, stage) && GET(&(e)->field, IF_SET(attr, (mask) & (bit)), member)) \
			(e)->has.field = is_set((mask) & (bit)); \
	} while (0)

#define CAPTURE_ATTRS(X, e, attr, mask, stage) \
	do { \
		if (WANT(X, qp.state, stage) && GET(&(e)->qp.state, IF_SET(attr, (mask) & IB_QP_STATE), qp_state)) \
			(e)->qp.has.state = is_set((mask) & IB_QP_STATE); \
		if (WANT(X, path_mtu, stage) && GET(&(e)->path_mtu, IF_SET(attr, (mask) & IB_QP_PATH_MTU), path_mtu)) { \
			(e)->path_mtu = 128 << ((e)->path_mtu & 7); \
			(e)->has.path_mtu = is_set((mask) & IB_QP_PATH_MTU); \
		} \
		CAPTURE_ATTR(X, e, dest_qpn, IB_QP_DEST_QPN, attr, mask, dest_qp_num, stage); \
		CAPTURE_ATTR(X, e, rq_psn, IB_QP_RQ_PSN, attr, mask, rq_psn, stage); \
		CAPTURE_ATTR(X, e, sq_psn, IB_QP_SQ_PSN, attr, mask, sq_psn, stage); \
		CAPTURE_ATTR(X, e, timeout, IB_QP_TIMEOUT, attr, mask, timeout, stage); \
		CAPTURE_ATTR(X, e, retry_cnt, IB_QP_RETRY_CNT, attr, mask, retry_cnt, stage); \
		CAPTURE_ATTR(X, e, rnr_retry, IB_QP_RNR_RETRY, attr, mask, rnr_retry, stage); \
		CAPTURE_ATTR(X, e, min_rnr_timer, IB_QP_MIN_RNR_TIMER, attr, mask, min_rnr_timer, stage); \
		CAPTURE_REMOTE_ADDRESS(X, e, IF_SET(attr, (mask) & IB_QP_AV), stage); \
	} while (0)

/* On InfiniBand an address may have no global route, only a LID. */
#define CAPTURE_REMOTE_ADDRESS(X, e, attr, stage) \
	do { \
		typeof(attr) a = (attr); \
		__u8 flags = 0; \
		if (!WANT(X, traffic_class, stage) && !WANT(X, dgid, stage)) \
			break; \
		if (!GET(&flags, a, ah_attr.ah_flags)) \
			break; \
		a = IF_SET(a, flags & IB_AH_GRH); \
		if (WANT(X, traffic_class, stage) && GET(&(e)->traffic_class, a, ah_attr.grh.traffic_class)) \
			(e)->has.traffic_class = is_set((__u64)a); \
		if (WANT(X, dgid, stage) && bpf_core_field_exists(a->ah_attr.grh.dgid.raw)) \
			(e)->has.dgid = is_done(bpf_core_read((e)->dgid, sizeof((e)->dgid), &a->ah_attr.grh.dgid.raw)); \
	} while (0)

#define CAPTURE_LOCAL_ADDRESS(X, e, gid_attr, stage) \
	do { \
		const struct ib_gid_attr *local; \
		if (!WANT(X, sgid, stage) && !WANT(X, sgid_index, stage) && !WANT(X, sgid_type, stage)) \
			break; \
		local = (gid_attr); \
		if (WANT(X, sgid, stage) && bpf_core_field_exists(local->gid.raw)) \
			(e)->has.sgid = is_done(bpf_core_read((e)->sgid, sizeof((e)->sgid), &local->gid.raw)); \
		if (WANT(X, sgid_index, stage) && GET(&(e)->sgid_index, local, index)) \
			(e)->has.sgid_index = is_set((__u64)local); \
		if (WANT(X, sgid_type, stage) && GET(&(e)->sgid_type, local, gid_type)) \
			(e)->has.sgid_type = is_set((__u64)local); \
	} while (0)

static __always_inline const struct ib_gid_attr *address_in_use(struct ib_qp *qp)
{
	struct ib_qp *real = GET_POINTER(qp, real_qp);

	return GET_POINTER(real, av_sgid_attr);
}

/* When a call began, and the totals of its thread then. */
struct beginning {
	__u64 at; /* ns */
	struct spent spent;
};

/* Sets the beginning of a call of event X. */
#define BEGIN(X, beginning) \
	do { \
		BEGIN_SPENT(X, &(beginning)->spent); \
		(beginning)->at = bpf_ktime_get_ns(); \
	} while (0)

#define CAPTURE_END(X, e, started, result, stage) \
	do { \
		if (WANT(X, ret, stage)) \
			(e)->ret = (result); \
		if (WANT(X, latency, stage)) \
			(e)->latency = bpf_ktime_get_ns() - (started)->at; \
	} while (0)

/* Of a call that ends in the thread that began it. */
#define CAPTURE_RESULT(X, e, started, result, stage) \
	do { \
		CAPTURE_END(X, e, started, result, stage); \
		CAPTURE_SPENT(X, e, &(started)->spent, stage); \
	} while (0)

#define CLEAR_HAS(e) \
	do { \
		__builtin_memset(&(e)->has, 0, sizeof((e)->has)); \
		__builtin_memset(&(e)->qp.has, 0, sizeof((e)->qp.has)); \
		__builtin_memset(&(e)->owner.has, 0, sizeof((e)->owner.has)); \
	} while (0)

/* The state of each QP, for events that report the state before a change. */

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64); /* struct ib_qp * */
	__type(value, __u32);
} qp_states SEC(".maps");

struct state_call {
	__u64 qp;
	struct ib_qp_attr *attr;
	__u32 mask;
};
CALLS(state_calls, state_call)

/* Called before a QP is changed or destroyed; false if there is no room to remember it. */
static __always_inline bool state_begin(__u64 qp, __u64 attr, __u64 mask)
{
	struct state_call *call = state_calls_begin(bpf_get_current_pid_tgid());

	if (!call)
		return false;
	*call = (struct state_call){ .qp = qp, .attr = (void *)attr, .mask = mask };
	return true;
}

static __always_inline int state_leave(void *ctx, __s64 ret)
{
	struct state_call *call = state_calls_of(bpf_get_current_pid_tgid());
	__u32 state = 0;

	if (!call)
		return 0;
	if (!(__s32)ret && (call->mask & IB_QP_STATE) && GET(&state, call->attr, qp_state))
		bpf_map_update_elem(&qp_states, &call->qp, &state, BPF_ANY);
	state_calls_end(call);
	return 0;
}

/* The memory of the QP is then free and may be reused for another one. */
static __always_inline int state_forget(void *ctx, __s64 ret)
{
	struct state_call *call = state_calls_of(bpf_get_current_pid_tgid());

	if (!call)
		return 0;
	if (!(__s32)ret)
		bpf_map_delete_elem(&qp_states, &call->qp);
	state_calls_end(call);
	return 0;
}

/* The last state that was seen to be set, or -1. */
static __always_inline __s32 known_state(__u64 qp)
{
	__u32 *state = bpf_map_lookup_elem(&qp_states, &qp);

	return state ? *state : -1;
}
