//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Queue pairs of every RDMA driver, of user programs and of the kernel: the functions of ib_core (drivers/infiniband/core/verbs.c)
 * that all of them use.
 *
 *     modify    ib_modify_qp_with_udata (uverbs), ib_modify_qp (kernel)
 *     destroy   ib_destroy_qp_user (both)
 *     create    ib_create_qp_user (uverbs), ib_create_qp_kernel. Kernel 5.10 has neither and creates the QPs of user programs in
 *               inline code. There the probe uses the uverbs handlers, ib_create_qp (kernel), and rdma_restrack_add, which is called
 *               for every new QP and identifies it.
 *
 * These functions sleep, so a thread is in one of them at a time, and the thread id finds what was kept at the entry.
 */
#include "rdma.h"
#include "user_memory.h"
#include "ib_objects.h"

struct ib_create_qp {
	COMMON();
	QP_FIELDS(DOC("RESET, the state of a new QP"));
	struct {
		HAS_PAD;
		__u32 dev : 1;
	} has HAS_ALIGN;
} DOC("a QP was created, or could not be (ib_create_qp_user, ib_create_qp_kernel)");
EVENT(ib_create_qp)
OF_CALL(ib_create_qp)

struct ib_modify_qp {
	COMMON();
	QP_FIELDS(DOC("state that the call asks for; absent if it asks for none"));
	MODIFY_FIELDS(qp_state);
	struct {
		HAS_PAD;
		__u32 dev : 1;
		MODIFY_HAS();
	} has HAS_ALIGN;
} DOC("attributes or the state of a QP were changed, or could not be (ib_modify_qp_with_udata, ib_modify_qp)");
EVENT(ib_modify_qp)
OF_CALL(ib_modify_qp)

struct ib_destroy_qp {
	COMMON();
	QP_FIELDS(NEEDS(qp_state) DOC("last state of the QP; absent if no change was seen"));
	struct {
		HAS_PAD;
		__u32 dev : 1;
	} has HAS_ALIGN;
} DOC("a QP was destroyed, or could not be (ib_destroy_qp_user)");
EVENT(ib_destroy_qp)
OF_NESTED_CALL(ib_destroy_qp)

/*
 * Create.
 */

struct create_call {
	struct beginning started;
	struct ib_device *device;
	struct ib_qp_init_attr *attr;
	struct ib_qp *qp; /* set in rdma_restrack_add */
	__u32 nested;     /* calls of ib_create_qp inside a uverbs handler */
	__u32 handler;    /* a uverbs handler, which returns int instead of the QP */
};
CALLS(create_calls, create_call)

static __always_inline int create_begin(struct ib_device *device, struct ib_qp_init_attr *attr, bool handler)
{
	struct create_call call = { .device = device, .attr = attr, .handler = handler };

	BEGIN(ib_create_qp, &call.started);
	BEGIN_CALL(ib_create_qp, create_calls, &call);
	return 0;
}

