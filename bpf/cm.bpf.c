//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections of the RDMA connection manager: the tracepoints of rdma_cm (drivers/infiniband/core/cma_trace.h). Each has two
 * variants:
 *
 *     raw_tp      the arguments are the manager's own structs, which only the module's BTF describes;
 *     tracepoint  the event that the kernel formats for ftrace; tracefs describes its members. It needs no BTF. The kernel
 *                 formats each event, and skips the program while another of its kind, or a kprobe, runs on that CPU (trace_call_bpf).
 *
 * Go makes the types tracefs_X from the format files in tracefs.
 */
#include "trace.h"

/* enum rdma_cm_event_type, include/rdma/rdma_cm.h; those after TIMEWAIT_EXIT are new in 6.17. */
enum rdma_cm_event_type {
	rdma_cm_event_type__ADDR_RESOLVED,
	rdma_cm_event_type__ADDR_ERROR,
	rdma_cm_event_type__ROUTE_RESOLVED,
	rdma_cm_event_type__ROUTE_ERROR,
	rdma_cm_event_type__CONNECT_REQUEST,
	rdma_cm_event_type__CONNECT_RESPONSE,
	rdma_cm_event_type__CONNECT_ERROR,
	rdma_cm_event_type__UNREACHABLE,
	rdma_cm_event_type__REJECTED,
	rdma_cm_event_type__ESTABLISHED,
	rdma_cm_event_type__DISCONNECTED,
	rdma_cm_event_type__DEVICE_REMOVAL,
	rdma_cm_event_type__MULTICAST_JOIN,
	rdma_cm_event_type__MULTICAST_ERROR,
	rdma_cm_event_type__ADDR_CHANGE,
	rdma_cm_event_type__TIMEWAIT_EXIT,
	rdma_cm_event_type__ADDRINFO_RESOLVED,
	rdma_cm_event_type__ADDRINFO_ERROR,
	rdma_cm_event_type__USER,
	rdma_cm_event_type__INTERNAL,
};

/* enum ib_cm_event_type, include/rdma/ib_cm.h. */
enum ib_cm_event_type {
	ib_cm_event_type__REQ_ERROR,
	ib_cm_event_type__REQ_RECEIVED,
	ib_cm_event_type__REP_ERROR,
	ib_cm_event_type__REP_RECEIVED,
	ib_cm_event_type__RTU_RECEIVED,
	ib_cm_event_type__USER_ESTABLISHED,
	ib_cm_event_type__DREQ_ERROR,
	ib_cm_event_type__DREQ_RECEIVED,
	ib_cm_event_type__DREP_RECEIVED,
	ib_cm_event_type__TIMEWAIT_EXIT,
	ib_cm_event_type__MRA_RECEIVED,
	ib_cm_event_type__REJ_RECEIVED,
	ib_cm_event_type__LAP_ERROR,
	ib_cm_event_type__LAP_RECEIVED,
	ib_cm_event_type__APR_RECEIVED,
	ib_cm_event_type__SIDR_REQ_ERROR,
	ib_cm_event_type__SIDR_REQ_RECEIVED,
	ib_cm_event_type__SIDR_REP_RECEIVED,
};

