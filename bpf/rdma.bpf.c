//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The objects of RDMA devices that the kernel tracks for `rdma res`: drivers/infiniband/core/restrack.c.
 *
 *     appears   rdma_restrack_add, if it leaves the entry valid: it may run out of memory
 *     goes      rdma_restrack_del, or, in newer kernels, rdma_restrack_begin_del, which hides it. If the driver then cannot destroy it,
 *               rdma_restrack_abort_del brings it back.
 *     exists    rdma_restrack_get, while the kernel walks the entries of a table; the walk holds the table's lock
 */
#include "rdma.h"
#include "rdma_counters.h"

/* enum rdma_restrack_type, include/rdma/restrack.h. */
enum restrack_type {
	restrack_type__PD,
	restrack_type__CQ,
	restrack_type__QP,
	restrack_type__CM_ID,
	restrack_type__MR,
	restrack_type__CTX,
	restrack_type__COUNTER,
	restrack_type__SRQ,
	restrack_type__DMAH,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ib_ucontext {
	struct ib_device *device;
	struct rdma_restrack_entry res;
};
struct ib_uobject {
	struct ib_ucontext *context;
};
struct ib_pd___object {
	struct ib_device *device;
	struct ib_uobject *uobject;
	struct rdma_restrack_entry res;
};
struct ib_srq {
	struct ib_device *device;
	struct rdma_restrack_entry res;
};
struct ib_dmah {
	struct ib_device *device;
	struct rdma_restrack_entry res;
};
struct rdma_counter {
	struct ib_device *device;
	struct rdma_restrack_entry res;
};
struct rdma_cm_id {
	struct ib_device *device;
};
struct rdma_id_private {
	struct rdma_cm_id id;
	struct rdma_restrack_entry res;
};
#pragma clang attribute pop

struct rdma_resource {
	COMMON();
	char dev[64] NEEDS(rdma_device) DOC("RDMA device, like mlx5_0");
	enum restrack_type type DOC("kind of object");
	__u32 id DOC("what rdma res calls lqpn, cqn, pdn, mrn, cm-idn, ctxn, srqn; of a GSI or SMI QP with the port in the highest byte");
	struct {
		__u32 pid DOC("process that owns the object; absent for the kernel's own");
		char comm[16] DOC("name of the thread that made it");
		char kernel[32] DOC("kernel module that owns the object; absent for objects of a process");
		struct {
			HAS_PAD;
			__u32 pid : 1;
			__u32 comm : 1;
			__u32 kernel : 1;
		} has HAS_ALIGN;
	} owner;
	__s8 delta DOC("1 when an object appears, -1 when it goes");
	bool seeded DOC("the object was there before the program began: its time is the start of the program; pid, comm and so on are its maker's");
	bool corrected DOC("the kernel skipped this event, and a comparison with its list of objects found it later; pid, comm and so on are its maker's");
	struct {
		HAS_PAD;
		TASK_HAS();
		__u32 dev : 1;
		__u32 type : 1;
		__u32 id : 1;
	} has HAS_ALIGN;
} DOC("an object of an RDMA device appears in rdma res, or goes (rdma_restrack_add, rdma_restrack_del); at the start each one that is there");
EVENT(rdma_resource)

struct rdma_qp {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	QP(DOC("state of the QP")) qp;
	OWNER() owner;
	errno_t ret DOC("result: -errno on failure; then the attributes are absent");
	ATTRIBUTES("");
	bool seeded DOC("the QP was there before the program began, which asked for it: pid, comm and so on are its maker's");
	struct {
		HAS_PAD;
		TASK_HAS();
		__u32 dev : 1;
		ATTRIBUTES_HAS();
	} has HAS_ALIGN;
} DOC("attributes of a QP, when somebody asks its driver for them (ib_query_qp: ibv_query_qp, rdma res show qp); at the start of each QP that is there");
EVENT(rdma_qp)
/* Whose QP it is, and so the common fields, is known at the entry alone. */
OF_NESTED_CALL(rdma_qp)

/* An object that was reported. */
struct resource {
	__u32 walk;
	__u32 type, id; /* another object may reuse the address */
	struct rdma_resource event;
};
SEEDED(rdma_resource, struct resource);

/*
 * On kernels without types of the module rdma_cm, nothing shows where in a CM_ID its restrack entry is, and so which device the CM_ID
 * has. There this map keeps the result of res_to_dev when the entry is made, and the device whose table the kernel walks.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* Go sets the number */
	__type(key, __u64);     /* struct rdma_restrack_entry * */
	__type(value, __u64);   /* struct ib_device * */
} rdma_device SEC(".maps");

