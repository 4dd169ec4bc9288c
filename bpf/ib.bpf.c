//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Queue pairs of every RDMA driver, of user programs and of the kernel: the functions of ib_core (drivers/infiniband/core/verbs.c)
 * through which all of them pass.
 *
 *   modify    ib_modify_qp_with_udata (uverbs), ib_modify_qp (kernel)
 *   destroy   ib_destroy_qp_user (both)
 *   create    ib_create_qp_user (uverbs), ib_create_qp_kernel; kernel 5.10 has neither and creates the QPs of user programs in
 *             inline code, so there it is the uverbs handlers, ib_create_qp (kernel), and rdma_restrack_add, which every new QP
 *             passes on its way, to know the QP.
 *
 * These functions sleep, so a thread is in one of them at a time and the thread id finds what was kept at its entry.
 */
#include "trace.h"

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
	RDMA_RESTRACK_QP = 2,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
	__s32 tgid;
	char comm[16];
};
struct rdma_restrack_entry {
	enum rdma_restrack_type type;
	struct task_struct *task; /* owner of a user's object, NULL for the kernel's own */
	const char *kern_name;    /* owner of a kernel object */
};
struct ib_device {
	char name[64];
};
union ib_gid {
	__u8 raw[16];
};
struct ib_gid_attr {
	union ib_gid gid;
	enum ib_gid_type gid_type;
	__u16 index;
};
struct ib_pd {
	struct ib_device *device;
};
struct ib_qp_init_attr {
	enum ib_qp_type qp_type;
};
struct ib_qp {
	struct ib_device *device;
	struct ib_qp *real_qp;
	const struct ib_gid_attr *av_sgid_attr;
	__u32 qp_num;
	enum ib_qp_type qp_type;
	__u32 port;
	struct rdma_restrack_entry res;
};
struct ib_global_route {
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

/*
 * Reads a member that this kernel may not describe and may have in another width; false if it does not. An out-of-tree ib_core
 * brings no types along: then all of this is absent, and arguments and results remain. The pointer is copied first: inside the
 * builtins of these macros the access to a struct of our own would be relocated, too.
 */
#define GET(dst, p, member) \
	({ \
		typeof(p) base = (p); \
		bool exists = bpf_core_field_exists(base->member); \
		if (exists) \
			*(dst) = BPF_CORE_READ_BITFIELD_PROBED(base, member); \
		exists; \
	})

/* Reads a pointer member; NULL if this kernel does not describe it. */
#define GET_POINTER(p, member) \
	({ \
		typeof(p) base = (p); \
		bpf_core_field_exists(base->member) ? BPF_CORE_READ(base, member) : 0; \
	})

/* What every event tells of its QP and of the call. */
#define QP(state_meaning) \
	struct { \
		__u32 num DOC("QP number"); \
		enum ib_qp_type type DOC("transport service"); \
		enum ib_qp_state state state_meaning; \
		__u32 port DOC("port of the device; absent until the change to INIT that sets it"); \
		struct { \
			__u32 num : 1; \
			__u32 type : 1; \
			__u32 state : 1; \
			__u32 port : 1; \
		} has; \
	}

#define OWNER() \
	struct { \
		__u32 pid DOC("process that owns the QP; absent for the kernel's own"); \
		char comm[16] DOC("name of that process"); \
		char kernel[32] DOC("kernel module that owns the QP; absent for QPs of a process"); \
		struct { \
			__u32 pid : 1; \
			__u32 comm : 1; \
			__u32 kernel : 1; \
		} has; \
	}

#define QP_FIELDS(state_meaning) \
	char dev[64] DOC("RDMA device, like mlx5_0"); \
	QP(state_meaning) qp; \
	OWNER() owner; \
	errno_t ret DOC("result: -errno on failure"); \
	ns_t latency DOC("time in the call")

struct ib_create_qp {
	COMMON();
	QP_FIELDS(DOC("RESET, the state of a new QP"));
	struct {
		__u32 dev : 1;
	} has;
} DOC("a QP was created, or could not be (ib_create_qp_user, ib_create_qp_kernel)");
EVENT(ib_create_qp)

struct ib_modify_qp {
	COMMON();
	QP_FIELDS(DOC("state that the call asks for; absent if it asks for none"));
	hex32_t attr_mask DOC("attributes that the call sets (enum ib_qp_attr_mask)");
	enum ib_qp_state prev_state NEEDS(qp_state) DOC("state before the call; absent until a change of this QP was seen");
	__u32 dest_qpn DOC("QP number of the remote side");
	__u32 path_mtu DOC("path MTU in bytes");
	__u32 rq_psn DOC("first packet sequence number to receive");
	__u32 sq_psn DOC("first packet sequence number to send");
	__u8 timeout DOC("local ACK timeout: 4.096 us * 2^timeout, 0 is none");
	__u8 retry_cnt DOC("retries after a timeout before the QP fails");
	__u8 rnr_retry DOC("retries after receiver-not-ready, 7 is without end");
	__u8 min_rnr_timer DOC("code of the wait that receiver-not-ready asks for (IBTA spec 9.7.5.2.8)");
	hex8_t traffic_class DOC("traffic class of the address; DSCP is its upper 6 bits");
	gid_t16 sgid DOC("local GID, as resolved by the call");
	__u32 sgid_index DOC("its index in the GID table of the port");
	enum ib_gid_type sgid_type DOC("its type");
	gid_t16 dgid DOC("remote GID");
	struct {
		__u32 dev : 1;
		__u32 prev_state : 1;
		__u32 dest_qpn : 1;
		__u32 path_mtu : 1;
		__u32 rq_psn : 1;
		__u32 sq_psn : 1;
		__u32 timeout : 1;
		__u32 retry_cnt : 1;
		__u32 rnr_retry : 1;
		__u32 min_rnr_timer : 1;
		__u32 traffic_class : 1;
		__u32 sgid : 1;
		__u32 sgid_index : 1;
		__u32 sgid_type : 1;
		__u32 dgid : 1;
	} has;
} DOC("attributes or the state of a QP were changed, or could not be (ib_modify_qp_with_udata, ib_modify_qp)");
EVENT(ib_modify_qp)

struct ib_destroy_qp {
	COMMON();
	QP_FIELDS(NEEDS(qp_state) DOC("last state of the QP; absent if no change was seen"));
	struct {
		__u32 dev : 1;
	} has;
} DOC("a QP was destroyed, or could not be (ib_destroy_qp_user)");
EVENT(ib_destroy_qp)

/* Calls in progress, by thread. */
#define CALLS(map, call) \
	struct { \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, 8192); \
		__type(key, __u64); \
		__type(value, struct call); \
	} map SEC(".maps")