/* enum ib_cm_rej_reason, include/rdma/ib_cm.h: IBTA spec, table "REJ message reason". */
enum ib_cm_rej_reason {
	ib_cm_rej_reason__NO_QP = 1,
	ib_cm_rej_reason__NO_EEC,
	ib_cm_rej_reason__NO_RESOURCES,
	ib_cm_rej_reason__TIMEOUT,
	ib_cm_rej_reason__UNSUPPORTED,
	ib_cm_rej_reason__INVALID_COMM_ID,
	ib_cm_rej_reason__INVALID_COMM_INSTANCE,
	ib_cm_rej_reason__INVALID_SERVICE_ID,
	ib_cm_rej_reason__INVALID_TRANSPORT_TYPE,
	ib_cm_rej_reason__STALE_CONN,
	ib_cm_rej_reason__RDC_NOT_EXIST,
	ib_cm_rej_reason__INVALID_GID,
	ib_cm_rej_reason__INVALID_LID,
	ib_cm_rej_reason__INVALID_SL,
	ib_cm_rej_reason__INVALID_TRAFFIC_CLASS,
	ib_cm_rej_reason__INVALID_HOP_LIMIT,
	ib_cm_rej_reason__INVALID_PACKET_RATE,
	ib_cm_rej_reason__INVALID_ALT_GID,
	ib_cm_rej_reason__INVALID_ALT_LID,
	ib_cm_rej_reason__INVALID_ALT_SL,
	ib_cm_rej_reason__INVALID_ALT_TRAFFIC_CLASS,
	ib_cm_rej_reason__INVALID_ALT_HOP_LIMIT,
	ib_cm_rej_reason__INVALID_ALT_PACKET_RATE,
	ib_cm_rej_reason__PORT_CM_REDIRECT,
	ib_cm_rej_reason__PORT_REDIRECT,
	ib_cm_rej_reason__INVALID_MTU,
	ib_cm_rej_reason__INSUFFICIENT_RESP_RESOURCES,
	ib_cm_rej_reason__CONSUMER_DEFINED,
	ib_cm_rej_reason__INVALID_RNR_RETRY,
	ib_cm_rej_reason__DUPLICATE_LOCAL_COMM_ID,
	ib_cm_rej_reason__INVALID_CLASS_VERSION,
	ib_cm_rej_reason__INVALID_FLOW_LABEL,
	ib_cm_rej_reason__INVALID_ALT_FLOW_LABEL,
	ib_cm_rej_reason__VENDOR_OPTION_NOT_SUPPORTED = 35,
};

/* enum ib_qp_type, include/rdma/ib_verbs.h. */
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