struct device_call {
	__u64 entry;
	__u64 device;
};
CALLS(device_calls, device_call)

static __always_inline void keep_device(struct device_call call)
{
	struct device_call *kept = device_calls_begin(bpf_get_current_pid_tgid());

	if (kept)
		*kept = call;
}

static __always_inline int device_enter(void *ctx, __u64 entry, __u64 a1, __u64 a2)
{
	struct rdma_restrack_entry *res = (void *)entry;
	__u32 type = 0;

	if (GET(&type, res, type) && type == restrack_type__CM_ID)
		keep_device((struct device_call){ .entry = entry });
	return 0;
}

static __always_inline int device_leave(void *ctx, __s64 ret)
{
	struct device_call *call = device_calls_of(bpf_get_current_pid_tgid());
	__u64 device = ret;

	if (!call || !call->entry)
		return 0;
	bpf_map_update_elem(&rdma_device, &call->entry, &device, BPF_ANY);
	device_calls_end(call);
	return 0;
}
ON_CALL(rdma_device, res_to_dev, 1, device_enter, device_leave)

static __always_inline int walk_leave(void *ctx, __s64 ret)
{
	keep_device((struct device_call){ .device = ret });
	return 0;
}
ON_LEAVE(rdma_device, ib_device_get_by_index, 2, walk_leave)

static __always_inline struct ib_device *remembered_device(struct rdma_restrack_entry *res)
{
	__u64 entry = (__u64)res;
	__u64 *device = bpf_map_lookup_elem(&rdma_device, &entry);
	struct device_call *call;

	if (device)
		return (void *)*device;
	call = device_calls_of(bpf_get_current_pid_tgid());
	if (!call || !call->device)
		return 0;
	bpf_map_update_elem(&rdma_device, &entry, &call->device, BPF_ANY);
	return (void *)call->device;
}

/* The object that has this entry; NULL if this kernel does not describe it. */
#define OBJECT_OF(entry, type) \
	(bpf_core_field_exists(((type *)0)->res) ? (type *)((void *)(entry) - bpf_core_field_offset(type, res)) : 0)

#define DEVICE_OF(entry, type, member) \
	({ \
		type *object = OBJECT_OF(entry, type); \
		object ? GET_POINTER(object, member) : 0; \
	})

static __always_inline struct ib_device *device_of(struct rdma_restrack_entry *res)
{
	__u32 type = 0;

	if (!GET(&type, res, type))
		return 0;
	switch (type) {
	case restrack_type__PD:
		return DEVICE_OF(res, struct ib_pd___object, device);
	case restrack_type__CQ:
		return DEVICE_OF(res, struct ib_cq, device);
	case restrack_type__QP:
		return DEVICE_OF(res, struct ib_qp, device);
	case restrack_type__CM_ID:
		if (bpf_core_type_exists(struct rdma_id_private))
			return DEVICE_OF(res, struct rdma_id_private, id.device);
		return remembered_device(res);
	case restrack_type__MR:
		return DEVICE_OF(res, struct ib_mr, device);
	case restrack_type__CTX:
		return DEVICE_OF(res, struct ib_ucontext, device);
	case restrack_type__COUNTER:
		return DEVICE_OF(res, struct rdma_counter, device);
	case restrack_type__SRQ:
		return DEVICE_OF(res, struct ib_srq, device);
	case restrack_type__DMAH:
		return DEVICE_OF(res, struct ib_dmah, device);
	}
	return 0;
}

static __always_inline void capture_owner(struct rdma_resource *e, struct rdma_restrack_entry *res, enum stage stage)
{
	struct task_struct *task = GET_POINTER(res, task);
	const char *name = GET_POINTER(res, kern_name);

	if (WANT(rdma_resource, owner.pid, stage) && task)
		SET(&e->owner, pid, BPF_CORE_READ(task, tgid));
	if (WANT(rdma_resource, owner.comm, stage) && task) {
		READ_STRING(e->owner.comm, task->comm);
		e->owner.has.comm = 1;
	}
	if (WANT(rdma_resource, owner.kernel, stage) && !task && name && READ_STRING(e->owner.kernel, name) > 0)
		e->owner.has.kernel = 1;
}

/* How an event is known. */
enum source {
	CAUSED,  /* by the current task */
	BEFORE_, /* it was there before */
	LISTED,  /* the kernel's list has it, but no event reported it */
};

