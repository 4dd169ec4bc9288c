/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Protection domains, completion queues and memory regions of every RDMA driver, of user programs and of the kernel.
 *
 *              user programs                                                        kernel
 *   alloc_pd   ib_uverbs_alloc_pd                                                   __ib_alloc_pd
 *   dealloc_pd uverbs_free_pd, and in it ib_dealloc_pd_user                         ib_dealloc_pd_user
 *   create_cq  ib_uverbs_create_cq, ib_uverbs_ex_create_cq, …METHOD_CQ_CREATE       __ib_alloc_cq, __ib_create_cq
 *   destroy_cq ib_destroy_cq_user                                                   ib_free_cq, ib_destroy_cq_user
 *   reg_mr     ib_uverbs_reg_mr, …METHOD_REG_MR, …REG_DMABUF_MR, …DM_MR_REG,        ib_alloc_mr, ib_alloc_mr_integrity,
 *              ib_uverbs_rereg_mr                                                   ib_reg_user_mr
 *   dereg_mr   ib_dereg_mr_user                                                     ib_dereg_mr_user
 *
 * The objects of user programs are created by inline code of uverbs' handlers on every kernel, so an event is the call of the
 * handler, as it is for QPs on 5.10: failed ones include requests that uverbs itself refuses. rdma_restrack_add, which is called
 * for every new object, identifies it. The MR that a kernel's PD holds for itself (get_dma_mr) uses none of these functions.
 *
 * All of them sleep, so a thread is in one of them at a time, except for the nested calls named below.
 */
#pragma once
#include "rdma.h"

/* The request that a uverbs handler got: the struct of a write command in ucore, or attributes of an ioctl by their ids. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ib_ucontext {
	struct ib_device *device;
};
struct ib_uobject {
	void *object;
};
struct ib_udata {
	const void *inbuf;
};
struct uverbs_ptr_attr {
	__u64 data;
};
struct uverbs_attr {
	struct uverbs_ptr_attr ptr_attr;
};
struct uverbs_attr_bundle {
	struct ib_udata ucore;
	struct ib_ucontext *context; /* set once the handler has found it */
	unsigned long attr_present[1];
	struct uverbs_attr attrs[];
};
#pragma clang attribute pop

#define PD() \
	struct { \
		__u32 id DOC("number of the PD, as `rdma res` has it; absent if it does not track it"); \
		struct { \
			HAS_PAD; \
			__u32 id : 1; \
		} has HAS_ALIGN; \
	}

#define CQ() \
	struct { \
		__u32 id DOC("number of the CQ, as `rdma res` has it; absent if it does not track it"); \
		__u32 cqe DOC("entries, as the driver rounded them; of a failed request those asked for, absent for one of the kernel"); \
		__u32 comp_vector DETAIL DOC("completion vector; absent in ib:destroy_cq of a program's CQ"); \
		struct { \
			HAS_PAD; \
			__u32 id : 1; \
			__u32 cqe : 1; \
			__u32 comp_vector : 1; \
		} has HAS_ALIGN; \
	}

#define MR() \
	struct { \
		__u32 id DOC("number of the MR, as `rdma res` has it; absent if it does not track it"); \
		__u32 lkey VERBOSE DOC("local key"); \
		__u32 rkey DOC("remote key"); \
		enum ib_access_flags access FLAGS VERBOSE DOC("what it may be used for; absent in ib:dereg_mr"); \
		bytes_t length DOC("bytes registered; absent for MRs that the kernel maps later"); \
		hex64_t start VERBOSE DOC("address in the program that registers; absent for a dma-buf or device memory, and in ib:dereg_mr"); \
		hex64_t iova VERBOSE DOC("address by which the MR is accessed; absent for MRs that the kernel maps later"); \
		struct { \
			HAS_PAD; \
			__u32 id : 1; \
			__u32 lkey : 1; \
			__u32 rkey : 1; \
			__u32 access : 1; \
			__u32 length : 1; \
			__u32 start : 1; \
			__u32 iova : 1; \
		} has HAS_ALIGN; \
	}