/* AF_INET, AF_INET6 and AF_IB of include/linux/socket.h. */
enum cm_family {
	cm_family__INET = 2,
	cm_family__INET6 = 10,
	cm_family__IB = 27,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct __kernel_sockaddr_storage {
	char any;
};
struct rdma_addr {
	struct __kernel_sockaddr_storage src_addr;
	struct __kernel_sockaddr_storage dst_addr;
};
struct rdma_route {
	struct rdma_addr addr;
};
struct rdma_cm_id {
	struct rdma_route route;
	enum ib_qp_type qp_type;
};
struct rdma_restrack_entry {
	__u32 id;
};
struct rdma_id_private {
	struct rdma_cm_id id;
	__u32 qp_num;
	__u8 tos;
	struct rdma_restrack_entry res;
};
struct rdma_cm_event {
	enum rdma_cm_event_type event;
	__s32 status;
};
struct ib_device {
	char name[64];
};
struct ib_pd {
	struct rdma_restrack_entry res;
};
struct ib_qp_cap {
	__u32 max_send_wr;
	__u32 max_recv_wr;
};
struct ib_qp_init_attr {
	struct ib_qp_cap cap;
};
#pragma clang attribute pop

/* The address of a member, NULL if this kernel does not describe it. */
#define PLACE(p, member) \
	({ \
		typeof(p) base = (p); \
		bpf_core_field_exists(base->member) ? (const void *)&base->member : 0; \
	})

/* The fields of an event's rdma_cm_id. src is this id's local address, where the kernel has one. */
#define CM_FIELDS() \
	__u32 cm_id DOC("number of the rdma_cm_id, cm-idn in `rdma res show cm_id`"); \
	enum cm_family family USUAL(INET) DOC("family of the addresses; absent until one is known"); \
	ip_t16 src DOC("address on this side; absent until it is bound"); \
	__u16 sport DOC("port on this side; absent for the family IB, which has none"); \
	ip_t16 dst DOC("address on the other side; absent until it is known, 0.0.0.0 for an id that listens"); \
	__u16 dport DOC("port on the other side, likewise")

#define CM_BITS() \
	__u32 cm_id : 1; \
	__u32 family : 1; \
	__u32 src : 1; \
	__u32 sport : 1; \
	__u32 dst : 1; \
	__u32 dport : 1

#define CM_TOS() __u32 tos DETAIL DOC("type of service that the id asks for")

static __always_inline __u16 family_of(const void *sockaddr)
{
	__u16 family = 0;

	bpf_probe_read_kernel(&family, sizeof(family), sockaddr);
	return family;
}

/*
 * The address in a struct sockaddr_in, sockaddr_in6 or sockaddr_ib; IPv4 as ::ffff:a.b.c.d. The latter two have it at the same place.
 */
static __always_inline bool read_address(__u8 *address, const void *sockaddr)
{
	__u32 *words = (__u32 *)address;

	switch (family_of(sockaddr)) {
	case cm_family__INET:
		words[0] = words[1] = 0;
		words[2] = __builtin_bswap32(0xffff);
		return !bpf_probe_read_kernel(&words[3], 4, sockaddr + 4);
	case cm_family__INET6:
	case cm_family__IB:
		return !bpf_probe_read_kernel(address, 16, sockaddr + 8);
	}
	return false;
}

static __always_inline bool read_port(__u16 *port, const void *sockaddr)
{
	__u16 family = family_of(sockaddr);

	if ((family != cm_family__INET && family != cm_family__INET6) || bpf_probe_read_kernel(port, sizeof(*port), sockaddr + 2))
		return false;
	*port = __builtin_bswap16(*port);
	return true;
}

/* The addresses of an id. The kernel may set the remote one before the local one, or the other way round. */
#define CAPTURE_ADDRESSES(X, e, from, to, stage) \
	do { \
		const void *source = (from), *destination = (to); \
		if (source && WANT(X, src, stage) && read_address((e)->src, source)) \
			(e)->has.src = 1; \
		if (source && WANT(X, sport, stage) && read_port(&(e)->sport, source)) \
			(e)->has.sport = 1; \
		if (destination && WANT(X, dst, stage) && read_address((e)->dst, destination)) \
			(e)->has.dst = 1; \
		if (destination && WANT(X, dport, stage) && read_port(&(e)->dport, destination)) \
			(e)->has.dport = 1; \
		if (source && destination && WANT(X, family, stage)) { \
			__u16 family = family_of(source); \
			if (!family) \
				family = family_of(destination); \
			if (family) \
				SET(e, family, family); \
		} \
	} while (0)

/* Captures a field from the ftrace event, or from an argument; in functions with a constant called formatted. */
#define CAPTURE(X, e, field, raw, member, object, own, stage) \
	do { \
		if (WANT(X, field, stage) && (formatted ? GET(&(e)->field, raw, member) : GET(&(e)->field, object, own))) \
			(e)->has.field = 1; \
	} while (0)

#define CAPTURE_ID(X, e, raw, id, stage) \
	do { \
		CAPTURE_COMMON(X, e, stage); \
		CAPTURE(X, e, cm_id, raw, cm_id, id, res.id, stage); \
		if (formatted) \
			CAPTURE_ADDRESSES(X, e, PLACE(raw, srcaddr), PLACE(raw, dstaddr), stage); \
		else \
			CAPTURE_ADDRESSES(X, e, PLACE(id, id.route.addr.src_addr), PLACE(id, id.route.addr.dst_addr), stage); \
	} while (0)

#define CAPTURE_TOS(X, e, raw, id, stage) CAPTURE(X, e, tos, raw, tos, id, tos, stage)

/*
 * The programs of an event, and the capture for both. formatted is a constant: whether there is an ftrace event, or the id and the
 * arguments of the tracepoint.
 */
#define CM_PROGRAMS(X) \
	SEC("raw_tp/" #X) \
	int raw_tp_##X(__u64 *ctx) \
	{ \
		struct X e; \
		__builtin_memset(&e.has, 0, sizeof(e.has)); \
		EMIT(X, ctx, &e, false, 0, (void *)ctx[0], ctx); \
		return 0; \
	} \
	SEC("tracepoint/rdma_cma/" #X) \
	int tracepoint_##X(struct tracefs_##X *ctx) \
	{ \
		struct X e; \
		__builtin_memset(&e.has, 0, sizeof(e.has)); \
		EMIT(X, ctx, &e, true, ctx, 0, 0); \
		return 0; \
	}

#define CM_CAPTURE(X) \
	static __always_inline void X##_capture(struct X *e, bool formatted, struct tracefs_##X *raw, struct rdma_id_private *id, \
						__u64 *args, enum stage stage)

/* An event with no fields except its id's (class cma_fsm_class). */
#define CM_STEP(X, doc) \
	struct tracefs_##X { \
		__u32 cm_id; \
		__u32 tos; \
		__u8 srcaddr[28]; \
		__u8 dstaddr[28]; \
	} FTRACE_EVENT; \
	struct X { \
		COMMON(); \
		CM_FIELDS(); \
		CM_TOS(); \
		struct { \
			HAS_PAD; \
			CM_BITS(); \
			__u32 tos : 1; \
		} has HAS_ALIGN; \
	} DOC(doc); \
	EVENT(X) \
	CM_CAPTURE(X) \
	{ \
		CAPTURE_ID(X, e, raw, id, stage); \
		CAPTURE_TOS(X, e, raw, id, stage); \
	} \
	CM_PROGRAMS(X)

/* One that also has a QP (class cma_qp_class). */
#define CM_QP_STEP(X, qp_meaning, doc) \
	struct tracefs_##X { \
		__u32 cm_id; \
		__u32 tos; \
		__u32 qp_num; \
		__u8 srcaddr[28]; \
		__u8 dstaddr[28]; \
	} FTRACE_EVENT; \
	struct X { \
		COMMON(); \
		CM_FIELDS(); \
		CM_TOS(); \
		__u32 qp_num DOC(qp_meaning); \
		struct { \
			HAS_PAD; \
			CM_BITS(); \
			__u32 tos : 1; \
			__u32 qp_num : 1; \
		} has HAS_ALIGN; \
	} DOC(doc); \
	EVENT(X) \
	CM_CAPTURE(X) \
	{ \
		CAPTURE_ID(X, e, raw, id, stage); \
		CAPTURE_TOS(X, e, raw, id, stage); \
		CAPTURE(X, e, qp_num, raw, qp_num, id, qp_num, stage); \
	} \
	CM_PROGRAMS(X)