static __always_inline void ib_create_qp_capture(struct ib_create_qp *e, struct create_call *call, struct ib_qp *qp, __s64 ret,
						 enum stage stage)
{
	CAPTURE_COMMON(ib_create_qp, e, stage);
	CAPTURE_RESULT(ib_create_qp, e, &call->started, ret, stage);
	if (!ib_create_qp_entry)
		return;
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

static __always_inline void create_end(void *ctx, struct create_call *call, struct ib_qp *qp, __s64 ret)
{
	struct ib_create_qp e;

	CLEAR_HAS(&e);
	EMIT(ib_create_qp, ctx, &e, call, qp, ret);
}

/* For a function that returns the QP. */
static __always_inline void create_end_pointer(void *ctx, struct create_call *call, __s64 ret)
{
	create_end(ctx, call, IS_ERR(ret) ? 0 : (struct ib_qp *)ret, IS_ERR(ret) ? ret : 0);
}

static __always_inline int create_leave(void *ctx, __s64 ret)
{
	struct create_call *call = ib_create_qp_entry ? create_calls_of(bpf_get_current_pid_tgid()) : 0;

	if (ib_create_qp_unseen(call))
		return 0;
	create_end_pointer(ctx, call, ret);
	if (ib_create_qp_entry)
		create_calls_end(call);
	return 0;
}

static __always_inline int create_user_enter(void *ctx, __u64 device, __u64 pd, __u64 attr)
{
	return ib_create_qp_entry ? create_begin((void *)device, (void *)attr, false) : 0;
}
ON_CALL(create_qp, ib_create_qp_user, 6, create_user_enter, create_leave)

static __always_inline int create_kernel_enter(void *ctx, __u64 pd, __u64 attr, __u64 caller)
{
	return ib_create_qp_entry ? create_begin(GET_POINTER((struct ib_pd *)pd, device), (void *)attr, false) : 0;
}
ON_CALL(create_qp, ib_create_qp_kernel, 3, create_kernel_enter, create_leave)

/* Kernel 5.10, where these functions call each other: what is kept shows that a call is part of a handler's. */

static __always_inline int create_handler_enter(void *ctx, __u64 a0, __u64 a1, __u64 a2)
{
	return create_begin(0, 0, true);
}

static __always_inline int create_handler_leave(void *ctx, __s64 ret)
{
	struct create_call *call = create_calls_of(bpf_get_current_pid_tgid());

	if (!call) {
		ib_create_qp_count(UNSEEN);
		return 0;
	}
	ret = (__s32)ret;
	create_end(ctx, call, ret ? 0 : call->qp, ret);
	create_calls_end(call);
	return 0;
}
ON_CALL(create_qp, ib_uverbs_create_qp, 1, create_handler_enter, create_handler_leave)
ON_CALL(create_qp, ib_uverbs_ex_create_qp, 1, create_handler_enter, create_handler_leave)
ON_CALL(create_qp, ib_uverbs_handler_UVERBS_METHOD_QP_CREATE, 1, create_handler_enter, create_handler_leave)

static __always_inline int create_inner_enter(void *ctx, __u64 pd, __u64 attr, __u64 a2)
{
	struct create_call *call = create_calls_of(bpf_get_current_pid_tgid());

	/* For a uverbs handler, which reports the event. */
	if (call && call->handler) {
		call->nested++;
		return 0;
	}
	return create_begin(GET_POINTER((struct ib_pd *)pd, device), (void *)attr, false);
}

static __always_inline int create_inner_leave(void *ctx, __s64 ret)
{
	struct create_call *call = create_calls_of(bpf_get_current_pid_tgid());

	if (!call) {
		ib_create_qp_count(UNSEEN);
		return 0;
	}
	if (call->nested) {
		call->nested--;
		return 0;
	}
	create_end_pointer(ctx, call, ret);
	create_calls_end(call);
	return 0;
}
ON_CALL(create_qp, ib_create_qp, 2, create_inner_enter, create_inner_leave)

static __always_inline int create_restrack(void *ctx, __u64 res, __u64 a1, __u64 a2)
{
	struct create_call *call = ib_create_qp_entry ? create_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct rdma_restrack_entry *entry = (void *)res;
	__u32 type = 0;

	if (!call || !GET(&type, entry, type) || type != RDMA_RESTRACK_QP)
		return 0;
	if (bpf_core_field_exists(((struct ib_qp *)0)->res))
		call->qp = (void *)res - bpf_core_field_offset(struct ib_qp, res);
	return 0;
}
ON_ENTER(create_qp, rdma_restrack_add, 1, create_restrack)

/* The state of each QP, in a hook of its own: it is attached only if an event wants the state. */

static __always_inline int state_enter(void *ctx, __u64 qp, __u64 attr, __u64 mask)
{
	if (!state_begin(qp, attr, mask))
		ib_modify_qp_count(INFLIGHT_FULL);
	return 0;
}

ON_CALL(qp_state, ib_modify_qp_with_udata, 4, state_enter, state_leave)
ON_CALL(qp_state, ib_modify_qp, 3, state_enter, state_leave)

ON_CALL(qp_state, ib_destroy_qp_user, 2, state_enter, state_forget)

/*
 * Modify.
 */

struct modify_call {
	struct beginning started;
	struct ib_qp *qp;
	struct ib_qp_attr *attr;
	__u32 mask;
	__s32 prev_state;
};
CALLS(modify_calls, modify_call)

static __always_inline int modify_enter(void *ctx, __u64 qp, __u64 attr, __u64 mask)
{
	struct modify_call call = { .qp = (void *)qp, .attr = (void *)attr, .mask = mask, .prev_state = -1 };

	if (!ib_modify_qp_entry)
		return 0;
	if (WANTED(ib_modify_qp, prev_state))
		call.prev_state = known_state(qp);
	BEGIN(ib_modify_qp, &call.started);
	BEGIN_CALL(ib_modify_qp, modify_calls, &call);
	return 0;
}

static __always_inline void ib_modify_qp_capture(struct ib_modify_qp *e, struct modify_call *call, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(ib_modify_qp, e, stage);
	CAPTURE_RESULT(ib_modify_qp, e, &call->started, ret, stage);
	if (!ib_modify_qp_entry)
		return;
	CAPTURE_QP(ib_modify_qp, e, call->qp, stage);
	if (WANT(ib_modify_qp, prev_state, stage) && call->prev_state >= 0)
		SET(e, prev_state, call->prev_state);
	if (WANT(ib_modify_qp, attr_mask, stage))
		e->attr_mask = call->mask;
	CAPTURE_ATTRS(ib_modify_qp, e, call->attr, call->mask, stage);
	/* A failed call leaves the address of the last one. */
	if ((call->mask & IB_QP_AV) && !ret)
		CAPTURE_LOCAL_ADDRESS(ib_modify_qp, e, address_in_use(call->qp), stage);
}

static __always_inline int modify_leave(void *ctx, __s64 ret)
{
	struct modify_call *call = ib_modify_qp_entry ? modify_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct ib_modify_qp e;

	if (ib_modify_qp_unseen(call))
		return 0;
	CLEAR_HAS(&e);
	EMIT(ib_modify_qp, ctx, &e, call, (__s32)ret);
	if (ib_modify_qp_entry)
		modify_calls_end(call);
	return 0;
}
ON_CALL(modify_qp, ib_modify_qp_with_udata, 4, modify_enter, modify_leave)
ON_CALL(modify_qp, ib_modify_qp, 3, modify_enter, modify_leave)

/* Destroy. The QP is gone when the call returns, so it is captured at the entry. */

struct destroy_call {
	struct beginning started;
	struct ib_qp *qp;
	__u32 nested;
	struct {
		char dev[64];
		QP() qp;
		OWNER() owner;
		struct {
			HAS_PAD;
			__u32 dev : 1;
		} has HAS_ALIGN;
	} saved;
};
CALLS(destroy_calls, destroy_call)

static __always_inline int destroy_enter(void *ctx, __u64 ptr, __u64 udata, __u64 a2)
{
	struct ib_qp *qp = (void *)ptr;
	struct destroy_call *outer = destroy_calls_of(bpf_get_current_pid_tgid());
	struct destroy_call call;
	__s32 state;

	/* The last handle of a shared XRC QP: the call destroys the real QP in a nested call. Both are one QP. */
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
	BEGIN(ib_destroy_qp, &call.started);
	BEGIN_CALL(ib_destroy_qp, destroy_calls, &call);
	return 0;
}

static __always_inline void ib_destroy_qp_capture(struct ib_destroy_qp *e, struct destroy_call *call, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(ib_destroy_qp, e, stage);
	CAPTURE_RESULT(ib_destroy_qp, e, &call->started, ret, stage);
}

static __always_inline int destroy_leave(void *ctx, __s64 ret)
{
	struct destroy_call *call = destroy_calls_of(bpf_get_current_pid_tgid());
	struct ib_destroy_qp e;

	if (ib_destroy_qp_unseen(call))
		return 0;
	if (call->nested) {
		call->nested--;
		return 0;
	}
	__builtin_memcpy(e.dev, call->saved.dev, sizeof(e.dev));
	__builtin_memcpy(&e.qp, &call->saved.qp, sizeof(e.qp));
	__builtin_memcpy(&e.owner, &call->saved.owner, sizeof(e.owner));
	e.has.dev = call->saved.has.dev;
	EMIT(ib_destroy_qp, ctx, &e, call, (__s32)ret);
	destroy_calls_end(call);
	return 0;
}
ON_CALL(destroy_qp, ib_destroy_qp_user, 2, destroy_enter, destroy_leave)

/*
 * GIDs. Every lookup by the kernel is seen: for programs, for sysfs, for changes of QPs, and on rxe for each packet, where it may run
 * in an interrupt. Nothing is kept from entry to return, so an interrupt does no harm.
 */

struct ib_get_gid {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0; this, port and index are absent for failed lookups seen by a kprobe");
	__u32 port DOC("port of the device");
	__u32 index DOC("index in the GID table of the port");
	gid_t16 gid DOC("the GID; absent for failed lookups");
	enum ib_gid_type gid_type DOC("its type; absent for failed lookups");
	errno_t ret DOC("result: -errno on failure");
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 port : 1;
		__u32 index : 1;
		__u32 gid : 1;
		__u32 gid_type : 1;
	} has HAS_ALIGN;
} DOC("the kernel looks up an entry of the GID table (rdma_get_gid_attr)");
EVENT(ib_get_gid)