#define CAPTURE_DEV(X, e, device, stage) \
	do { \
		struct ib_device *d = (device); \
		if (WANT(X, dev, stage) && d && bpf_core_field_exists(d->name) && READ_STRING((e)->dev, d->name) > 0) \
			(e)->has.dev = 1; \
	} while (0)

#define CAPTURE_OWNER(X, e, p, stage) \
	do { \
		struct task_struct *task; \
		const char *name; \
		if (!WANT(X, owner.pid, stage) && !WANT(X, owner.comm, stage) && !WANT(X, owner.kernel, stage)) \
			break; \
		task = GET_POINTER(p, res.task); \
		name = GET_POINTER(p, res.kern_name); \
		if (task) { \
			SET(&(e)->owner, pid, BPF_CORE_READ(task, tgid)); \
			READ_STRING((e)->owner.comm, task->comm); \
			(e)->owner.has.comm = 1; \
		} else if (name && READ_STRING((e)->owner.kernel, name) > 0) { \
			(e)->owner.has.kernel = 1; \
		} \
	} while (0)

#define CAPTURE_QP(X, e, p, stage) \
	do { \
		CAPTURE_DEV(X, e, GET_POINTER(p, device), stage); \
		if (WANT(X, qp.num, stage) && GET(&(e)->qp.num, p, qp_num)) \
			(e)->qp.has.num = 1; \
		if (WANT(X, qp.type, stage) && GET(&(e)->qp.type, p, qp_type)) \
			(e)->qp.has.type = 1; \
		/* 0 until the change to INIT that sets it. */ \
		if (WANT(X, qp.port, stage) && GET(&(e)->qp.port, p, port) && (e)->qp.port) \
			(e)->qp.has.port = 1; \
		CAPTURE_OWNER(X, e, p, stage); \
	} while (0)

