//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The mlx5 driver: its functions that ib_core calls for QPs, PDs, CQs and MRs (module mlx5_ib, mlx5_ib_*), and the commands that it
 * sends to the firmware (module mlx5_core, mlx5_cmd_*). For programs that create their objects by DEVX, like UCX, only the latter are
 * seen.
 *
 * Drivers differ in what a function returns. The prototype shows it (ON_RETURN), or otherwise the value itself. An out-of-tree driver
 * has no prototypes.
 */
#include "rdma.h"
#include "mlx5_names.h"

/* The fields of each event besides its object. */
#define VERB_FIELDS() \
	char dev[64] DOC("RDMA device, like mlx5_0"); \
	OWNER() owner; \
	errno_t ret AT_RETURN DOC("result: -errno on failure"); \
	ns_t latency DOC("time in the call"); \
	SPENT_FIELDS()

#define CQ() \
	struct { \
		__u32 cqe DOC("completions that it has room for; if it could not be created, how many were asked for"); \
		struct { \
			HAS_PAD; \
			__u32 cqe : 1; \
		} has HAS_ALIGN; \
	}

#define NEW_CQ() \
	struct { \
		__u32 cqe DOC("completions that it has room for; if it could not be created, how many were asked for"); \
		__u32 comp_vector DETAIL DOC("completion vector, which is the interrupt that it uses"); \
		struct { \
			HAS_PAD; \
			__u32 cqe : 1; \
			__u32 comp_vector : 1; \
		} has HAS_ALIGN; \
	}

/* An MR that is registered: the arguments of the call, and the new keys. */
#define NEW_MR(place, place_meaning) \
	struct { \
		bytes_t length DOC("size of the memory"); \
		hex64_t place place_meaning; \
		hex64_t iova VERBOSE DOC("address that work requests use for its beginning"); \
		enum ib_access_flags access FLAGS VERBOSE DOC("what it may be used for"); \
		hex32_t lkey VERBOSE DOC("key for local use; absent if the call failed"); \
		hex32_t rkey DOC("key for the remote side; absent if the call failed"); \
		struct { \
			HAS_PAD; \
			__u32 lkey : 1; \
			__u32 rkey : 1; \
		} has HAS_ALIGN; \
	}

#define MR() \
	struct { \
		bytes_t length DOC("size of the memory; absent where the MR does not hold it"); \
		hex64_t iova VERBOSE DOC("address that work requests use for its beginning"); \
		hex32_t lkey VERBOSE DOC("key for local use"); \
		hex32_t rkey DOC("key for the remote side"); \
		struct { \
			HAS_PAD; \
			__u32 length : 1; \
			__u32 iova : 1; \
			__u32 lkey : 1; \
			__u32 rkey : 1; \
		} has HAS_ALIGN; \
	}

#define PD() hex64_t pd VERBOSE DOC("address of the PD in the kernel, the same in all events until it is deallocated")

/* The presence bits of an event that has no optional fields of its own. */
#define HAS_DEV() \
	struct { \
		HAS_PAD; \
		__u32 dev : 1; \
	} has HAS_ALIGN

struct mlx5_create_qp {
	COMMON();
	QP_FIELDS(DOC("RESET, the state of a new QP"));
	HAS_DEV();
} DOC("the driver created a QP, or could not (mlx5_ib_create_qp)");
EVENT(mlx5_create_qp)
OF_CALL(mlx5_create_qp)

struct mlx5_modify_qp {
	COMMON();
	QP_FIELDS(DOC("state that the call asks for; absent if it asks for none"));
	MODIFY_FIELDS(mlx5_qp_state);
	struct {
		HAS_PAD;
		__u32 dev : 1;
		MODIFY_HAS();
	} has HAS_ALIGN;
} DOC("the driver changed attributes or the state of a QP, or could not (mlx5_ib_modify_qp)");
EVENT(mlx5_modify_qp)
OF_CALL(mlx5_modify_qp)

struct mlx5_destroy_qp {
	COMMON();
	QP_FIELDS(NEEDS(mlx5_qp_state) DOC("last state of the QP; absent if no change was seen"));
	HAS_DEV();
} DOC("the driver destroyed a QP, or could not (mlx5_ib_destroy_qp)");
EVENT(mlx5_destroy_qp)
OF_CALL(mlx5_destroy_qp)

struct mlx5_alloc_pd {
	COMMON();
	VERB_FIELDS();
	PD();
	HAS_DEV();
} DOC("the driver allocated a PD, or could not (mlx5_ib_alloc_pd)");
EVENT(mlx5_alloc_pd)
OF_CALL(mlx5_alloc_pd)

struct mlx5_dealloc_pd {
	COMMON();
	VERB_FIELDS();
	PD();
	HAS_DEV();
} DOC("the driver deallocated a PD, or could not (mlx5_ib_dealloc_pd)");
EVENT(mlx5_dealloc_pd)
OF_CALL(mlx5_dealloc_pd)

struct mlx5_create_cq {
	COMMON();
	VERB_FIELDS();
	NEW_CQ() cq;
	HAS_DEV();
} DOC("the driver created a CQ, or could not (mlx5_ib_create_cq, mlx5_ib_create_user_cq)");
EVENT(mlx5_create_cq)
OF_CALL(mlx5_create_cq)

struct mlx5_destroy_cq {
	COMMON();
	VERB_FIELDS();
	CQ() cq;
	HAS_DEV();
} DOC("the driver destroyed a CQ, or could not (mlx5_ib_destroy_cq)");
EVENT(mlx5_destroy_cq)
OF_CALL(mlx5_destroy_cq)

struct mlx5_reg_user_mr {
	COMMON();
	VERB_FIELDS();
	PD();
	NEW_MR(start, VERBOSE DOC("its address in the process")) mr;
	HAS_DEV();
} DOC("the driver registered memory of a process, or could not (mlx5_ib_reg_user_mr)");
EVENT(mlx5_reg_user_mr)
OF_CALL(mlx5_reg_user_mr)

struct mlx5_reg_user_mr_dmabuf {
	COMMON();
	VERB_FIELDS();
	PD();
	NEW_MR(offset, VERBOSE DOC("where it begins in the dmabuf")) mr;
	__s32 fd DOC("file descriptor of the dmabuf in the process");
	HAS_DEV();
} DOC("the driver registered a dmabuf, like memory of a GPU, or could not (mlx5_ib_reg_user_mr_dmabuf)");
EVENT(mlx5_reg_user_mr_dmabuf)
OF_CALL(mlx5_reg_user_mr_dmabuf)