struct ib_gid_ndev {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	__u32 port DOC("port of the device");
	__u32 index DOC("index in the GID table of the port");
	gid_t16 gid DOC("the GID");
	enum ib_gid_type gid_type DOC("its type");
	char ndev[16] DOC("network device of the GID; absent if it has none");
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 port : 1;
		__u32 index : 1;
		__u32 gid : 1;
		__u32 gid_type : 1;
		__u32 ndev : 1;
	} has HAS_ALIGN;
} DOC("the kernel asks for the network device of a GID (rdma_read_gid_attr_ndev_rcu)");
EVENT(ib_gid_ndev)

#define CAPTURE_GID(X, e, attr, stage) \
	do { \
		const struct ib_gid_attr *a = (attr); \
		CAPTURE_DEV(X, e, GET_POINTER(a, device), stage); \
		if (WANT(X, port, stage) && GET(&(e)->port, a, port_num)) \
			(e)->has.port = 1; \
		if (WANT(X, index, stage) && GET(&(e)->index, a, index)) \
			(e)->has.index = 1; \
		if (WANT(X, gid, stage) && bpf_core_field_exists(a->gid.raw) && !bpf_core_read((e)->gid, sizeof((e)->gid), &a->gid.raw)) \
			(e)->has.gid = 1; \
		if (WANT(X, gid_type, stage) && GET(&(e)->gid_type, a, gid_type)) \
			(e)->has.gid_type = 1; \
	} while (0)