/* The fields of every event: its object and the call. An MR belongs to a PD. */
#define OBJECT_FIELDS(object) \
	char dev[64] DOC("RDMA device, like mlx5_0"); \
	object; \
	OWNER() owner; \
	errno_t ret AT_RETURN DOC("result: -errno on failure"); \
	ns_t latency DOC("time in the call"); \
	SPENT_FIELDS(); \
	struct { \
		HAS_PAD; \
		__u32 dev : 1; \
	} has HAS_ALIGN

struct ib_alloc_pd {
	COMMON();
	OBJECT_FIELDS(PD() pd);
} DOC("a protection domain was allocated, or could not be (ib_uverbs_alloc_pd, __ib_alloc_pd)");
EVENT(ib_alloc_pd)
OF_CALL(ib_alloc_pd)

struct ib_dealloc_pd {
	COMMON();
	OBJECT_FIELDS(PD() pd);
} DOC("a protection domain was freed, or could not be (uverbs_free_pd, ib_dealloc_pd_user)");
EVENT(ib_dealloc_pd)
OF_NESTED_CALL(ib_dealloc_pd)

struct ib_create_cq {
	COMMON();
	OBJECT_FIELDS(CQ() cq);
} DOC("a completion queue was created, or could not be (uverbs, __ib_alloc_cq, __ib_create_cq)");
EVENT(ib_create_cq)
OF_CALL(ib_create_cq)

struct ib_destroy_cq {
	COMMON();
	OBJECT_FIELDS(CQ() cq);
} DOC("a completion queue was destroyed, or could not be (ib_destroy_cq_user, ib_free_cq)");
EVENT(ib_destroy_cq)
OF_CALL(ib_destroy_cq)

struct ib_reg_mr {
	COMMON();
	OBJECT_FIELDS(PD() pd; MR() mr);
} DOC("a memory region was registered or allocated, or could not be (uverbs, ib_alloc_mr, ib_reg_user_mr)");
EVENT(ib_reg_mr)
OF_CALL(ib_reg_mr)

struct ib_dereg_mr {
	COMMON();
	OBJECT_FIELDS(PD() pd; MR() mr);
} DOC("a memory region was deregistered, or could not be (ib_dereg_mr_user)");
EVENT(ib_dereg_mr)
OF_CALL(ib_dereg_mr)

/*
 * GET for a member that has the same width as *dst on every kernel: this takes a fifth of the code. If p is NULL, *dst is 0 and the result
 * as well.
 */
#define GET_SAME(dst, p, member) \
	({ \
		typeof(p) base = (p); \
		bpf_core_field_exists(base->member) ? is_done(bpf_core_read(dst, sizeof(*(dst)), &base->member)) : 0; \
	})

#define CAPTURE_MEMBER(X, e, s, field, p, member, stage) \
	do { \
		if (WANT(X, s.field, stage)) \
			(e)->s.has.field = GET_SAME(&(e)->s.field, p, member); \
	} while (0)

/* Captures the number of an object p into s, a struct of the event. */
#define CAPTURE_ID(X, e, s, p, stage) \
	do { \
		bool tracked = false; \
		if (WANT(X, s.id, stage)) \
			(e)->s.has.id = GET_SAME(&tracked, p, res.valid) & GET_SAME(&(e)->s.id, p, res.id) & tracked; \
	} while (0)

/* Captures a member of an object unless it is 0: then it was not set. */
#define CAPTURE_SET_MEMBER(X, e, s, field, p, member, stage) \
	do { \
		if (WANT(X, s.field, stage)) \
			(e)->s.has.field = GET_SAME(&(e)->s.field, p, member) & is_set((e)->s.field); \
	} while (0)

#define CAPTURE_PD(X, e, p, stage) \
	do { \
		CAPTURE_DEV(X, e, GET_POINTER(p, device), stage); \
		CAPTURE_ID(X, e, pd, p, stage); \
		CAPTURE_OWNER(X, e, p, stage); \
	} while (0)