struct mlx5_dereg_mr {
	COMMON();
	VERB_FIELDS();
	MR() mr;
	HAS_DEV();
} DOC("the driver deregistered an MR, or could not (mlx5_ib_dereg_mr)");
EVENT(mlx5_dereg_mr)
OF_CALL(mlx5_dereg_mr)

/*
 * A call in progress. The driver builds some objects from others, and calls itself for these through ib_core: a GSI QP uses a second
 * QP, an MR for signatures two more. So a thread may be in a function twice.
 */
#define INNER (1ULL << 31) /* in the key of the second call; thread ids are less */

/*
 * NESTED_CALLS(name, call) is KEPT, with
 *
 *     name_keep(call)     keeps a copy of a call of this thread; false if there is no room
 *     name_innermost()    the innermost call of this thread, or NULL
 */
#define NESTED_CALLS(name, call) \
	CALLS(name, call) \
\
	static __always_inline bool name##_keep(const struct call *begun) \
	{ \
		__u64 thread = bpf_get_current_pid_tgid(); \
		struct call *kept = name##_begin(name##_of(thread) ? thread | INNER : thread); \
\
		if (kept) \
			*kept = *begun; \
		return kept; \
	} \
\
	static __always_inline struct call *name##_innermost(void) \
	{ \
		__u64 thread = bpf_get_current_pid_tgid(); \
		struct call *inner = name##_of(thread | INNER); \
\
		return inner ? inner : name##_of(thread); \
	}

/* The arguments of a call that makes or changes something. */
struct verb_call {
	struct beginning started;
	__u64 args[6];
};