#define QP_NUM "number of the local QP; from a user program, the one it gave to the connection manager"

CM_QP_STEP(cm_send_req, QP_NUM, "a connection request is sent (REQ)")
CM_QP_STEP(cm_send_rep, QP_NUM, "a request is accepted (REP)")
CM_STEP(cm_send_rtu, "the side that asked is ready to use the connection (RTU)")
CM_STEP(cm_send_rej, "a request or reply is rejected (REJ)")
CM_STEP(cm_send_mra, "a message is acknowledged because its answer takes time (MRA; tracepoint cm_send_mra or cm_prepare_mra); comm is a kworker")
CM_STEP(cm_send_sidr_req, "a datagram service is looked up (SIDR REQ)")
CM_STEP(cm_send_sidr_rep, "the look-up of a datagram service is answered (SIDR REP)")
CM_STEP(cm_disconnect, "one side asks to disconnect, or answers such a request")
CM_STEP(cm_sent_dreq, "a request to disconnect was sent (DREQ)")
CM_STEP(cm_sent_drep, "a request to disconnect was answered (DREP)")
CM_STEP(cm_id_destroy, "an rdma_cm_id is destroyed")
CM_QP_STEP(cm_qp_destroy, "number of the QP", "a kernel module's QP (rdma_create_qp) is destroyed; for QPs of user programs see ib:destroy_qp")

/* The id gets its device. */

struct tracefs_cm_id_attach {
	__u32 cm_id;
	__u8 srcaddr[28];
	__u8 dstaddr[28];
	__u32 devname; /* __data_loc: its offset in the event, in the low 16 bits */
} FTRACE_EVENT;