/* Only __ib_alloc_cq keeps the vector, and only it allocates work completions (wc). */
#define CAPTURE_CQ(X, e, p, stage) \
	do { \
		CAPTURE_DEV(X, e, GET_POINTER(p, device), stage); \
		CAPTURE_ID(X, e, cq, p, stage); \
		CAPTURE_MEMBER(X, e, cq, cqe, p, cqe, stage); \
		if (WANT(X, cq.comp_vector, stage) && GET_POINTER(p, wc)) \
			CAPTURE_MEMBER(X, e, cq, comp_vector, p, comp_vector, stage); \
		CAPTURE_OWNER(X, e, p, stage); \
	} while (0)

#define CAPTURE_MR(X, e, p, stage) \
	do { \
		struct ib_pd *pd; \
		CAPTURE_DEV(X, e, GET_POINTER(p, device), stage); \
		pd = WANT(X, pd.id, stage) ? GET_POINTER(p, pd) : 0; \
		CAPTURE_ID(X, e, pd, pd, stage); \
		CAPTURE_ID(X, e, mr, p, stage); \
		CAPTURE_MEMBER(X, e, mr, lkey, p, lkey, stage); \
		CAPTURE_MEMBER(X, e, mr, rkey, p, rkey, stage); \
		CAPTURE_SET_MEMBER(X, e, mr, length, p, length, stage); \
		CAPTURE_SET_MEMBER(X, e, mr, iova, p, iova, stage); \
		CAPTURE_OWNER_OR_OF_PD(X, e, p, GET_POINTER(p, pd), stage); \
	} while (0)

/*
 * Creation.
 */

/*
 * Where a request holds an argument: the id of an attribute (include/uapi/rdma/ib_user_ioctl_cmds.h), or the offset in the struct of
 * a write command (ib_user_verbs.h). NOWHERE means that this kind of request does not have it.
 */
enum { NOWHERE = -1 };
struct places {
	bool attributes;
	__s8 start, length, iova, access;
	__s8 cqe, comp_vector;
};

struct object_call {
	struct beginning started;
	struct ib_device *device;         /* of a call by the kernel */
	struct uverbs_attr_bundle *attrs; /* of a request of a user program */
	void *object;                     /* set in rdma_restrack_add */
	struct places at;
};

/*
 * Reads an argument of a request: 1 if it has it. The core's attributes have even indices, the driver's odd ones (uapi_key_attr,
 * include/rdma/uverbs_ioctl.h). A small value is in the lower bytes of its data.
 */
static __always_inline __u32 requested(__u64 *value, __u32 size, struct object_call *call, __s8 place)
{
	struct uverbs_attr_bundle *attrs = call->attrs;
	__u32 i = 2 * place, somewhere = ~(__u32)place >> 31;
	struct uverbs_attr *attr;
	unsigned long present = 0;

	if (!bpf_core_type_exists(struct uverbs_attr_bundle))
		return 0;
	if (!call->at.attributes)
		return is_done(bpf_probe_read_user(value, size, BPF_CORE_READ(attrs, ucore.inbuf) + place)) & somewhere;
	bpf_core_read(&present, sizeof(present), &attrs->attr_present);
	attr = (void *)attrs + bpf_core_field_offset(struct uverbs_attr_bundle, attrs) + i * bpf_core_type_size(struct uverbs_attr);
	return is_done(bpf_core_read(value, sizeof(*value), &attr->ptr_attr.data)) & present >> (i & 63) & somewhere;
}

/* What is not in the request stays as it is. */
#define CAPTURE_REQUESTED(X, e, s, field, call, stage) \
	do { \
		if (WANT(X, s.field, stage)) { \
			__u64 value = 0, all = -(__u64)(requested(&value, sizeof((e)->s.field), call, (call)->at.field) & 1); \
			(e)->s.field = (value & all) | ((e)->s.field & ~all); \
			(e)->s.has.field |= all; \
		} \
	} while (0)

/* The device of a failed call. */
static __always_inline struct ib_device *device_of(struct object_call *call)
{
	struct ib_ucontext *context;

	if (!call->attrs)
		return call->device;
	context = GET_POINTER(call->attrs, context);
	return context ? GET_POINTER(context, device) : 0;
}