#define CAPTURE_RESULT(X, e, started, result, stage) \
	do { \
		if (WANT(X, ret, stage)) \
			(e)->ret = (result); \
		if (WANT(X, latency, stage)) \
			(e)->latency = bpf_ktime_get_ns() - (started); \
	} while (0)

#define CLEAR_HAS(e) \
	do { \
		__builtin_memset(&(e)->has, 0, sizeof((e)->has)); \
		__builtin_memset(&(e)->qp.has, 0, sizeof((e)->qp.has)); \
		__builtin_memset(&(e)->owner.has, 0, sizeof((e)->owner.has)); \
	} while (0)

/*
 * Create.
 */

struct create_call {
	__u64 started;
	struct ib_device *device;
	struct ib_qp_init_attr *attr;
	struct ib_qp *qp; /* where rdma_restrack_add tells it */
	__u32 nested;     /* calls of ib_create_qp inside a uverbs handler */
	__u32 handler;    /* a uverbs handler, which returns int and not the QP */
};
CALLS(create_calls, create_call);

static __always_inline int create_begin(struct ib_device *device, struct ib_qp_init_attr *attr, bool handler)
{
	struct create_call call = { .device = device, .attr = attr, .handler = handler };
	__u64 task = bpf_get_current_pid_tgid();

	call.started = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&create_calls, &task, &call, BPF_ANY))
		ib_create_qp_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void ib_create_qp_capture(struct ib_create_qp *e, struct create_call *call, struct ib_qp *qp, __s64 ret,
						 enum stage stage)
{
	CAPTURE_COMMON(ib_create_qp, e, stage);
	CAPTURE_RESULT(ib_create_qp, e, call->started, ret, stage);
	if (qp) {
		CAPTURE_QP(ib_create_qp, e, qp, stage);
		if (WANT(ib_create_qp, qp.state, stage))
			SET(&e->qp, state, ib_qp_state__RESET);
		return;
	}
	CAPTURE_DEV(ib_create_qp, e, call->device, stage);
	if (WANT(ib_create_qp, qp.type, stage) && call->attr && GET(&e->qp.type, call->attr, qp_type))
		e->qp.has.type = 1;
}

static __always_inline int create_end(void *ctx, struct create_call *call, struct ib_qp *qp, __s64 ret)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct ib_create_qp e;

	CLEAR_HAS(&e);
	EMIT(ib_create_qp, ctx, &e, call, qp, ret);
	bpf_map_delete_elem(&create_calls, &task);
	return 0;
}

static __always_inline struct create_call *create_call(void)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct create_call *call = bpf_map_lookup_elem(&create_calls, &task);

	if (!call)
		ib_create_qp_count(UNSEEN);
	return call;
}

/* include/linux/err.h: the last page of addresses are errors. */
#define IS_ERR(ret) ((__u64)(ret) >= (__u64)-4095)

static __always_inline int create_leave(void *ctx, __s64 ret)
{
	struct create_call *call = create_call();

	if (!call)
		return 0;
	if (IS_ERR(ret))
		return create_end(ctx, call, 0, ret);
	return create_end(ctx, call, (struct ib_qp *)ret, 0);
}

static __always_inline int create_user_enter(void *ctx, __u64 device, __u64 pd, __u64 attr)
{
	return create_begin((void *)device, (void *)attr, false);
}
ON_CALL(create_qp, ib_create_qp_user, 6, create_user_enter, create_leave)

static __always_inline int create_kernel_enter(void *ctx, __u64 pd, __u64 attr, __u64 caller)
{
	return create_begin(GET_POINTER((struct ib_pd *)pd, device), (void *)attr, false);
}
ON_CALL(create_qp, ib_create_qp_kernel, 3, create_kernel_enter, create_leave)

/* The way of kernel 5.10. */