/* enter and leave of the hook mlx5_NAME: leave calls NAME_end(ctx, call, ret). */
#define VERB(name) \
	NESTED_CALLS(name##_calls, verb_call) \
	static __always_inline int name##_enter(void *ctx, __u64 a0, __u64 a1, __u64 a2) \
	{ \
		struct verb_call call = { .args = { a0, a1, a2 } }; \
		BEGIN(mlx5_##name, &call.started); \
		if (mlx5_##name##_entry && !name##_calls_keep(&call)) \
			mlx5_##name##_count(INFLIGHT_FULL); \
		return 0; \
	} \
	VERB_LEAVE(name, name##_leave, name##_end)

#define VERB_LEAVE(name, leave, end) \
	static __always_inline int leave(void *ctx, __s64 ret) \
	{ \
		struct verb_call *call = mlx5_##name##_entry ? name##_calls_innermost() : 0; \
		if (mlx5_##name##_unseen(call)) \
			return 0; \
		end(ctx, call, ret); \
		if (mlx5_##name##_entry) \
			name##_calls_end(call); \
		return 0; \
	}

/* What a function that ends an object keeps of it at its entry, besides the object. */
#define SAVED_VERB() \
	char dev[64]; \
	OWNER() owner; \
	HAS_DEV()

#define CLEAR_VERB(e) \
	do { \
		__builtin_memset(&(e)->has, 0, sizeof((e)->has)); \
		__builtin_memset(&(e)->owner.has, 0, sizeof((e)->owner.has)); \
	} while (0)

#define RESTORE_VERB(e, saved) \
	do { \
		__builtin_memcpy((e)->dev, (saved)->dev, sizeof((e)->dev)); \
		__builtin_memcpy(&(e)->owner, &(saved)->owner, sizeof((e)->owner)); \
		(e)->has.dev = (saved)->has.dev; \
	} while (0)

/* Before 5.11 ib_core sets the owner of an object only after the driver's call. The owner is the caller, if that is a process. */
#define CAPTURE_CALLER(X, e, from_process, stage) \
	do { \
		if (!WANT_OWNER(X, stage)) \
			break; \
		if (!(from_process) || (e)->owner.has.pid || (e)->owner.has.kernel) \
			break; \
		SET(&(e)->owner, pid, bpf_get_current_pid_tgid() >> 32); \
		READ_COMM((e)->owner.comm); \
		(e)->owner.has.comm = 1; \
	} while (0)

/*
 * Create a QP: int (ib_qp *, ib_qp_init_attr *, ib_udata *), or before 5.15 ib_qp *(ib_pd *, ib_qp_init_attr *, ib_udata *).
 */

/* Whether the first argument is a QP that ib_core has prepared: its PD belongs to its device. A PD has no such member there. */
static __always_inline bool is_qp(__u64 object)
{
	struct ib_qp *qp = (void *)object;
	struct ib_device *device = GET_POINTER(qp, device);
	struct ib_pd *pd = GET_POINTER(qp, pd);

	return device && pd && GET_POINTER(pd, device) == device;
}

static __always_inline void mlx5_create_qp_capture(struct mlx5_create_qp *e, struct verb_call *call, struct ib_qp *qp, __s64 ret,
						   enum stage stage)
{
	struct ib_qp_init_attr *attr;
	struct ib_pd *pd;

	CAPTURE_COMMON(mlx5_create_qp, e, stage);
	CAPTURE_RESULT(mlx5_create_qp, e, &call->started, ret, stage);
	if (!mlx5_create_qp_entry)
		return;
	attr = (void *)call->args[1];
	pd = is_qp(call->args[0]) ? GET_POINTER((struct ib_qp *)call->args[0], pd) : (void *)call->args[0];
	CAPTURE_DEV(mlx5_create_qp, e, GET_POINTER(pd, device), stage);
	if (WANT(mlx5_create_qp, qp.type, stage) && GET(&e->qp.type, attr, qp_type))
		e->qp.has.type = 1;
	if (!qp)
		return;
	if (WANT(mlx5_create_qp, qp.num, stage) && GET(&e->qp.num, qp, qp_num))
		e->qp.has.num = 1;
	if (WANT(mlx5_create_qp, qp.state, stage))
		SET(&e->qp, state, ib_qp_state__RESET);
	CAPTURE_OWNER_OR_OF_PD(mlx5_create_qp, e, qp, pd, stage);
}

static __always_inline void create_qp_report(void *ctx, struct verb_call *call, struct ib_qp *qp, __s64 ret)
{
	struct mlx5_create_qp e;

	CLEAR_HAS(&e);
	EMIT(mlx5_create_qp, ctx, &e, call, qp, ret);
}

/* The QP that ib_core has prepared, if an event wants its fields. */
static __always_inline struct ib_qp *prepared_qp(struct verb_call *call)
{
	return mlx5_create_qp_entry ? (struct ib_qp *)call->args[0] : 0;
}

static __always_inline void create_qp_end(void *ctx, struct verb_call *call, __s64 ret)
{
	ret = (__s32)ret;
	create_qp_report(ctx, call, ret ? 0 : prepared_qp(call), ret);
}
VERB(create_qp)

static __always_inline void create_qp_end_pointer(void *ctx, struct verb_call *call, __s64 ret)
{
	create_qp_report(ctx, call, IS_ERR(ret) ? 0 : (struct ib_qp *)ret, IS_ERR(ret) ? ret : 0);
}
VERB_LEAVE(create_qp, create_qp_leave_pointer, create_qp_end_pointer)

/*
 * Without a prototype the register itself shows the type. A pointer into the kernel has its upper bits set and is not among the last
 * 4095 addresses, which are errors and have the same meaning as int. The bits of an int above the lower 32 are all 0, or all 1 if it
 * is negative.
 */
static __always_inline void create_qp_end_unknown(void *ctx, struct verb_call *call, __s64 ret)
{
	struct ib_qp *qp = prepared_qp(call);

	if (ret < 0 && !IS_ERR(ret)) {
		qp = (void *)ret;
		ret = 0;
	}
	ret = (__s32)ret;
	create_qp_report(ctx, call, ret ? 0 : qp, ret);
}
VERB_LEAVE(create_qp, create_qp_leave_unknown, create_qp_end_unknown)

ON_ENTER(mlx5_create_qp, mlx5_ib_create_qp, 3, create_qp_enter)
ON_RETURN(mlx5_create_qp, mlx5_ib_create_qp, 3, int, create_qp_leave)
ON_RETURN(mlx5_create_qp, mlx5_ib_create_qp, 3, pointer, create_qp_leave_pointer)
ON_RETURN_UNKNOWN(mlx5_create_qp, mlx5_ib_create_qp, create_qp_leave_unknown)

/*
 * Modify and destroy a QP, and its state.
 */

static __always_inline int qp_state_enter(void *ctx, __u64 qp, __u64 attr, __u64 mask)
{
	if (!state_begin(qp, attr, mask))
		mlx5_modify_qp_count(INFLIGHT_FULL);
	return 0;
}
ON_CALL(mlx5_qp_state, mlx5_ib_modify_qp, 4, qp_state_enter, state_leave)
ON_CALL(mlx5_qp_state, mlx5_ib_destroy_qp, 2, qp_state_enter, state_forget)

struct change_call {
	struct beginning started;
	struct ib_qp *qp;
	struct ib_qp_attr *attr;
	__u32 mask;
	__s32 prev_state;
};
NESTED_CALLS(change_calls, change_call)

static __always_inline int modify_qp_enter(void *ctx, __u64 qp, __u64 attr, __u64 mask)
{
	struct change_call call = { .qp = (void *)qp, .attr = (void *)attr, .mask = mask, .prev_state = -1 };

	if (!mlx5_modify_qp_entry)
		return 0;
	if (WANTED(mlx5_modify_qp, prev_state))
		call.prev_state = known_state(qp);
	BEGIN(mlx5_modify_qp, &call.started);
	if (!change_calls_keep(&call))
		mlx5_modify_qp_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void mlx5_modify_qp_capture(struct mlx5_modify_qp *e, struct change_call *call, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(mlx5_modify_qp, e, stage);
	CAPTURE_RESULT(mlx5_modify_qp, e, &call->started, ret, stage);
	if (!mlx5_modify_qp_entry)
		return;
	CAPTURE_QP(mlx5_modify_qp, e, call->qp, stage);
	if (WANT(mlx5_modify_qp, prev_state, stage) && call->prev_state >= 0)
		SET(e, prev_state, call->prev_state);
	if (WANT(mlx5_modify_qp, attr_mask, stage))
		e->attr_mask = call->mask;
	CAPTURE_ATTRS(mlx5_modify_qp, e, call->attr, call->mask, stage);
	/* ib_core has resolved it for the driver. */
	if (call->mask & IB_QP_AV)
		CAPTURE_LOCAL_ADDRESS(mlx5_modify_qp, e, GET_POINTER(call->attr, ah_attr.grh.sgid_attr), stage);
}

static __always_inline int modify_qp_leave(void *ctx, __s64 ret)
{
	struct change_call *call = mlx5_modify_qp_entry ? change_calls_innermost() : 0;
	struct mlx5_modify_qp e;

	if (mlx5_modify_qp_unseen(call))
		return 0;
	CLEAR_HAS(&e);
	EMIT(mlx5_modify_qp, ctx, &e, call, (__s32)ret);
	if (mlx5_modify_qp_entry)
		change_calls_end(call);
	return 0;
}
ON_CALL(mlx5_modify_qp, mlx5_ib_modify_qp, 4, modify_qp_enter, modify_qp_leave)

/* An object is gone when the call that ends it returns, so it is captured at the entry. */

struct destroy_qp_call {
	struct beginning started;
	struct {
		SAVED_VERB();
		QP() qp;
	} saved;
};
NESTED_CALLS(destroy_qp_calls, destroy_qp_call)

static __always_inline int destroy_qp_enter(void *ctx, __u64 ptr, __u64 a1, __u64 a2)
{
	struct ib_qp *qp = (void *)ptr;
	struct destroy_qp_call call;
	__s32 state;

	if (!mlx5_destroy_qp_entry)
		return 0;
	__builtin_memset(&call, 0, sizeof(call));
	CAPTURE_QP(mlx5_destroy_qp, &call.saved, qp, BEFORE);
	CAPTURE_QP(mlx5_destroy_qp, &call.saved, qp, AFTER);
	state = WANTED(mlx5_destroy_qp, qp.state) ? known_state(ptr) : -1;
	if (state >= 0)
		SET(&call.saved.qp, state, state);
	BEGIN(mlx5_destroy_qp, &call.started);
	if (!destroy_qp_calls_keep(&call))
		mlx5_destroy_qp_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void mlx5_destroy_qp_capture(struct mlx5_destroy_qp *e, struct destroy_qp_call *call, __s64 ret,
						    enum stage stage)
{
	CAPTURE_COMMON(mlx5_destroy_qp, e, stage);
	CAPTURE_RESULT(mlx5_destroy_qp, e, &call->started, ret, stage);
}

static __always_inline int destroy_qp_leave(void *ctx, __s64 ret)
{
	struct destroy_qp_call *call = mlx5_destroy_qp_entry ? destroy_qp_calls_innermost() : 0;
	struct mlx5_destroy_qp e;

	if (mlx5_destroy_qp_unseen(call))
		return 0;
	if (mlx5_destroy_qp_entry) {
		RESTORE_VERB(&e, &call->saved);
		__builtin_memcpy(&e.qp, &call->saved.qp, sizeof(e.qp));
	}
	EMIT(mlx5_destroy_qp, ctx, &e, call, (__s32)ret);
	if (mlx5_destroy_qp_entry)
		destroy_qp_calls_end(call);
	return 0;
}
ON_CALL(mlx5_destroy_qp, mlx5_ib_destroy_qp, 2, destroy_qp_enter, destroy_qp_leave)

/*
 * PDs.
 */

static __always_inline void mlx5_alloc_pd_capture(struct mlx5_alloc_pd *e, struct verb_call *call, __s64 ret, enum stage stage)
{
	struct ib_pd *pd;

	CAPTURE_COMMON(mlx5_alloc_pd, e, stage);
	CAPTURE_RESULT(mlx5_alloc_pd, e, &call->started, ret, stage);
	if (!mlx5_alloc_pd_entry)
		return;
	pd = (void *)call->args[0];
	CAPTURE_DEV(mlx5_alloc_pd, e, GET_POINTER(pd, device), stage);
	CAPTURE_OWNER(mlx5_alloc_pd, e, pd, stage);
	CAPTURE_CALLER(mlx5_alloc_pd, e, call->args[1], stage);
	if (WANT(mlx5_alloc_pd, pd, stage))
		e->pd = call->args[0];
}

static __always_inline void alloc_pd_end(void *ctx, struct verb_call *call, __s64 ret)
{
	struct mlx5_alloc_pd e;

	CLEAR_VERB(&e);
	EMIT(mlx5_alloc_pd, ctx, &e, call, (__s32)ret);
}
VERB(alloc_pd)
ON_CALL(mlx5_alloc_pd, mlx5_ib_alloc_pd, 2, alloc_pd_enter, alloc_pd_leave)

struct dealloc_pd_call {
	struct beginning started;
	__u64 pd;
	struct {
		SAVED_VERB();
	} saved;
};
NESTED_CALLS(dealloc_pd_calls, dealloc_pd_call)

static __always_inline int dealloc_pd_enter(void *ctx, __u64 ptr, __u64 a1, __u64 a2)
{
	struct ib_pd *pd = (void *)ptr;
	struct dealloc_pd_call call;

	if (!mlx5_dealloc_pd_entry)
		return 0;
	__builtin_memset(&call, 0, sizeof(call));
	call.pd = ptr;
	CAPTURE_DEV(mlx5_dealloc_pd, &call.saved, GET_POINTER(pd, device), BEFORE);
	CAPTURE_DEV(mlx5_dealloc_pd, &call.saved, GET_POINTER(pd, device), AFTER);
	CAPTURE_OWNER(mlx5_dealloc_pd, &call.saved, pd, BEFORE);
	CAPTURE_OWNER(mlx5_dealloc_pd, &call.saved, pd, AFTER);
	BEGIN(mlx5_dealloc_pd, &call.started);
	if (!dealloc_pd_calls_keep(&call))
		mlx5_dealloc_pd_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void mlx5_dealloc_pd_capture(struct mlx5_dealloc_pd *e, struct dealloc_pd_call *call, __s64 ret,
						    enum stage stage)
{
	CAPTURE_COMMON(mlx5_dealloc_pd, e, stage);
	CAPTURE_RESULT(mlx5_dealloc_pd, e, &call->started, ret, stage);
	if (WANT(mlx5_dealloc_pd, pd, stage))
		e->pd = call->pd;
}

static __always_inline int dealloc_pd_leave(void *ctx, __s64 ret)
{
	struct dealloc_pd_call *call = mlx5_dealloc_pd_entry ? dealloc_pd_calls_innermost() : 0;
	struct mlx5_dealloc_pd e;

	if (mlx5_dealloc_pd_unseen(call))
		return 0;
	if (mlx5_dealloc_pd_entry)
		RESTORE_VERB(&e, &call->saved);
	EMIT(mlx5_dealloc_pd, ctx, &e, call, (__s32)ret);
	if (mlx5_dealloc_pd_entry)
		dealloc_pd_calls_end(call);
	return 0;
}

/* A function that returns nothing cannot fail. */
static __always_inline int dealloc_pd_leave_void(void *ctx, __s64 ret)
{
	return dealloc_pd_leave(ctx, 0);
}

/* Without a prototype it may be such a function, and the register may hold anything: only an error counts. */
static __always_inline __s64 error_or_0(__s64 ret)
{
	__s32 error = ret;

	return IS_ERR((__s64)error) ? error : 0;
}

static __always_inline int dealloc_pd_leave_unknown(void *ctx, __s64 ret)
{
	return dealloc_pd_leave(ctx, error_or_0(ret));
}

ON_ENTER(mlx5_dealloc_pd, mlx5_ib_dealloc_pd, 2, dealloc_pd_enter)
ON_RETURN(mlx5_dealloc_pd, mlx5_ib_dealloc_pd, 2, int, dealloc_pd_leave)
ON_RETURN(mlx5_dealloc_pd, mlx5_ib_dealloc_pd, 2, void, dealloc_pd_leave_void)
ON_RETURN_UNKNOWN(mlx5_dealloc_pd, mlx5_ib_dealloc_pd, dealloc_pd_leave_unknown)

/* CQs. Since 7.1 the CQs of programs have a function of their own. */

static __always_inline void mlx5_create_cq_capture(struct mlx5_create_cq *e, struct verb_call *call, __s64 ret, enum stage stage)
{
	struct ib_cq_init_attr *attr;
	struct ib_cq *cq;

	CAPTURE_COMMON(mlx5_create_cq, e, stage);
	CAPTURE_RESULT(mlx5_create_cq, e, &call->started, ret, stage);
	if (!mlx5_create_cq_entry)
		return;
	cq = (void *)call->args[0];
	attr = (void *)call->args[1];
	CAPTURE_DEV(mlx5_create_cq, e, GET_POINTER(cq, device), stage);
	CAPTURE_OWNER(mlx5_create_cq, e, cq, stage);
	CAPTURE_CALLER(mlx5_create_cq, e, call->args[2], stage);
	if (WANT(mlx5_create_cq, cq.cqe, stage)) {
		if (ret ? GET(&e->cq.cqe, attr, cqe) : GET(&e->cq.cqe, cq, cqe))
			e->cq.has.cqe = 1;
	}
	if (WANT(mlx5_create_cq, cq.comp_vector, stage) && GET(&e->cq.comp_vector, attr, comp_vector))
		e->cq.has.comp_vector = 1;
}

static __always_inline void create_cq_end(void *ctx, struct verb_call *call, __s64 ret)
{
	struct mlx5_create_cq e;

	CLEAR_VERB(&e);
	__builtin_memset(&e.cq.has, 0, sizeof(e.cq.has));
	EMIT(mlx5_create_cq, ctx, &e, call, (__s32)ret);
}
VERB(create_cq)
ON_CALL(mlx5_create_cq, mlx5_ib_create_cq, 3, create_cq_enter, create_cq_leave)
ON_CALL(mlx5_create_cq, mlx5_ib_create_user_cq, 3, create_cq_enter, create_cq_leave)

struct destroy_cq_call {
	struct beginning started;
	struct {
		SAVED_VERB();
		CQ() cq;
	} saved;
};
NESTED_CALLS(destroy_cq_calls, destroy_cq_call)

static __always_inline void save_cq(struct destroy_cq_call *call, struct ib_cq *cq, enum stage stage)
{
	CAPTURE_DEV(mlx5_destroy_cq, &call->saved, GET_POINTER(cq, device), stage);
	CAPTURE_OWNER(mlx5_destroy_cq, &call->saved, cq, stage);
	if (WANT(mlx5_destroy_cq, cq.cqe, stage) && GET(&call->saved.cq.cqe, cq, cqe))
		call->saved.cq.has.cqe = 1;
}

static __always_inline int destroy_cq_enter(void *ctx, __u64 ptr, __u64 a1, __u64 a2)
{
	struct destroy_cq_call call;

	if (!mlx5_destroy_cq_entry)
		return 0;
	__builtin_memset(&call, 0, sizeof(call));
	save_cq(&call, (void *)ptr, BEFORE);
	save_cq(&call, (void *)ptr, AFTER);
	BEGIN(mlx5_destroy_cq, &call.started);
	if (!destroy_cq_calls_keep(&call))
		mlx5_destroy_cq_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void mlx5_destroy_cq_capture(struct mlx5_destroy_cq *e, struct destroy_cq_call *call, __s64 ret,
						    enum stage stage)
{
	CAPTURE_COMMON(mlx5_destroy_cq, e, stage);
	CAPTURE_RESULT(mlx5_destroy_cq, e, &call->started, ret, stage);
}

static __always_inline int destroy_cq_leave(void *ctx, __s64 ret)
{
	struct destroy_cq_call *call = mlx5_destroy_cq_entry ? destroy_cq_calls_innermost() : 0;
	struct mlx5_destroy_cq e;

	if (mlx5_destroy_cq_unseen(call))
		return 0;
	if (mlx5_destroy_cq_entry) {
		RESTORE_VERB(&e, &call->saved);
		__builtin_memcpy(&e.cq, &call->saved.cq, sizeof(e.cq));
	}
	EMIT(mlx5_destroy_cq, ctx, &e, call, (__s32)ret);
	if (mlx5_destroy_cq_entry)
		destroy_cq_calls_end(call);
	return 0;
}

static __always_inline int destroy_cq_leave_void(void *ctx, __s64 ret)
{
	return destroy_cq_leave(ctx, 0);
}

static __always_inline int destroy_cq_leave_unknown(void *ctx, __s64 ret)
{
	return destroy_cq_leave(ctx, error_or_0(ret));
}

ON_ENTER(mlx5_destroy_cq, mlx5_ib_destroy_cq, 2, destroy_cq_enter)
ON_RETURN(mlx5_destroy_cq, mlx5_ib_destroy_cq, 2, int, destroy_cq_leave)
ON_RETURN(mlx5_destroy_cq, mlx5_ib_destroy_cq, 2, void, destroy_cq_leave_void)
ON_RETURN_UNKNOWN(mlx5_destroy_cq, mlx5_ib_destroy_cq, destroy_cq_leave_unknown)

/* MRs. When the driver has registered an MR, ib_core has not filled it in yet, so device and owner come from the PD. */

#define CAPTURE_NEW_MR(X, e, call, result, place, iova_arg, access_arg, stage) \
	do { \
		struct ib_mr *mr = (void *)(result); \
		struct ib_pd *pd; \
		CAPTURE_COMMON(X, e, stage); \
		CAPTURE_RESULT(X, e, &(call)->started, IS_ERR(result) ? (result) : 0, stage); \
		if (!X##_entry) \
			break; \
		pd = (void *)(call)->args[0]; \
		CAPTURE_DEV(X, e, GET_POINTER(pd, device), stage); \
		CAPTURE_OWNER(X, e, pd, stage); \
		if (WANT(X, pd, stage)) \
			(e)->pd = (call)->args[0]; \
		if (WANT(X, mr.place, stage)) \
			(e)->mr.place = (call)->args[1]; \
		if (WANT(X, mr.length, stage)) \
			(e)->mr.length = (call)->args[2]; \
		if (WANT(X, mr.iova, stage)) \
			(e)->mr.iova = (call)->args[3]; \
		if (WANT(X, mr.access, stage)) \
			(e)->mr.access = (call)->args[access_arg]; \
		if (IS_ERR(result)) \
			break; \
		if (WANT(X, mr.lkey, stage) && GET(&(e)->mr.lkey, mr, lkey)) \
			(e)->mr.has.lkey = 1; \
		if (WANT(X, mr.rkey, stage) && GET(&(e)->mr.rkey, mr, rkey)) \
			(e)->mr.has.rkey = 1; \
	} while (0)

NESTED_CALLS(reg_user_mr_calls, verb_call)

/* ib_mr *(ib_pd *, u64 start, u64 length, u64 iova, int access, [ib_dmah *,] ib_udata *) */
static __always_inline int reg_user_mr_enter(void *ctx, __u64 pd, __u64 start, __u64 length, __u64 iova, __u64 access)
{
	struct verb_call call = { .args = { pd, start, length, iova, access } };

	BEGIN(mlx5_reg_user_mr, &call.started);
	if (mlx5_reg_user_mr_entry && !reg_user_mr_calls_keep(&call))
		mlx5_reg_user_mr_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void mlx5_reg_user_mr_capture(struct mlx5_reg_user_mr *e, struct verb_call *call, __s64 ret, enum stage stage)
{
	CAPTURE_NEW_MR(mlx5_reg_user_mr, e, call, ret, start, 3, 4, stage);
}

static __always_inline void reg_user_mr_end(void *ctx, struct verb_call *call, __s64 ret)
{
	struct mlx5_reg_user_mr e;

	CLEAR_VERB(&e);
	__builtin_memset(&e.mr.has, 0, sizeof(e.mr.has));
	EMIT(mlx5_reg_user_mr, ctx, &e, call, ret);
}
VERB_LEAVE(reg_user_mr, reg_user_mr_leave, reg_user_mr_end)
ON_CALL5(mlx5_reg_user_mr, mlx5_ib_reg_user_mr, 6, reg_user_mr_enter, reg_user_mr_leave)

NESTED_CALLS(reg_user_mr_dmabuf_calls, verb_call)

static __always_inline void mlx5_reg_user_mr_dmabuf_capture(struct mlx5_reg_user_mr_dmabuf *e, struct verb_call *call, __s64 ret,
							    enum stage stage)
{
	CAPTURE_NEW_MR(mlx5_reg_user_mr_dmabuf, e, call, ret, offset, 3, 5, stage);
	if (WANT(mlx5_reg_user_mr_dmabuf, fd, stage))
		e->fd = call->args[4];
}

static __always_inline void reg_user_mr_dmabuf_end(void *ctx, struct verb_call *call, __s64 ret)
{
	struct mlx5_reg_user_mr_dmabuf e;

	CLEAR_VERB(&e);
	__builtin_memset(&e.mr.has, 0, sizeof(e.mr.has));
	EMIT(mlx5_reg_user_mr_dmabuf, ctx, &e, call, ret);
}
VERB_LEAVE(reg_user_mr_dmabuf, reg_user_mr_dmabuf_leave, reg_user_mr_dmabuf_end)

/*
 * ib_mr *(ib_pd *, u64 offset, u64 length, u64 iova, int fd, int access, [ib_dmah *,] ib_udata * or uverbs_attr_bundle *). With more
 * than six arguments it needs a kprobe: on amd64, kernels before 6.7 attach no fexit to such a function.
 */
SEC("kprobe/mlx5_ib_reg_user_mr_dmabuf")
int kprobe_mlx5_reg_user_mr_dmabuf__mlx5_ib_reg_user_mr_dmabuf(struct kprobe_regs *ctx)
{
	struct verb_call call = { .args = { KPROBE_ARG0(ctx), KPROBE_ARG1(ctx), KPROBE_ARG2(ctx), KPROBE_ARG3(ctx), KPROBE_ARG4(ctx),
					    KPROBE_ARG5(ctx) } };

	BEGIN(mlx5_reg_user_mr_dmabuf, &call.started);
	if (mlx5_reg_user_mr_dmabuf_entry && !reg_user_mr_dmabuf_calls_keep(&call))
		mlx5_reg_user_mr_dmabuf_count(INFLIGHT_FULL);
	return 0;
}
ON_RETURN_UNKNOWN(mlx5_reg_user_mr_dmabuf, mlx5_ib_reg_user_mr_dmabuf, reg_user_mr_dmabuf_leave)

struct dereg_mr_call {
	struct beginning started;
	struct {
		SAVED_VERB();
		MR() mr;
	} saved;
};
NESTED_CALLS(dereg_mr_calls, dereg_mr_call)

static __always_inline void save_mr(struct dereg_mr_call *call, struct ib_mr *mr, enum stage stage)
{
	CAPTURE_DEV(mlx5_dereg_mr, &call->saved, GET_POINTER(mr, device), stage);
	CAPTURE_OWNER_OR_OF_PD(mlx5_dereg_mr, &call->saved, mr, GET_POINTER(mr, pd), stage);
	/* 0 in an MR of a driver that does not keep it. */
	if (WANT(mlx5_dereg_mr, mr.length, stage) && GET(&call->saved.mr.length, mr, length) && call->saved.mr.length)
		call->saved.mr.has.length = 1;
	if (WANT(mlx5_dereg_mr, mr.iova, stage) && GET(&call->saved.mr.iova, mr, iova))
		call->saved.mr.has.iova = 1;
	if (WANT(mlx5_dereg_mr, mr.lkey, stage) && GET(&call->saved.mr.lkey, mr, lkey))
		call->saved.mr.has.lkey = 1;
	if (WANT(mlx5_dereg_mr, mr.rkey, stage) && GET(&call->saved.mr.rkey, mr, rkey))
		call->saved.mr.has.rkey = 1;
}

static __always_inline int dereg_mr_enter(void *ctx, __u64 ptr, __u64 a1, __u64 a2)
{
	struct dereg_mr_call call;

	if (!mlx5_dereg_mr_entry)
		return 0;
	__builtin_memset(&call, 0, sizeof(call));
	save_mr(&call, (void *)ptr, BEFORE);
	save_mr(&call, (void *)ptr, AFTER);
	BEGIN(mlx5_dereg_mr, &call.started);
	if (!dereg_mr_calls_keep(&call))
		mlx5_dereg_mr_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void mlx5_dereg_mr_capture(struct mlx5_dereg_mr *e, struct dereg_mr_call *call, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(mlx5_dereg_mr, e, stage);
	CAPTURE_RESULT(mlx5_dereg_mr, e, &call->started, ret, stage);
}

static __always_inline int dereg_mr_leave(void *ctx, __s64 ret)
{
	struct dereg_mr_call *call = mlx5_dereg_mr_entry ? dereg_mr_calls_innermost() : 0;
	struct mlx5_dereg_mr e;

	if (mlx5_dereg_mr_unseen(call))
		return 0;
	if (mlx5_dereg_mr_entry) {
		RESTORE_VERB(&e, &call->saved);
		__builtin_memcpy(&e.mr, &call->saved.mr, sizeof(e.mr));
	}
	EMIT(mlx5_dereg_mr, ctx, &e, call, (__s32)ret);
	if (mlx5_dereg_mr_entry)
		dereg_mr_calls_end(call);
	return 0;
}
ON_CALL(mlx5_dereg_mr, mlx5_ib_dereg_mr, 2, dereg_mr_enter, dereg_mr_leave)

/*
 * Firmware commands. Mailboxes are big-endian (struct mlx5_ifc_mbox_in_bits and mlx5_ifc_mbox_out_bits in
 * drivers/net/ethernet/mellanox/mlx5/core/cmd.c).
 */

struct mailbox_in {
	__be16 opcode;
	__be16 uid;
	__be16 reserved;
	__be16 op_mod;
};

struct mailbox_out {
	__u8 status;
	__u8 reserved[3];
	__be32 syndrome;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kobject {
	const char *name;
};
struct device {
	struct kobject kobj;
};
struct mlx5_core_dev {
	struct device *device;
};
struct mlx5_async_ctx {
	struct mlx5_core_dev *dev;
};
#pragma clang attribute pop

struct mlx5_cmd {
	COMMON();
	char dev[32] DOC("PCI device, like 0000:3b:00.0");
	enum mlx5_opcode opcode DOC("what the firmware is asked for");
	hex16_t op_mod DETAIL DOC("modifier of the opcode");
	__u16 devx_uid DETAIL DOC("DEVX user context that the command is for; 0 is the kernel's own");
	bool async DOC("the caller did not wait (mlx5_cmd_exec_cb): latency is until the callback, pid and comm are the caller's, and runq, faults and switches absent");
	enum mlx5_status status DOC("the firmware's answer; absent if there was none");
	hex32_t syndrome DETAIL DOC("the firmware's code of the cause of a failure; absent if there was no answer");
	errno_t ret DOC("result: -errno on failure; -EREMOTEIO where the caller reads the status (mlx5_cmd_do)");
	ns_t latency DOC("time until the answer");
	SPENT_FIELDS();
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 status : 1;
		__u32 syndrome : 1;
	} has HAS_ALIGN;
} DOC("a firmware command has ended (mlx5_cmd_exec, mlx5_cmd_do, mlx5_cmd_exec_polling, mlx5_cmd_exec_cb)");
EVENT(mlx5_cmd)

struct command {
	struct beginning started;
	struct mlx5_core_dev *dev;
	__u64 in;
	__u64 out;
	struct mailbox_in head;
	bool whole;  /* seen in a function that may call mlx5_cmd_do */
	bool nested; /* it has called mlx5_cmd_do */
	/* The caller of an asynchronous one. */
	cgroup_t cgroup;
	__u64 pid_tgid;
	__u32 uid;
	bool async;
	char comm[16];
	KEPT_OF_TASK;
};

/* By thread; an asynchronous command by its struct mlx5_async_work. */
CALLS(commands, command)

/* The struct mlx5_async_work of a thread in mlx5_cmd_exec_cb. */
KEPT(submissions, thread, __u64, 4096)

static __always_inline __u16 be16(__be16 v)
{
	return __builtin_bswap16(v);
}

/* cmd_status_to_err() in drivers/net/ethernet/mellanox/mlx5/core/cmd.c. */
static __always_inline __s32 errno_of(__u8 status)
{
	switch (status) {
	case mlx5_status__OK:
		return 0;
	case mlx5_status__BAD_OP_ERR:
	case mlx5_status__BAD_PARAM_ERR:
	case mlx5_status__BAD_RES_ERR:
	case mlx5_status__BAD_RES_STATE_ERR:
	case mlx5_status__IX_ERR:
	case mlx5_status__BAD_QP_STATE_ERR:
	case mlx5_status__BAD_PKT_ERR:
	case mlx5_status__BAD_SIZE_OUTS_CQES_ERR:
		return -22; /* EINVAL */
	case mlx5_status__RES_BUSY:
		return -16; /* EBUSY */
	case mlx5_status__LIM_ERR:
		return -12; /* ENOMEM */
	case mlx5_status__NOT_READY:
	case mlx5_status__NO_RES_ERR:
		return -11; /* EAGAIN */
	default:
		return -5; /* EIO */
	}
}

#define EREMOTEIO 121

static __always_inline void mlx5_cmd_capture(struct mlx5_cmd *e, struct command *cmd, struct mailbox_out *answer, __s64 ret,
					     enum stage stage)
{
	struct device *device;

	CAPTURE_TIME(mlx5_cmd, e, stage);
	if (WANT(mlx5_cmd, pid, stage))
		e->pid = cmd->pid_tgid >> 32;
	if (WANT(mlx5_cmd, tid, stage))
		e->tid = (__u32)cmd->pid_tgid;
	if (WANT(mlx5_cmd, uid, stage))
		e->uid = cmd->uid;
	if (WANT(mlx5_cmd, cgroup, stage))
		e->cgroup = cmd->cgroup;
	if (WANT(mlx5_cmd, comm, stage))
		__builtin_memcpy(e->comm, cmd->comm, sizeof(e->comm));
	CAPTURE_KEPT_OF_TASK(mlx5_cmd, e, cmd, stage);
	CAPTURE_END(mlx5_cmd, e, &cmd->started, ret, stage);
	CAPTURE_SPENT(mlx5_cmd, e, cmd->async ? 0 : &cmd->started.spent, stage);
	if (WANT(mlx5_cmd, dev, stage)) {
		device = GET_POINTER(cmd->dev, device);
		if (device && bpf_core_field_exists(device->kobj.name) && READ_STRING(e->dev, BPF_CORE_READ(device, kobj.name)) > 0)
			e->has.dev = 1;
	}
	if (WANT(mlx5_cmd, opcode, stage))
		e->opcode = be16(cmd->head.opcode);
	if (WANT(mlx5_cmd, op_mod, stage))
		e->op_mod = be16(cmd->head.op_mod);
	if (WANT(mlx5_cmd, devx_uid, stage))
		e->devx_uid = be16(cmd->head.uid);
	if (WANT(mlx5_cmd, async, stage))
		e->async = cmd->async;
	if (!answer)
		return;
	if (WANT(mlx5_cmd, status, stage))
		SET(e, status, answer->status);
	if (WANT(mlx5_cmd, syndrome, stage))
		SET(e, syndrome, __builtin_bswap32(answer->syndrome));
}

static __always_inline void begin_command(struct command *cmd, __u64 dev, __u64 in, __u64 out)
{
	cmd->dev = (void *)dev;
	cmd->in = in;
	cmd->out = out;
	bpf_probe_read_kernel(&cmd->head, sizeof(cmd->head), (void *)in);
	cmd->pid_tgid = bpf_get_current_pid_tgid();
	if (WANTED(mlx5_cmd, uid))
		cmd->uid = (__u32)bpf_get_current_uid_gid();
	if (WANTED(mlx5_cmd, cgroup))
		cmd->cgroup = current_cgroup();
	if (WANTED(mlx5_cmd, comm))
		READ_COMM(cmd->comm);
	if (ANY_OF_TASK(WANTED_FIELD, mlx5_cmd))
		READ_OF_TASK(cmd, bpf_get_current_task(), WANTED_FIELD, mlx5_cmd);
	BEGIN(mlx5_cmd, &cmd->started);
}

/* The command was answered if the result follows from the answer; otherwise there is no answer in the mailbox. */
static __always_inline void end_command(void *ctx, struct command *cmd, __s64 ret)
{
	struct mailbox_out answer = {};
	bool answered = !bpf_probe_read_kernel(&answer, sizeof(answer), (void *)cmd->out);
	struct mlx5_cmd e;

	/* Newer kernels compute the callback's result from the answer after the probed function (cmd_status_err). */
	if (cmd->async && !ret && answered && answer.status)
		ret = -EREMOTEIO;
	answered = answered && (ret == -EREMOTEIO || ret == errno_of(answer.status));
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(mlx5_cmd, ctx, &e, cmd, answered ? &answer : 0, ret);
}

/* Keeps a command by its thread or its work. */
static __always_inline void keep_command(__u64 key, const struct command *cmd)
{
	struct command *kept = commands_begin(key);

	if (kept)
		*kept = *cmd;
	else
		mlx5_cmd_count(INFLIGHT_FULL);
}

static __always_inline int command_enter(__u64 dev, __u64 in, __u64 out, bool whole)
{
	struct command cmd;

	__builtin_memset(&cmd, 0, sizeof(cmd));
	begin_command(&cmd, dev, in, out);
	cmd.whole = whole;
	keep_command(bpf_get_current_pid_tgid(), &cmd);
	return 0;
}

static __always_inline int exec_leave(void *ctx, __s64 ret)
{
	struct command *cmd = commands_of(bpf_get_current_pid_tgid());

	if (!cmd) {
		mlx5_cmd_count(UNSEEN);
		return 0;
	}
	end_command(ctx, cmd, (__s32)ret);
	commands_end(cmd);
	return 0;
}

/* int (mlx5_core_dev *, void *in, int in_size, void *out, int out_size) */
static __always_inline int exec_enter(void *ctx, __u64 dev, __u64 in, __u64 in_size, __u64 out, __u64 out_size)
{
	return command_enter(dev, in, out, true);
}
ON_CALL5(mlx5_cmd, mlx5_cmd_exec, 5, exec_enter, exec_leave)
ON_CALL5(mlx5_cmd, mlx5_cmd_exec_polling, 5, exec_enter, exec_leave)

/* In some builds the functions above call this one (6.1, 6.12), in others they do not (7.2). Both are one command. */
static __always_inline int do_enter(void *ctx, __u64 dev, __u64 in, __u64 in_size, __u64 out, __u64 out_size)
{
	struct command *outer = commands_of(bpf_get_current_pid_tgid());

	if (outer && outer->whole && outer->in == in) {
		outer->nested = true;
		return 0;
	}
	return command_enter(dev, in, out, false);
}

static __always_inline int do_leave(void *ctx, __s64 ret)
{
	struct command *outer = commands_of(bpf_get_current_pid_tgid());

	if (outer && outer->nested) {
		outer->nested = false;
		return 0;
	}
	return exec_leave(ctx, ret);
}
ON_CALL5(mlx5_cmd, mlx5_cmd_do, 5, do_enter, do_leave)

/*
 * Asynchronous commands begin in int mlx5_cmd_exec_cb(mlx5_async_ctx *, void *in, int in_size, void *out, int out_size,
 * mlx5_async_cbk_t, mlx5_async_work *), which needs a kprobe for its seventh argument. They end in mlx5_cmd_exec_cb_handler(int
 * status, void *work), in an interrupt.
 */
SEC("kprobe/mlx5_cmd_exec_cb")
int kprobe_mlx5_cmd__mlx5_cmd_exec_cb(struct kprobe_regs *ctx)
{
	struct mlx5_async_ctx *async = (void *)KPROBE_ARG0(ctx);
	__u64 work = KPROBE_ARG6(ctx), *submitted;
	struct command cmd;

	__builtin_memset(&cmd, 0, sizeof(cmd));
	begin_command(&cmd, (__u64)GET_POINTER(async, dev), KPROBE_ARG1(ctx), KPROBE_ARG3(ctx));
	cmd.async = true;
	keep_command(work, &cmd);
	submitted = submissions_begin(bpf_get_current_pid_tgid());
	if (submitted)
		*submitted = work;
	else
		mlx5_cmd_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline void async_end(void *ctx, __u64 work, __s64 ret)
{
	struct command *cmd = commands_of(work);

	if (!cmd) {
		mlx5_cmd_count(UNSEEN);
		return;
	}
	end_command(ctx, cmd, ret);
	commands_end(cmd);
}

/* A command that could not be sent has no callback. */
SEC("kretprobe/mlx5_cmd_exec_cb")
int kretprobe_mlx5_cmd__mlx5_cmd_exec_cb(struct kprobe_regs *ctx)
{
	__u64 *work = submissions_of(bpf_get_current_pid_tgid());
	__s32 ret = KPROBE_RET(ctx);

	if (!work)
		return 0;
	if (ret)
		async_end(ctx, *work, ret);
	submissions_end(work);
	return 0;
}

static __always_inline int handler_enter(void *ctx, __u64 status, __u64 work, __u64 unused)
{
	async_end(ctx, work, (__s32)status);
	return 0;
}
ON_ENTER(mlx5_cmd, mlx5_cmd_exec_cb_handler, 2, handler_enter)