/* The arguments, if they are still known when the call returns. */
struct gid_args {
	struct ib_device *device;
	__u32 port, index;
};

static __always_inline void ib_get_gid_capture(struct ib_get_gid *e, struct gid_args *args, __u64 ret, enum stage stage)
{
	CAPTURE_COMMON(ib_get_gid, e, stage);
	if (WANT(ib_get_gid, ret, stage))
		e->ret = IS_ERR(ret) ? ret : 0;
	if (!IS_ERR(ret)) {
		CAPTURE_GID(ib_get_gid, e, (struct ib_gid_attr *)ret, stage);
		return;
	}
	if (!args)
		return;
	CAPTURE_DEV(ib_get_gid, e, args->device, stage);
	if (WANT(ib_get_gid, port, stage))
		SET(e, port, args->port);
	if (WANT(ib_get_gid, index, stage))
		SET(e, index, args->index);
}

SEC("fexit/rdma_get_gid_attr") __attribute__((btf_decl_tag("args:3")))
int fexit_get_gid__rdma_get_gid_attr(__u64 *ctx)
{
	struct gid_args args = { .device = (void *)ctx[0], .port = ctx[1], .index = ctx[2] };
	struct ib_get_gid e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(ib_get_gid, ctx, &e, &args, ctx[3]);
	return 0;
}