struct cm_id_attach {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	CM_FIELDS();
	struct {
		HAS_PAD;
		CM_BITS();
		__u32 dev : 1;
	} has HAS_ALIGN;
} DOC("an rdma_cm_id gets its device");
EVENT(cm_id_attach)

CM_CAPTURE(cm_id_attach)
{
	__u32 where = 0;

	CAPTURE_ID(cm_id_attach, e, raw, id, stage);
	if (!WANT(cm_id_attach, dev, stage))
		return;
	if (formatted) {
		if (GET(&where, raw, devname) && READ_STRING(e->dev, (void *)raw + (where & 0xffff)) > 0)
			e->has.dev = 1;
	} else {
		const void *name = PLACE((struct ib_device *)args[1], name);

		if (name && READ_STRING(e->dev, name) > 0)
			e->has.dev = 1;
	}
}
CM_PROGRAMS(cm_id_attach)

/* QPs of kernel modules. */

struct tracefs_cm_qp_create {
	__u32 cm_id;
	__u32 pd_id;
	__u32 tos;
	__u32 qp_num;
	__u32 send_wr;
	__u32 recv_wr;
	__s32 rc;
	__u64 qp_type;
	__u8 srcaddr[28];
	__u8 dstaddr[28];
} FTRACE_EVENT;

struct cm_qp_create {
	COMMON();
	CM_FIELDS();
	CM_TOS();
	errno_t ret DOC("result: -errno on failure");
	__u32 pd VERBOSE DOC("number of the PD, pdn in `rdma res show pd`");
	__u32 qp_num DOC("number of the new QP; absent if there is no QP");
	enum ib_qp_type qp_type DOC("transport service; absent if there is no QP");
	__u32 send_wr DOC("work requests that the caller asks for in the send queue");
	__u32 recv_wr DOC("work requests that the caller asks for in the receive queue");
	struct {
		HAS_PAD;
		CM_BITS();
		__u32 tos : 1;
		__u32 ret : 1;
		__u32 pd : 1;
		__u32 qp_num : 1;
		__u32 qp_type : 1;
		__u32 send_wr : 1;
		__u32 recv_wr : 1;
	} has HAS_ALIGN;
} DOC("a kernel module creates a QP (rdma_create_qp), or fails to; for QPs of user programs see ib:create_qp");
EVENT(cm_qp_create)

CM_CAPTURE(cm_qp_create)
{
	struct ib_pd *pd = formatted ? 0 : (void *)args[1];
	struct ib_qp_init_attr *attr = formatted ? 0 : (void *)args[2];
	__s32 rc = 0;

	CAPTURE_ID(cm_qp_create, e, raw, id, stage);
	CAPTURE_TOS(cm_qp_create, e, raw, id, stage);
	CAPTURE(cm_qp_create, e, pd, raw, pd_id, pd, res.id, stage);
	CAPTURE(cm_qp_create, e, send_wr, raw, send_wr, attr, cap.max_send_wr, stage);
	CAPTURE(cm_qp_create, e, recv_wr, raw, recv_wr, attr, cap.max_recv_wr, stage);
	if (!formatted)
		rc = (__s32)args[3];
	else if (!GET(&rc, raw, rc))
		return;
	if (WANT(cm_qp_create, ret, stage))
		SET(e, ret, rc);
	if (rc)
		return;
	CAPTURE(cm_qp_create, e, qp_num, raw, qp_num, id, qp_num, stage);
	CAPTURE(cm_qp_create, e, qp_type, raw, qp_type, id, id.qp_type, stage);
}
CM_PROGRAMS(cm_qp_create)

/* What the manager receives from the layer below, and what it hands to the owner. */

struct tracefs_cm_req_handler {
	__u32 cm_id;
	__u32 tos;
	__u64 event;
	__u8 srcaddr[28];
	__u8 dstaddr[28];
} FTRACE_EVENT;