static __always_inline void rdma_resource_capture(struct rdma_resource *e, struct rdma_restrack_entry *res, __s32 delta, enum source source,
						  enum stage stage)
{
	if (!res) /* all of it was captured when the object came */
		return;
	CAPTURE_TIME(rdma_resource, e, stage);
	if (source == CAUSED)
		CAPTURE_CURRENT(rdma_resource, e, stage);
	else
		CAPTURE_TASK(rdma_resource, e, GET_POINTER(res, task), stage);
	if (WANT(rdma_resource, dev, stage)) {
		struct ib_device *device = device_of(res);

		if (device && bpf_core_field_exists(device->name) && READ_STRING(e->dev, device->name) > 0)
			e->has.dev = 1;
	}
	if (WANT(rdma_resource, type, stage) && GET(&e->type, res, type))
		e->has.type = 1;
	if (WANT(rdma_resource, id, stage) && GET(&e->id, res, id))
		e->has.id = 1;
	capture_owner(e, res, stage);
	if (WANT(rdma_resource, delta, stage))
		e->delta = delta;
	if (WANT(rdma_resource, seeded, stage))
		e->seeded = source == BEFORE_;
	if (WANT(rdma_resource, corrected, stage))
		e->corrected = source == LISTED;
}

/* Reports an object without remembering it. */
static __always_inline int tell(void *ctx, struct rdma_restrack_entry *res, __s32 delta, enum source source)
{
	struct rdma_resource e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	__builtin_memset(&e.owner.has, 0, sizeof(e.owner.has));
	EMIT(rdma_resource, ctx, &e, res, delta, source);
	return 0;
}

static __always_inline void count_told(__u32 type, __s32 delta)
{
	__sync_fetch_and_add(&rdma_resource_told[type & (CLASSES - 1)], delta);
}

/*
 * Reports that an object exists, once, and keeps it as known. The first to insert it reports it: the function that made it, or a walk
 * that meets it.
 */
static __always_inline int tell_known(void *ctx, struct rdma_restrack_entry *res, enum source source)
{
	__u64 key = (__u64)res;
	struct resource r;
	long err;

	__builtin_memset(&r, 0, sizeof(r));
	r.walk = rdma_resource_walk;
	GET(&r.type, res, type);
	GET(&r.id, res, id);
	rdma_resource_capture(&r.event, res, 1, source, BEFORE);
	rdma_resource_capture(&r.event, res, 1, source, AFTER);
	err = (__s32)bpf_map_update_elem(&rdma_resource_known, &key, &r, BPF_NOEXIST);
	if (err == -EEXIST)
		return 0;
	if (err)
		rdma_resource_full = 1; /* it is still reported */
	else
		count_told(r.type, 1);
	if (source == LISTED)
		__sync_fetch_and_add(&rdma_resource_corrected, 1);
	EMIT(rdma_resource, ctx, &r.event, 0, 0, 0);
	return 0;
}

/* Reports that a known object is gone if no event has reported that. */
static __always_inline int tell_lost(void *ctx, __u64 key)
{
	struct resource *known = bpf_map_lookup_elem(&rdma_resource_known, &key), r;

	if (!known)
		return 0;
	__builtin_memcpy(&r, known, sizeof(r));
	if (bpf_map_delete_elem(&rdma_resource_known, &key))
		return 0; /* another program reports it */
	count_told(r.type, -1);
	__sync_fetch_and_add(&rdma_resource_corrected, 1);
	r.event.nsecs = bpf_ktime_get_boot_ns();
	r.event.cpu = bpf_get_smp_processor_id();
	r.event.delta = -1;
	r.event.seeded = false;
	r.event.corrected = true;
	EMIT(rdma_resource, ctx, &r.event, 0, 0, 0);
	return 0;
}

/* Entries that are kept out of the table pass these functions, too. */
static __always_inline bool untracked(struct rdma_restrack_entry *res)
{
	bool no_track = false;

	return GET(&no_track, res, no_track) && no_track;
}

static __always_inline bool tracked(struct rdma_restrack_entry *res)
{
	bool valid = true;

	GET(&valid, res, valid);
	return valid && !untracked(res);
}

/* An object appears. */

struct resource_call {
	struct rdma_restrack_entry *res;
};
CALLS(resource_calls, resource_call)

static __always_inline int add_enter(void *ctx, __u64 entry, __u64 a1, __u64 a2)
{
	struct resource_call call = { .res = (void *)entry };

	if (rdma_resource_seeding == ATTACHING)
		return 0;
	BEGIN_CALL(rdma_resource, resource_calls, &call);
	/* The object that was known at this address is gone: its event was skipped. */
	return tell_lost(ctx, entry);
}