/*
 * A handler writes the arguments of its request over this. It is no constant in memory: clang 14 copies one of 7 bytes by several stores, and
 * then leaves out the stores before them (TestResultsAreUsed).
 */
static __always_inline struct places no_places(void)
{
	struct places at;

	at.attributes = false;
	at.start = at.length = at.iova = at.access = at.cqe = at.comp_vector = NOWHERE;
	return at;
}

/* If nothing is kept, the object has no presence bits that could be wrong. */
#define CLEAR_OBJECT(X, e) \
	do { \
		if (X##_entry) \
			CLEAR_UNKNOWN(e); \
	} while (0)

/*
 * CREATES(op, T, kind, maybe) defines the programs of an operation that creates a struct T:
 *
 *   op_request_enter, op_request_leave   for uverbs handlers, which return int
 *   op_keep_request                      for handlers that may create an object: only what is kept shows whether they did
 *   op_restrack                          for rdma_restrack_add, inside them
 *   op_begin, op_leave                   for functions that the kernel calls, which return the object or an error
 *
 * A driver may create an object of its own inside a request, so requests have a separate map. maybe: some handlers may create an object.
 */
#define CREATES(op, T, kind, maybe) \
	CALLS(op##_requests, object_call) \
	CALLS(op##_calls, object_call) \
	static __always_inline int op##_keep_request(__u64 attrs, struct places at) \
	{ \
		struct object_call call = { .attrs = (void *)attrs, .at = at }; \
		BEGIN(ib_##op, &call.started); \
		BEGIN_CALL(ib_##op, op##_requests, &call); \
		return 0; \
	} \
	static __always_inline int op##_request_enter(__u64 attrs, struct places at) \
	{ \
		return ib_##op##_entry ? op##_keep_request(attrs, at) : 0; \
	} \
	static __always_inline int op##_restrack(void *ctx, __u64 res, __u64 a1, __u64 a2) \
	{ \
		struct rdma_restrack_entry *entry = (void *)res; \
		struct object_call *call = maybe || ib_##op##_entry ? op##_requests_of(bpf_get_current_pid_tgid()) : 0; \
		__u32 type = ~0; \
		if (call && GET_SAME(&type, entry, type) && type == kind && bpf_core_field_exists(((struct T *)0)->res)) \
			call->object = (void *)res - bpf_core_field_offset(struct T, res); \
		return 0; \
	} \
	ON_ENTER(op, rdma_restrack_add, 1, op##_restrack) \
	static __always_inline int op##_request_leave(void *ctx, __s64 ret) \
	{ \
		struct object_call *call = ib_##op##_entry ? op##_requests_of(bpf_get_current_pid_tgid()) : 0; \
		struct ib_##op e; \
		if (ib_##op##_unseen(call)) \
			return 0; \
		ret = (__s32)ret; \
		CLEAR_OBJECT(ib_##op, &e); \
		EMIT(ib_##op, ctx, &e, call, ib_##op##_entry && !ret ? (struct T *)call->object : 0, ret); \
		if (ib_##op##_entry) \
			op##_requests_end(call); \
		return 0; \
	} \
	static __always_inline int op##_begin(struct ib_device *device) \
	{ \
		struct object_call call = { .device = device }; \
		BEGIN(ib_##op, &call.started); \
		BEGIN_CALL(ib_##op, op##_calls, &call); \
		return 0; \
	} \
	static __always_inline int op##_leave(void *ctx, __s64 ret) \
	{ \
		struct object_call *call = ib_##op##_entry ? op##_calls_of(bpf_get_current_pid_tgid()) : 0; \
		struct ib_##op e; \
		if (ib_##op##_unseen(call)) \
			return 0; \
		CLEAR_OBJECT(ib_##op, &e); \
		EMIT(ib_##op, ctx, &e, call, IS_ERR(ret) ? 0 : (struct T *)ret, IS_ERR(ret) ? ret : 0); \
		if (ib_##op##_entry) \
			op##_calls_end(call); \
		return 0; \
	}

static __always_inline void ib_alloc_pd_capture(struct ib_alloc_pd *e, struct object_call *call, struct ib_pd *pd, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(ib_alloc_pd, e, stage);
	CAPTURE_RESULT(ib_alloc_pd, e, &call->started, ret, stage);
	if (!ib_alloc_pd_entry)
		return;
	if (pd)
		CAPTURE_PD(ib_alloc_pd, e, pd, stage);
	else
		CAPTURE_DEV(ib_alloc_pd, e, device_of(call), stage);
}
CREATES(alloc_pd, ib_pd, RDMA_RESTRACK_PD, false)

static __always_inline int alloc_pd_user_enter(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	return alloc_pd_request_enter(attrs, no_places());
}
ON_CALL(alloc_pd, ib_uverbs_alloc_pd, 1, alloc_pd_user_enter, alloc_pd_request_leave)

static __always_inline int alloc_pd_enter(void *ctx, __u64 device, __u64 flags, __u64 caller)
{
	return ib_alloc_pd_entry ? alloc_pd_begin((void *)device) : 0;
}
ON_CALL(alloc_pd, __ib_alloc_pd, 3, alloc_pd_enter, alloc_pd_leave)

static __always_inline void ib_create_cq_capture(struct ib_create_cq *e, struct object_call *call, struct ib_cq *cq, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(ib_create_cq, e, stage);
	CAPTURE_RESULT(ib_create_cq, e, &call->started, ret, stage);
	if (!ib_create_cq_entry)
		return;
	if (cq)
		CAPTURE_CQ(ib_create_cq, e, cq, stage);
	else
		CAPTURE_DEV(ib_create_cq, e, device_of(call), stage);
	if (!call->attrs)
		return;
	CAPTURE_REQUESTED(ib_create_cq, e, cq, comp_vector, call, stage);
	if (!cq)
		CAPTURE_REQUESTED(ib_create_cq, e, cq, cqe, call, stage);
}
CREATES(create_cq, ib_cq, RDMA_RESTRACK_CQ, false)

/* struct ib_uverbs_create_cq */
static __always_inline int create_cq_write(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	struct places at = no_places();

	at.cqe = 16;
	at.comp_vector = 20;
	return create_cq_request_enter(attrs, at);
}
ON_ENTER(create_cq, ib_uverbs_create_cq, 1, create_cq_write)

/* struct ib_uverbs_ex_create_cq */
static __always_inline int create_cq_ex_write(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	struct places at = no_places();

	at.cqe = 8;
	at.comp_vector = 12;
	return create_cq_request_enter(attrs, at);
}
ON_ENTER(create_cq, ib_uverbs_ex_create_cq, 1, create_cq_ex_write)

/* enum uverbs_attrs_create_cq_cmd_attr_ids */
static __always_inline int create_cq_ioctl(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	struct places at = no_places();

	at.attributes = true;
	at.cqe = 1;
	at.comp_vector = 4;
	return create_cq_request_enter(attrs, at);
}
ON_ENTER(create_cq, ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE, 1, create_cq_ioctl)
ON_LEAVE(create_cq, request, 1, create_cq_request_leave)

static __always_inline int create_cq_enter(void *ctx, __u64 device, __u64 a1, __u64 a2)
{
	return ib_create_cq_entry ? create_cq_begin((void *)device) : 0;
}
ON_CALL(create_cq, kernel, 6, create_cq_enter, create_cq_leave)

/* The request takes precedence; where there is no request, or it cannot be read, the MR is used. */
static __always_inline void ib_reg_mr_capture(struct ib_reg_mr *e, struct object_call *call, struct ib_mr *mr, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(ib_reg_mr, e, stage);
	CAPTURE_RESULT(ib_reg_mr, e, &call->started, ret, stage);
	if (!ib_reg_mr_entry)
		return;
	if (mr)
		CAPTURE_MR(ib_reg_mr, e, mr, stage);
	else
		CAPTURE_DEV(ib_reg_mr, e, device_of(call), stage);
	if (!call->attrs)
		return;
	CAPTURE_REQUESTED(ib_reg_mr, e, mr, start, call, stage);
	CAPTURE_REQUESTED(ib_reg_mr, e, mr, length, call, stage);
	CAPTURE_REQUESTED(ib_reg_mr, e, mr, iova, call, stage);
	CAPTURE_REQUESTED(ib_reg_mr, e, mr, access, call, stage);
}
CREATES(reg_mr, ib_mr, RDMA_RESTRACK_MR, true)

/* struct ib_uverbs_reg_mr */
static __always_inline int reg_mr_write(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	struct places at = no_places();

	at.start = 8;
	at.length = 16;
	at.iova = 24;
	at.access = 36;
	return reg_mr_request_enter(attrs, at);
}
ON_ENTER(reg_mr, ib_uverbs_reg_mr, 1, reg_mr_write)

/* enum uverbs_attrs_reg_mr_cmd_attr_ids */
static __always_inline int reg_mr_ioctl(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	struct places at = no_places();

	at.attributes = true;
	at.iova = 3;
	at.start = 4;
	at.length = 5;
	at.access = 6;
	return reg_mr_request_enter(attrs, at);
}
ON_ENTER(reg_mr, ib_uverbs_handler_UVERBS_METHOD_REG_MR, 1, reg_mr_ioctl)

/* enum uverbs_attrs_reg_dmabuf_mr_cmd_attr_ids */
static __always_inline int reg_mr_dmabuf(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	struct places at = no_places();

	at.attributes = true;
	at.length = 3;
	at.iova = 4;
	at.access = 6;
	return reg_mr_request_enter(attrs, at);
}
ON_ENTER(reg_mr, ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR, 1, reg_mr_dmabuf)

/* enum uverbs_attrs_reg_dm_mr_cmd_attr_ids; memory of the device */
static __always_inline int reg_mr_dm(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	struct places at = no_places();

	at.attributes = true;
	at.length = 2;
	at.access = 4;
	return reg_mr_request_enter(attrs, at);
}
ON_ENTER(reg_mr, ib_uverbs_handler_UVERBS_METHOD_DM_MR_REG, 1, reg_mr_dm)

/* Changes an MR. Some drivers make a new one for that and then deregister the old one. */
static __always_inline int rereg_mr_write(void *ctx, __u64 attrs, __u64 a1, __u64 a2)
{
	return reg_mr_keep_request(attrs, no_places());
}

static __always_inline int rereg_mr_leave(void *ctx, __s64 ret)
{
	struct object_call *call = reg_mr_requests_of(bpf_get_current_pid_tgid());
	struct ib_reg_mr e;

	if (!call) {
		ib_reg_mr_count(UNSEEN);
		return 0;
	}
	ret = (__s32)ret;
	CLEAR_OBJECT(ib_reg_mr, &e);
	if (call->object)
		EMIT(ib_reg_mr, ctx, &e, call, ret ? 0 : (struct ib_mr *)call->object, ret);
	reg_mr_requests_end(call);
	return 0;
}
ON_CALL(reg_mr, ib_uverbs_rereg_mr, 1, rereg_mr_write, rereg_mr_leave)
ON_LEAVE(reg_mr, request, 1, reg_mr_request_leave)

static __always_inline int reg_mr_enter(void *ctx, __u64 pd, __u64 a1, __u64 a2)
{
	return ib_reg_mr_entry ? reg_mr_begin(GET_POINTER((struct ib_pd *)pd, device)) : 0;
}
ON_CALL(reg_mr, kernel, 3, reg_mr_enter, reg_mr_leave)
ON_CALL(reg_mr, ib_reg_user_mr, 5, reg_mr_enter, reg_mr_leave)

/* The end. The object is gone when the call returns, so it is captured at the entry. */

/*
 * DESTROYS(op, T, CAPTURE) defines op_begin(object) for functions that destroy a struct T, and op_enter(ctx, object, …) and
 * op_leave(ctx, ret) for functions among them that call no other one.
 */
#define DESTROYS(op, T, CAPTURE) \
	struct op##_call { \
		struct beginning started; \
		__u64 object; \
		bool outer; /* called by a function that calls another one for the same object */ \
		struct ib_##op saved; \
	}; \
	CALLS(op##_calls, op##_call) \
	static __always_inline int op##_begin(__u64 object, bool outer) \
	{ \
		struct T *p = (void *)object; \
		struct op##_call call; \
		__builtin_memset(&call, 0, sizeof(call)); \
		call.object = object; \
		call.outer = outer; \
		CAPTURE(ib_##op, &call.saved, p, BEFORE); \
		CAPTURE(ib_##op, &call.saved, p, AFTER); \
		BEGIN(ib_##op, &call.started); \
		BEGIN_CALL(ib_##op, op##_calls, &call); \
		return 0; \
	} \
	static __always_inline int op##_enter(void *ctx, __u64 object, __u64 a1, __u64 a2) \
	{ \
		return ib_##op##_entry ? op##_begin(object, false) : 0; \
	} \
	static __always_inline void ib_##op##_capture(struct ib_##op *e, struct op##_call *call, __s64 ret, enum stage stage) \
	{ \
		CAPTURE_COMMON(ib_##op, e, stage); \
		CAPTURE_RESULT(ib_##op, e, &call->started, ret, stage); \
	} \
	static __always_inline int op##_leave(void *ctx, __s64 ret) \
	{ \
		struct op##_call *call = ib_##op##_entry ? op##_calls_of(bpf_get_current_pid_tgid()) : 0; \
		struct ib_##op e; \
		if (ib_##op##_unseen(call)) \
			return 0; \
		if (ib_##op##_entry) \
			__builtin_memcpy(&e, &call->saved, sizeof(e)); \
		EMIT(ib_##op, ctx, &e, call, (__s32)ret); \
		if (ib_##op##_entry) \
			op##_calls_end(call); \
		return 0; \
	}

DESTROYS(dealloc_pd, ib_pd, CAPTURE_PD)

/* Refuses a PD that is in use, and otherwise calls the function below. Both are one event, reported by this function. */
static __always_inline int free_pd_enter(void *ctx, __u64 uobject, __u64 why, __u64 attrs)
{
	return dealloc_pd_begin((__u64)GET_POINTER((struct ib_uobject *)uobject, object), true);
}
ON_CALL(dealloc_pd, uverbs_free_pd, 3, free_pd_enter, dealloc_pd_leave)

/* Whether this call is part of a call of the function above. What is kept shows it; a count would get out of step if the kernel skips
 * a program. */
static __always_inline int dealloc_pd_inner_enter(void *ctx, __u64 pd, __u64 a1, __u64 a2)
{
	struct dealloc_pd_call *outer = dealloc_pd_calls_of(bpf_get_current_pid_tgid());

	return outer && outer->outer && outer->object == pd ? 0 : dealloc_pd_begin(pd, false);
}

static __always_inline int dealloc_pd_inner_leave(void *ctx, __s64 ret)
{
	struct dealloc_pd_call *call = dealloc_pd_calls_of(bpf_get_current_pid_tgid());

	return call && call->outer ? 0 : dealloc_pd_leave(ctx, ret);
}
ON_CALL(dealloc_pd, ib_dealloc_pd_user, 2, dealloc_pd_inner_enter, dealloc_pd_inner_leave)

DESTROYS(destroy_cq, ib_cq, CAPTURE_CQ)
ON_CALL(destroy_cq, ib_destroy_cq_user, 2, destroy_cq_enter, destroy_cq_leave)

/* The function returns void. */
static __always_inline int free_cq_leave(void *ctx, __s64 ret)
{
	return destroy_cq_leave(ctx, 0);
}
ON_CALL(destroy_cq, ib_free_cq, 1, destroy_cq_enter, free_cq_leave)

DESTROYS(dereg_mr, ib_mr, CAPTURE_MR)
ON_CALL(dereg_mr, ib_dereg_mr_user, 2, dereg_mr_enter, dereg_mr_leave)