static __always_inline int create_handler_enter(void *ctx, __u64 a0, __u64 a1, __u64 a2)
{
	return create_begin(0, 0, true);
}

static __always_inline int create_handler_leave(void *ctx, __s64 ret)
{
	struct create_call *call = create_call();

	if (!call)
		return 0;
	ret = (__s32)ret;
	return create_end(ctx, call, ret ? 0 : call->qp, ret);
}
ON_CALL(create_qp, ib_uverbs_create_qp, 1, create_handler_enter, create_handler_leave)
ON_CALL(create_qp, ib_uverbs_ex_create_qp, 1, create_handler_enter, create_handler_leave)
ON_CALL(create_qp, ib_uverbs_handler_UVERBS_METHOD_QP_CREATE, 1, create_handler_enter, create_handler_leave)

static __always_inline int create_inner_enter(void *ctx, __u64 pd, __u64 attr, __u64 a2)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct create_call *call = bpf_map_lookup_elem(&create_calls, &task);

	/* For a uverbs handler, which reports the event. */
	if (call && call->handler) {
		call->nested++;
		return 0;
	}
	return create_kernel_enter(ctx, pd, attr, 0);
}

static __always_inline int create_inner_leave(void *ctx, __s64 ret)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct create_call *call = bpf_map_lookup_elem(&create_calls, &task);

	if (call && call->nested) {
		call->nested--;
		return 0;
	}
	return create_leave(ctx, ret);
}
ON_CALL(create_qp, ib_create_qp, 2, create_inner_enter, create_inner_leave)

static __always_inline int create_restrack(void *ctx, __u64 res, __u64 a1, __u64 a2)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct create_call *call = bpf_map_lookup_elem(&create_calls, &task);
	struct rdma_restrack_entry *entry = (void *)res;
	__u32 type = 0;

	if (!call || !GET(&type, entry, type) || type != RDMA_RESTRACK_QP)
		return 0;
	if (bpf_core_field_exists(((struct ib_qp *)0)->res))
		call->qp = (void *)res - bpf_core_field_offset(struct ib_qp, res);
	return 0;
}
ON_ENTER(create_qp, rdma_restrack_add, 1, create_restrack)

/*
 * The state of each QP, for those who want to know what it was before: a hook of its own, that only they attach.
 */

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
CALLS(state_calls, state_call);

static __always_inline int state_enter(void *ctx, __u64 qp, __u64 attr, __u64 mask)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct state_call call = { .qp = qp, .attr = (void *)attr, .mask = mask };

	if (bpf_map_update_elem(&state_calls, &task, &call, BPF_ANY))
		ib_modify_qp_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline int state_leave(void *ctx, __s64 ret)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct state_call *call = bpf_map_lookup_elem(&state_calls, &task);
	__u32 state = 0;

	if (!call)
		return 0;
	if (!(__s32)ret && (call->mask & IB_QP_STATE) && GET(&state, call->attr, qp_state))
		bpf_map_update_elem(&qp_states, &call->qp, &state, BPF_ANY);
	bpf_map_delete_elem(&state_calls, &task);
	return 0;
}
ON_CALL(qp_state, ib_modify_qp_with_udata, 4, state_enter, state_leave)
ON_CALL(qp_state, ib_modify_qp, 3, state_enter, state_leave)

/* The memory of the QP is free then and may become another one's. */
static __always_inline int state_forget(void *ctx, __s64 ret)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct state_call *call = bpf_map_lookup_elem(&state_calls, &task);

	if (!call)
		return 0;
	if (!(__s32)ret)
		bpf_map_delete_elem(&qp_states, &call->qp);
	bpf_map_delete_elem(&state_calls, &task);
	return 0;
}
ON_CALL(qp_state, ib_destroy_qp_user, 2, state_enter, state_forget)

/* The state that was seen to be set last, or -1. */
static __always_inline __s32 known_state(__u64 qp)
{
	__u32 *state = bpf_map_lookup_elem(&qp_states, &qp);

	return state ? *state : -1;
}

/*
 * Modify.
 */

struct modify_call {
	__u64 started;
	struct ib_qp *qp;
	struct ib_qp_attr *attr;
	__u32 mask;
	__s32 prev_state;
};
CALLS(modify_calls, modify_call);