static __always_inline int add_leave(void *ctx, __s64 ret)
{
	struct resource_call *call = resource_calls_of(bpf_get_current_pid_tgid());
	struct rdma_restrack_entry *res;

	if (!call) {
		if (rdma_resource_seeding > SEEDING)
			rdma_resource_count(UNSEEN);
		return 0;
	}
	res = call->res;
	resource_calls_end(call);
	return tracked(res) ? tell_known(ctx, res, CAUSED) : 0;
}
ON_CALL(rdma_resource, rdma_restrack_add, 1, add_enter, add_leave)

static __always_inline int abort_enter(void *ctx, __u64 entry, __u64 a1, __u64 a2)
{
	struct rdma_restrack_entry *res = (void *)entry;

	if (rdma_resource_seeding == ATTACHING || !tracked(res))
		return 0;
	return tell_known(ctx, res, CAUSED);
}
ON_ENTER(rdma_resource, rdma_restrack_abort_del, 1, abort_enter)

/* An object goes. */

static __always_inline void forget(void *ctx, struct rdma_restrack_entry *res)
{
	__u64 key = (__u64)res;
	__u32 type = 0;

	if (!bpf_map_delete_elem(&rdma_resource_known, &key)) {
		GET(&type, res, type);
		count_told(type, -1);
		return;
	}
	if (rdma_resource_full)
		return; /* it may have been reported */
	/* It was there before, or the kernel does not list objects like it, or its own event was skipped. */
	if (rdma_resource_seeding == SEEDING || rdma_resource_partial) {
		tell(ctx, res, 1, BEFORE_);
		return;
	}
	__sync_fetch_and_add(&rdma_resource_corrected, 1);
	tell(ctx, res, 1, LISTED);
}

static __always_inline int del_enter(void *ctx, __u64 entry, __u64 a1, __u64 a2)
{
	struct rdma_restrack_entry *res = (void *)entry;
	__u32 went = WENT | rdma_resource_walk;

	if (rdma_resource_seeding == ATTACHING || !tracked(res))
		return 0;
	if (rdma_resource_seeding != WATCHING) {
		/* A walk can meet it until the function returns. */
		bpf_map_update_elem(&rdma_resource_met, &entry, &went, BPF_ANY);
		__sync_fetch_and_add(&rdma_resource_gone, 1);
	}
	forget(ctx, res);
	return tell(ctx, res, -1, CAUSED);
}
ON_ENTER(rdma_resource, rdma_restrack_del, 1, del_enter)
ON_ENTER(rdma_resource, rdma_restrack_begin_del, 1, del_enter)

/*
 * An object exists. Two consecutive walks must meet an unknown object before it is reported: in one walk it may just be appearing or
 * going.
 */

static __always_inline int meet(void *ctx, struct rdma_restrack_entry *res)
{
	__u64 key = (__u64)res;
	struct resource *known;
	__u32 type = 0, id = 0, walk = rdma_resource_walk, *met;

	if (untracked(res))
		return 0;
	known = bpf_map_lookup_elem(&rdma_resource_known, &key);
	if (known) {
		GET(&type, res, type);
		GET(&id, res, id);
		if (known->type != type || known->id != id)
			return tell_lost(ctx, key);
		known->walk = walk;
		return 0;
	}
	met = bpf_map_lookup_elem(&rdma_resource_met, &key);
	if (met && *met & WENT && (*met & ~WENT) + 1 >= walk)
		return 0;
	if (rdma_resource_seeding == SEEDING)
		return tell_known(ctx, res, BEFORE_);
	if (met && *met + 1 == walk)
		return tell_known(ctx, res, LISTED);
	__sync_fetch_and_add(&rdma_resource_unsure, 1);
	bpf_map_update_elem(&rdma_resource_met, &key, &walk, BPF_ANY);
	return 0;
}

static __always_inline int visit_enter(void *ctx, __u64 entry, __u64 a1, __u64 a2)
{
	struct rdma_restrack_entry *res = (void *)entry;
	struct ib_uobject *uobject;
	struct ib_ucontext *context;
	struct ib_pd___object *pd;
	__u32 type = 0;

	if (rdma_resource_seeding != SEEDING && rdma_resource_seeding != CHECKING)
		return 0;
	meet(ctx, res);
	/* A kernel that does not list contexts, like 5.10, lists their protection domains. A PD in the table keeps its context. */
	if (!GET(&type, res, type) || type != restrack_type__PD)
		return 0;
	pd = OBJECT_OF(res, struct ib_pd___object);
	uobject = pd ? GET_POINTER(pd, uobject) : 0;
	context = uobject ? GET_POINTER(uobject, context) : 0;
	if (context && bpf_core_field_exists(context->res))
		meet(ctx, (void *)context + bpf_core_field_offset(struct ib_ucontext, res));
	return 0;
}
ON_ENTER(rdma_visit, rdma_restrack_get, 1, visit_enter)
/* Hides an entry for a moment; meanwhile the kernel's walk may skip it. */
ON_ENTER(rdma_visit, rdma_restrack_sync, 1, visit_enter)