struct cm_req_handler {
	COMMON();
	CM_FIELDS();
	CM_TOS();
	enum ib_cm_event_type event DOC("event of the InfiniBand connection manager");
	struct {
		HAS_PAD;
		CM_BITS();
		__u32 tos : 1;
		__u32 event : 1;
	} has HAS_ALIGN;
} DOC("a request reaches an id that listens; cm_id is that id, comm is usually a kworker");
EVENT(cm_req_handler)

CM_CAPTURE(cm_req_handler)
{
	CAPTURE_ID(cm_req_handler, e, raw, id, stage);
	CAPTURE_TOS(cm_req_handler, e, raw, id, stage);
	if (!WANT(cm_req_handler, event, stage))
		return;
	if (!formatted)
		SET(e, event, (__u32)args[1]);
	else if (GET(&e->event, raw, event))
		e->has.event = 1;
}
CM_PROGRAMS(cm_req_handler)

struct tracefs_cm_event_handler {
	__u32 cm_id;
	__u32 tos;
	__u64 event;
	__s32 status;
	__u8 srcaddr[28];
	__u8 dstaddr[28];
} FTRACE_EVENT;

struct cm_event_handler {
	COMMON();
	CM_FIELDS();
	CM_TOS();
	enum rdma_cm_event_type event DOC("what happened");
	errno_t status DOC("0, or why: -errno, or the number of the reason for REJECTED");
	enum ib_cm_rej_reason reason DOC("reason of the other side for REJECTED, on InfiniBand and RoCE; absent for other events");
	struct {
		HAS_PAD;
		CM_BITS();
		__u32 tos : 1;
		__u32 event : 1;
		__u32 status : 1;
		__u32 reason : 1;
	} has HAS_ALIGN;
} DOC("an event is handed to the owner of an rdma_cm_id; comm is usually a kworker");
EVENT(cm_event_handler)

CM_CAPTURE(cm_event_handler)
{
	struct rdma_cm_event *event = formatted ? 0 : (void *)args[1];
	__u32 type = 0;
	__s32 status = 0;

	CAPTURE_ID(cm_event_handler, e, raw, id, stage);
	CAPTURE_TOS(cm_event_handler, e, raw, id, stage);
	CAPTURE(cm_event_handler, e, event, raw, event, event, event, stage);
	CAPTURE(cm_event_handler, e, status, raw, status, event, status, stage);
	if (!WANT(cm_event_handler, reason, stage))
		return;
	if (!(formatted ? GET(&type, raw, event) : GET(&type, event, event)) || type != rdma_cm_event_type__REJECTED)
		return;
	/* iWARP has an errno in its place. */
	if ((formatted ? GET(&status, raw, status) : GET(&status, event, status)) && status > 0)
		SET(e, reason, status);
}
CM_PROGRAMS(cm_event_handler)

struct tracefs_cm_event_done {
	__u32 cm_id;
	__u32 tos;
	__u64 event;
	__s32 result;
	__u8 srcaddr[28];
	__u8 dstaddr[28];
} FTRACE_EVENT;

struct cm_event_done {
	COMMON();
	CM_FIELDS();
	CM_TOS();
	enum rdma_cm_event_type event DOC("what was handed to the owner");
	errno_t ret DOC("what the owner returned: if it is not 0, the id is destroyed");
	struct {
		HAS_PAD;
		CM_BITS();
		__u32 tos : 1;
		__u32 event : 1;
		__u32 ret : 1;
	} has HAS_ALIGN;
} DOC("the owner of an rdma_cm_id has dealt with an event; comm is usually a kworker");
EVENT(cm_event_done)

CM_CAPTURE(cm_event_done)
{
	struct rdma_cm_event *event = formatted ? 0 : (void *)args[1];

	CAPTURE_ID(cm_event_done, e, raw, id, stage);
	CAPTURE_TOS(cm_event_done, e, raw, id, stage);
	CAPTURE(cm_event_done, e, event, raw, event, event, event, stage);
	if (!WANT(cm_event_done, ret, stage))
		return;
	if (!formatted)
		SET(e, ret, (__s32)args[2]);
	else if (GET(&e->ret, raw, result))
		e->has.ret = 1;
}
CM_PROGRAMS(cm_event_done)