static __always_inline int modify_enter(void *ctx, __u64 qp, __u64 attr, __u64 mask)
{
	struct modify_call call = { .qp = (void *)qp, .attr = (void *)attr, .mask = mask, .prev_state = -1 };
	__u64 task = bpf_get_current_pid_tgid();

	if (WANTED(ib_modify_qp, prev_state))
		call.prev_state = known_state(qp);
	call.started = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&modify_calls, &task, &call, BPF_ANY))
		ib_modify_qp_count(INFLIGHT_FULL);
	return 0;
}

/* Captures the member of ib_qp_attr if the mask says that it counts. */
#define CAPTURE_ATTR(e, field, bit, call, member, stage) \
	do { \
		if (WANT(ib_modify_qp, field, stage) && ((call)->mask & (bit)) && GET(&(e)->field, (call)->attr, member)) \
			(e)->has.field = 1; \
	} while (0)

static __always_inline void capture_local_address(struct ib_modify_qp *e, struct ib_qp *qp, enum stage stage)
{
	struct ib_qp *real = GET_POINTER(qp, real_qp);
	const struct ib_gid_attr *gid = real ? GET_POINTER(real, av_sgid_attr) : 0;

	if (!gid)
		return;
	if (WANT(ib_modify_qp, sgid, stage) && bpf_core_field_exists(gid->gid.raw) &&
	    !bpf_core_read(e->sgid, sizeof(e->sgid), &gid->gid.raw))
		e->has.sgid = 1;
	if (WANT(ib_modify_qp, sgid_index, stage) && GET(&e->sgid_index, gid, index))
		e->has.sgid_index = 1;
	if (WANT(ib_modify_qp, sgid_type, stage) && GET(&e->sgid_type, gid, gid_type))
		e->has.sgid_type = 1;
}

static __always_inline void capture_remote_address(struct ib_modify_qp *e, struct ib_qp_attr *attr, enum stage stage)
{
	__u8 flags = 0;

	/* On InfiniBand an address may have no global route, only a LID. */
	if (!GET(&flags, attr, ah_attr.ah_flags) || !(flags & IB_AH_GRH))
		return;
	if (WANT(ib_modify_qp, traffic_class, stage) && GET(&e->traffic_class, attr, ah_attr.grh.traffic_class))
		e->has.traffic_class = 1;
	if (WANT(ib_modify_qp, dgid, stage) && bpf_core_field_exists(attr->ah_attr.grh.dgid.raw) &&
	    !bpf_core_read(e->dgid, sizeof(e->dgid), &attr->ah_attr.grh.dgid.raw))
		e->has.dgid = 1;
}

static __always_inline void ib_modify_qp_capture(struct ib_modify_qp *e, struct modify_call *call, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(ib_modify_qp, e, stage);
	CAPTURE_RESULT(ib_modify_qp, e, call->started, ret, stage);
	CAPTURE_QP(ib_modify_qp, e, call->qp, stage);
	if (WANT(ib_modify_qp, attr_mask, stage))
		e->attr_mask = call->mask;
	if (WANT(ib_modify_qp, prev_state, stage) && call->prev_state >= 0)
		SET(e, prev_state, call->prev_state);
	if (WANT(ib_modify_qp, qp.state, stage) && (call->mask & IB_QP_STATE) && GET(&e->qp.state, call->attr, qp_state))
		e->qp.has.state = 1;
	if (WANT(ib_modify_qp, path_mtu, stage) && (call->mask & IB_QP_PATH_MTU) && GET(&e->path_mtu, call->attr, path_mtu)) {
		e->path_mtu = 128 << (e->path_mtu & 7);
		e->has.path_mtu = 1;
	}
	CAPTURE_ATTR(e, dest_qpn, IB_QP_DEST_QPN, call, dest_qp_num, stage);
	CAPTURE_ATTR(e, rq_psn, IB_QP_RQ_PSN, call, rq_psn, stage);
	CAPTURE_ATTR(e, sq_psn, IB_QP_SQ_PSN, call, sq_psn, stage);
	CAPTURE_ATTR(e, timeout, IB_QP_TIMEOUT, call, timeout, stage);
	CAPTURE_ATTR(e, retry_cnt, IB_QP_RETRY_CNT, call, retry_cnt, stage);
	CAPTURE_ATTR(e, rnr_retry, IB_QP_RNR_RETRY, call, rnr_retry, stage);
	CAPTURE_ATTR(e, min_rnr_timer, IB_QP_MIN_RNR_TIMER, call, min_rnr_timer, stage);
	if (!(call->mask & IB_QP_AV))
		return;
	capture_remote_address(e, call->attr, stage);
	/* A failed call leaves the address of the last one. */
	if (!ret)
		capture_local_address(e, call->qp, stage);
}