/* Go runs this with the address of an object that two walks have not met. */
SEC("raw_tp")
int raw_tp_rdma_lost(__u64 *ctx)
{
	return tell_lost(ctx, ctx[0]);
}

/*
 * The attributes of a QP. At the start Go lists all QPs by netlink, for which the kernel asks the driver (fill_res_qp_entry, nldev.c).
 */

struct query_call {
	struct ib_qp *qp;
	struct ib_qp_attr *attr;
	bool seeded;
};
CALLS(query_calls, query_call)

/* The process that asks for the QPs that are there, which is trace: its tgid. */
volatile __u32 rdma_qp_asker SEC(".data");

/* Go runs this with 1 before it asks, and with 0 after it. */
SEC("raw_tp")
int raw_tp_rdma_qp_ask(__u64 *ctx)
{
	rdma_qp_asker = ctx[0] ? bpf_get_current_pid_tgid() >> 32 : 0;
	return 0;
}

/* The QPs that were there: a list may meet one twice. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* Go sets the number */
	__type(key, __u64);     /* struct ib_qp * */
	__type(value, __u8);
} rdma_qp_met SEC(".maps");

static __always_inline int query_enter(void *ctx, __u64 qp, __u64 attr, __u64 mask)
{
	struct query_call call = { .qp = (void *)qp, .attr = (void *)attr };

	call.seeded = rdma_qp_asker == bpf_get_current_pid_tgid() >> 32;
	BEGIN_CALL(rdma_qp, query_calls, &call);
	return 0;
}

/* Drivers set all attributes, whatever the caller asks for. These have been set by the program: of a QP that is connected, and can send. */
static __always_inline __u32 attributes_of(struct ib_qp *qp, struct ib_qp_attr *attr)
{
	__u32 mask = IB_QP_STATE, type = 0, state = 0, mtu = 0;

	GET(&state, attr, qp_state);
	GET(&type, qp, qp_type);
	/* A QP that failed before it was connected has no path. */
	if (!GET(&mtu, attr, path_mtu) || !mtu || state < ib_qp_state__RTR)
		return mask;
	if (type == ib_qp_type__RC || type == ib_qp_type__UC || type == ib_qp_type__XRC_INI || type == ib_qp_type__XRC_TGT)
		mask |= IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MIN_RNR_TIMER;
	if (state > ib_qp_state__RTR && (type == ib_qp_type__RC || type == ib_qp_type__XRC_INI))
		mask |= IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN;
	return mask;
}

static __always_inline void rdma_qp_capture(struct rdma_qp *e, struct query_call *call, __s64 ret, enum stage stage)
{
	__u32 mask;

	CAPTURE_TIME(rdma_qp, e, stage);
	if (WANT(rdma_qp, ret, stage))
		e->ret = ret;
	if (WANT(rdma_qp, seeded, stage))
		e->seeded = call->seeded;
	if (call->seeded)
		CAPTURE_TASK(rdma_qp, e, GET_POINTER(call->qp, res.task), stage);
	else
		CAPTURE_CURRENT(rdma_qp, e, stage);
	CAPTURE_QP(rdma_qp, e, call->qp, stage);
	if (ret)
		return;
	mask = attributes_of(call->qp, call->attr);
	CAPTURE_ATTRS(rdma_qp, e, call->attr, mask, stage);
	CAPTURE_LOCAL_ADDRESS(rdma_qp, e, address_in_use(IF_SET(call->qp, mask & IB_QP_AV)), stage);
}

static __always_inline int query_leave(void *ctx, __s64 ret)
{
	struct query_call *call = query_calls_of(bpf_get_current_pid_tgid());
	struct rdma_qp e;
	__u8 once = 1;

	if (rdma_qp_unseen(call))
		return 0;
	if (!call->seeded || (int)bpf_map_update_elem(&rdma_qp_met, &call->qp, &once, BPF_NOEXIST) != -EEXIST) {
		CLEAR_UNKNOWN(&e);
		EMIT(rdma_qp, ctx, &e, call, (__s32)ret);
	}
	query_calls_end(call);
	return 0;
}
ON_CALL(rdma_qp, ib_query_qp, 4, query_enter, query_leave)