SEC("kretprobe/rdma_get_gid_attr")
int kretprobe_get_gid__rdma_get_gid_attr(struct kprobe_regs *ctx)
{
	struct ib_get_gid e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(ib_get_gid, ctx, &e, 0, KPROBE_RET(ctx));
	return 0;
}

static __always_inline void ib_gid_ndev_capture(struct ib_gid_ndev *e, struct ib_gid_attr *attr, enum stage stage)
{
	struct net_device *ndev;

	CAPTURE_COMMON(ib_gid_ndev, e, stage);
	CAPTURE_GID(ib_gid_ndev, e, attr, stage);
	ndev = WANT(ib_gid_ndev, ndev, stage) ? GET_POINTER(attr, ndev) : 0;
	if (ndev && READ_STRING(e->ndev, ndev->name) > 0)
		e->has.ndev = 1;
}

static __always_inline int gid_ndev_enter(void *ctx, __u64 attr, __u64 a1, __u64 a2)
{
	struct ib_gid_ndev e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(ib_gid_ndev, ctx, &e, (struct ib_gid_attr *)attr);
	return 0;
}
ON_ENTER(gid_ndev, rdma_read_gid_attr_ndev_rcu, 1, gid_ndev_enter)

/*
 * Asynchronous events. Events of a device or a port pass ib_dispatch_event_clients on their way to all clients. This includes events of the
 * GID table, which ib_dispatch_event does not see. Events of a program's QP, CQ or SRQ pass a handler of uverbs.
 */