static __always_inline int modify_leave(void *ctx, __s64 ret)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct modify_call *call = bpf_map_lookup_elem(&modify_calls, &task);
	struct ib_modify_qp e;

	if (!call) {
		ib_modify_qp_count(UNSEEN);
		return 0;
	}
	CLEAR_HAS(&e);
	EMIT(ib_modify_qp, ctx, &e, call, (__s32)ret);
	bpf_map_delete_elem(&modify_calls, &task);
	return 0;
}
ON_CALL(modify_qp, ib_modify_qp_with_udata, 4, modify_enter, modify_leave)
ON_CALL(modify_qp, ib_modify_qp, 3, modify_enter, modify_leave)

/*
 * Destroy. The QP is gone when the call returns, so it is captured before.
 */

struct destroy_call {
	__u64 started;
	struct ib_qp *qp;
	__u32 nested;
	struct {
		char dev[64];
		QP() qp;
		OWNER() owner;
		struct {
			__u32 dev : 1;
		} has;
	} saved;
};
CALLS(destroy_calls, destroy_call);

static __always_inline int destroy_enter(void *ctx, __u64 ptr, __u64 udata, __u64 a2)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct ib_qp *qp = (void *)ptr;
	struct destroy_call *outer = bpf_map_lookup_elem(&destroy_calls, &task);
	struct destroy_call call;
	__s32 state;

	/* The last handle of a shared XRC QP: the call destroys the real QP in a call of its own. It is one QP. */
	if (outer && outer->qp != qp && GET_POINTER(outer->qp, real_qp) == qp) {
		outer->nested++;
		return 0;
	}
	__builtin_memset(&call, 0, sizeof(call));
	call.qp = qp;
	CAPTURE_QP(ib_destroy_qp, &call.saved, qp, BEFORE);
	CAPTURE_QP(ib_destroy_qp, &call.saved, qp, AFTER);
	state = WANTED(ib_destroy_qp, qp.state) ? known_state(ptr) : -1;
	if (state >= 0)
		SET(&call.saved.qp, state, state);
	call.started = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&destroy_calls, &task, &call, BPF_ANY))
		ib_destroy_qp_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void ib_destroy_qp_capture(struct ib_destroy_qp *e, struct destroy_call *call, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(ib_destroy_qp, e, stage);
	CAPTURE_RESULT(ib_destroy_qp, e, call->started, ret, stage);
}

static __always_inline int destroy_leave(void *ctx, __s64 ret)
{
	__u64 task = bpf_get_current_pid_tgid();
	struct destroy_call *call = bpf_map_lookup_elem(&destroy_calls, &task);
	struct ib_destroy_qp e;

	if (!call) {
		ib_destroy_qp_count(UNSEEN);
		return 0;
	}
	if (call->nested) {
		call->nested--;
		return 0;
	}
	__builtin_memcpy(e.dev, call->saved.dev, sizeof(e.dev));
	__builtin_memcpy(&e.qp, &call->saved.qp, sizeof(e.qp));
	__builtin_memcpy(&e.owner, &call->saved.owner, sizeof(e.owner));
	e.has.dev = call->saved.has.dev;
	EMIT(ib_destroy_qp, ctx, &e, call, (__s32)ret);
	bpf_map_delete_elem(&destroy_calls, &task);
	return 0;
}
ON_CALL(destroy_qp, ib_destroy_qp_user, 2, destroy_enter, destroy_leave)