/* enum ib_event_type, include/rdma/ib_verbs.h. */
enum ib_event_type {
	ib_event_type__CQ_ERR,
	ib_event_type__QP_FATAL,
	ib_event_type__QP_REQ_ERR,
	ib_event_type__QP_ACCESS_ERR,
	ib_event_type__COMM_EST,
	ib_event_type__SQ_DRAINED,
	ib_event_type__PATH_MIG,
	ib_event_type__PATH_MIG_ERR,
	ib_event_type__DEVICE_FATAL,
	ib_event_type__PORT_ACTIVE,
	ib_event_type__PORT_ERR,
	ib_event_type__LID_CHANGE,
	ib_event_type__PKEY_CHANGE,
	ib_event_type__SM_CHANGE,
	ib_event_type__SRQ_ERR,
	ib_event_type__SRQ_LIMIT_REACHED,
	ib_event_type__QP_LAST_WQE_REACHED,
	ib_event_type__CLIENT_REREGISTER,
	ib_event_type__GID_CHANGE,
	ib_event_type__WQ_FATAL,
	ib_event_type__DEVICE_SPEED_CHANGE,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ib_srq {
	struct ib_pd *pd;
	struct rdma_restrack_entry res;
};
struct ib_event___kernel {
	struct ib_device *device;
	union {
		struct ib_cq *cq;
		struct ib_qp *qp;
		struct ib_srq *srq;
		__u32 port_num;
	} element;
	enum ib_event_type event;
};
#pragma clang attribute pop

struct ib_event {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	enum ib_event_type event DOC("what has happened");
	__u32 port DOC("port of the device, of a QP the one that it uses; absent for CQs and SRQs, and for events of the whole device");
	struct {
		__u32 num DOC("number of the QP; absent for events of something else");
		enum ib_qp_type type DOC("its transport service");
		struct {
			HAS_PAD;
			__u32 num : 1;
			__u32 type : 1;
		} has HAS_ALIGN;
	} qp;
	struct {
		__u32 id DOC("number of the CQ, as `rdma res` has it; absent for events of something else");
		struct {
			HAS_PAD;
			__u32 id : 1;
		} has HAS_ALIGN;
	} cq;
	struct {
		__u32 id DOC("number of the SRQ, as `rdma res` has it; absent for events of something else, and where the kernel does not number SRQs");
		struct {
			HAS_PAD;
			__u32 id : 1;
		} has HAS_ALIGN;
	} srq;
	struct {
		HAS_PAD;
		__u32 pid : 1;
		__u32 tid : 1;
		__u32 uid : 1;
		__u32 cgroup : 1;
		__u32 comm : 1;
		__u32 dev : 1;
		__u32 event : 1;
		__u32 port : 1;
	} has HAS_ALIGN;
} DOC("asynchronous event of a device, a port, or a program's QP, CQ or SRQ; pid and comm are its owner's (ib_dispatch_event_clients, ib_uverbs_qp_event_handler)");
EVENT(ib_event)

/* What an event happens to. */
enum element { PORT, A_QP, A_CQ, A_SRQ };

static __always_inline void capture_port_event(struct ib_event *e, struct ib_event___kernel *event, enum stage stage)
{
	enum ib_event_type type = 0;

	if (!WANT(ib_event, port, stage) || !GET(&type, event, event))
		return;
	if (type != ib_event_type__DEVICE_FATAL && type != ib_event_type__DEVICE_SPEED_CHANGE && GET(&e->port, event, element.port_num))
		e->has.port = 1;
}

static __always_inline void capture_qp_event(struct ib_event *e, struct ib_qp *qp, enum stage stage)
{
	if (WANT(ib_event, qp.num, stage) && GET(&e->qp.num, qp, qp_num))
		e->qp.has.num = 1;
	if (WANT(ib_event, qp.type, stage) && GET(&e->qp.type, qp, qp_type))
		e->qp.has.type = 1;
	/* 0 until the change to INIT that sets it. */
	if (WANT(ib_event, port, stage) && GET(&e->port, qp, port) && e->port)
		e->has.port = 1;
	CAPTURE_TASK(ib_event, e, GET_POINTER(qp, res.task), stage);
}

static __always_inline void capture_cq_event(struct ib_event *e, struct ib_cq *cq, enum stage stage)
{
	CAPTURE_ID(ib_event, e, cq, cq, stage);
	CAPTURE_TASK(ib_event, e, GET_POINTER(cq, res.task), stage);
}

/* A kernel that does not track SRQs tracks their PDs. */
static __always_inline void capture_srq_event(struct ib_event *e, struct ib_srq *srq, enum stage stage)
{
	struct ib_pd *pd = GET_POINTER(srq, pd);

	CAPTURE_ID(ib_event, e, srq, srq, stage);
	CAPTURE_TASK(ib_event, e, bpf_core_field_exists(srq->res) ? GET_POINTER(srq, res.task) : pd ? GET_POINTER(pd, res.task) : 0, stage);
}

static __always_inline void ib_event_capture(struct ib_event *e, struct ib_event___kernel *event, enum element element, enum stage stage)
{
	CAPTURE_TIME(ib_event, e, stage);
	CAPTURE_DEV(ib_event, e, GET_POINTER(event, device), stage);
	if (WANT(ib_event, event, stage) && GET(&e->event, event, event))
		e->has.event = 1;
	if (element == PORT)
		capture_port_event(e, event, stage);
	else if (element == A_QP)
		capture_qp_event(e, GET_POINTER(event, element.qp), stage);
	else if (element == A_CQ)
		capture_cq_event(e, GET_POINTER(event, element.cq), stage);
	else
		capture_srq_event(e, GET_POINTER(event, element.srq), stage);
}

static __always_inline int event_enter(void *ctx, __u64 event, enum element element)
{
	struct ib_event e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	__builtin_memset(&e.qp.has, 0, sizeof(e.qp.has));
	__builtin_memset(&e.cq.has, 0, sizeof(e.cq.has));
	__builtin_memset(&e.srq.has, 0, sizeof(e.srq.has));
	EMIT(ib_event, ctx, &e, (struct ib_event___kernel *)event, element);
	return 0;
}

#define ON_EVENT(function, nargs, element) \
	static __always_inline int function##_enter(void *ctx, __u64 event, __u64 a1, __u64 a2) \
	{ \
		return event_enter(ctx, event, element); \
	} \
	ON_ENTER(ib_event, function, nargs, function##_enter)

ON_EVENT(ib_dispatch_event_clients, 1, PORT)
ON_EVENT(ib_uverbs_qp_event_handler, 2, A_QP)
ON_EVENT(ib_uverbs_cq_event_handler, 2, A_CQ)
ON_EVENT(ib_uverbs_srq_event_handler, 2, A_SRQ)
