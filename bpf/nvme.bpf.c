//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NVMe host commands: the raw tracepoints of nvme_core (drivers/nvme/host/trace.h).
 *
 * A command is known by its struct request, never by queue and command id: kernel 5.10 records the id with the generation counter
 * at submission and without it at completion, and an id is reused at once.
 */
#include "trace.h"
#include "nvme_names.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct gendisk {
	char disk_name[32];
};
struct request_queue {
	void *queuedata;
	struct gendisk *disk; /* absent in 5.10, where the request has rq_disk */
};
struct blk_mq_hw_ctx {
	unsigned int queue_num;
};
struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	unsigned int __data_len;
};
struct request___rq_disk {
	struct gendisk *rq_disk;
};
struct kobject {
	const char *name;
};
struct device {
	struct kobject kobj;
};
union nvme_result {
	__u64 u64;
};
struct nvme_ctrl {
	int instance;
	struct device *device;
};
struct nvme_request {
	struct nvme_command *cmd;
	union nvme_result result;
	__u8 retries;
	__u8 flags;
	__u16 status;
	struct nvme_ctrl *ctrl;
};
#pragma clang attribute pop

/* The submission queue entry: NVM Express Base Specification 2.0, "Common Command Format". */
struct sqe {
	__u8 opcode;
	__u8 flags;
	__u16 cid;
	__u32 nsid; /* of a fabrics command the low byte is its type */
	__u32 cdw2[8];
	__u32 cdw10[6];
};

/* What the ends of a command tell of its beginning. */
struct inflight {
	__u64 started; /* ns, CLOCK_MONOTONIC */
	__u64 cqe;     /* when the completion queue entry was seen, or 0 */
	__u64 bytes;
	__u64 cgroup;
	__u32 pid, tid, uid;
	char comm[16];
	struct sqe sqe;
};

/* By request. Go sets the size from the queues of the controllers: there is one request per tag. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct inflight);
} nvme_inflight SEC(".maps");

/*
 * Which command an event is about. What comes from the submission queue entry is absent from a completion whose submission was
 * not seen; what comes from the driver's own structs is absent where this kernel does not describe them (see below).
 */
#define COMMAND_FIELDS(submission) \
	char ctrl[16] NEEDS(nvme_learn) DOC("controller, like nvme0"); \
	__s32 ctrl_id NEEDS(nvme_learn) DOC("number of the controller"); \
	char disk[32] DOC("disk, like nvme0n1; absent for admin commands"); \
	__u32 qid DOC("queue; 0 is the admin queue"); \
	__u16 cid submission DOC("command id; where the kernel guards against reuse its upper 4 bits count the uses of the slot"); \
	enum nvme_opcode opcode submission DOC("what the command does: admin, I/O and fabrics commands in one namespace"); \
	hex8_t raw_opcode submission DOC("opcode byte, whose meaning depends on the queue"); \
	__u32 nsid submission DOC("namespace id; 0 where a command is for no namespace; absent for fabrics commands"); \
	hex8_t fctype submission DOC("type of a fabrics command; absent for others"); \
	hex8_t flags submission DOC("flags byte of the submission queue entry: FUSE and PSDT"); \
	__u64 slba submission DOC("first logical block, of commands that have one (read, write, compare, ...)"); \
	__u32 nlb submission DOC("number of logical blocks: the 16-bit field of such a command, plus one"); \
	bytes_t bytes submission DOC("data of the request as the block layer counts it"); \
	hex32_t cdw10 submission DOC("command dword 10"); \
	hex32_t cdw11 submission DOC("command dword 11"); \
	hex32_t cdw12 submission DOC("command dword 12"); \
	hex32_t cdw13 submission DOC("command dword 13"); \
	hex32_t cdw14 submission DOC("command dword 14"); \
	hex32_t cdw15 submission DOC("command dword 15")

#define COMMAND_HAS \
	__u32 ctrl : 1; \
	__u32 ctrl_id : 1; \
	__u32 disk : 1; \
	__u32 cid : 1; \
	__u32 opcode : 1; \
	__u32 raw_opcode : 1; \
	__u32 nsid : 1; \
	__u32 fctype : 1; \
	__u32 flags : 1; \
	__u32 slba : 1; \
	__u32 nlb : 1; \
	__u32 bytes : 1; \
	__u32 cdw10 : 1; \
	__u32 cdw11 : 1; \
	__u32 cdw12 : 1; \
	__u32 cdw13 : 1; \
	__u32 cdw14 : 1; \
	__u32 cdw15 : 1

struct nvme_setup_cmd {
	COMMON();
	COMMAND_FIELDS();
	struct {
		COMMAND_HAS;
	} has;
} DOC("a command is handed to the NVMe driver (raw tracepoint nvme_setup_cmd); again when a busy queue took it back");
EVENT(nvme_setup_cmd)

#define OF_SUBMISSION \
	__u32 pid : 1; \
	__u32 tid : 1; \
	__u32 uid : 1; \
	__u32 cgroup : 1; \
	__u32 comm : 1; \
	COMMAND_HAS

struct nvme_complete_rq {
	COMMON(NEEDS(nvme_inflight));
	COMMAND_FIELDS(NEEDS(nvme_inflight));
	ns_t latency NEEDS(nvme_inflight) DOC("from nvme:setup_cmd to here; absent if the submission was not seen");
	ns_t device_latency NEEDS(nvme_inflight) NEEDS(nvme_cqe) DOC("from nvme:setup_cmd until the driver saw the completion queue entry; PCIe only");
	hex64_t result NEEDS(nvme_learn) DOC("command-specific result, dwords 0 and 1 of the completion queue entry");
	__u32 retries NEEDS(nvme_learn) DOC("attempts before this one");
	enum nvme_status status NEEDS(nvme_learn) DOC("status code type and status code");
	hex16_t raw_status NEEDS(nvme_learn) DOC("the whole status field without the phase bit");
	__u8 sct NEEDS(nvme_learn) DOC("status code type: 0 generic, 1 command specific, 2 media and data integrity, 3 path, 7 vendor");
	hex8_t sc NEEDS(nvme_learn) DOC("status code");
	__u8 crd NEEDS(nvme_learn) DOC("command retry delay: which of the controller's three delays to wait before a retry; 0 none");
	bool more NEEDS(nvme_learn) DOC("the error log page has more about this status");
	bool dnr NEEDS(nvme_learn) DOC("do not retry");
	bool cancelled NEEDS(nvme_learn) DOC("ended by the host, on a timeout or a reset");
	struct {
		OF_SUBMISSION;
		__u32 latency : 1;
		__u32 device_latency : 1;
		__u32 result : 1;
		__u32 retries : 1;
		__u32 status : 1;
		__u32 raw_status : 1;
		__u32 sct : 1;
		__u32 sc : 1;
		__u32 crd : 1;
		__u32 more : 1;
		__u32 dnr : 1;
		__u32 cancelled : 1;
	} has;
} DOC("a command ends, once for each attempt (raw tracepoint nvme_complete_rq); pid, comm and cgroup are the submitter's");
EVENT(nvme_complete_rq)

struct nvme_sq {
	COMMON(NEEDS(nvme_inflight));
	COMMAND_FIELDS(NEEDS(nvme_inflight));
	__u32 sq_head DOC("submission queue head that the controller reports");
	__u32 sq_tail DOC("submission queue tail of the driver");
	ns_t device_latency NEEDS(nvme_inflight) DOC("from nvme:setup_cmd to here; absent if the submission was not seen");
	struct {
		OF_SUBMISSION;
		__u32 device_latency : 1;
	} has;
} DOC("the driver sees a completion queue entry, PCIe only (raw tracepoint nvme_sq); pid, comm and cgroup are the submitter's");
EVENT(nvme_sq)

/* Controller-wide asynchronous event, Base Specification 2.0, "Asynchronous Event Request command": dword 0. */
enum nvme_aen_type {
	nvme_aen_type__error = 0,
	nvme_aen_type__smart = 1,
	nvme_aen_type__notice = 2,
	nvme_aen_type__immediate = 3,
	nvme_aen_type__one_shot = 4,
	nvme_aen_type__io_command_set = 6,
	nvme_aen_type__vendor = 7,
};

struct nvme_async_event {
	COMMON();
	char ctrl[16] NEEDS(nvme_learn) DOC("controller, like nvme0");
	__s32 ctrl_id NEEDS(nvme_learn) DOC("number of the controller");
	enum nvme_aen_type type DOC("kind of event");
	hex8_t info DOC("event information; its meaning depends on the type");
	hex8_t log_page DOC("log page that says more");
	hex32_t result DOC("dword 0 of the completion queue entry");
	struct {
		__u32 ctrl : 1;
		__u32 ctrl_id : 1;
	} has;
} DOC("a controller reports an asynchronous event (raw tracepoint nvme_async_event)");
EVENT(nvme_async_event)

/*
 * The driver's own structs. Their types come from the BTF of nvme_core, or from --btf. Where there is neither (kernel 5.10 has no
 * BTF for modules) the places below are used, each only after it was seen to hold:
 *
 *   nvme_request is { cmd, result, u8 genctr, u8 retries, u8 flags, u16 status, ctrl }, right behind the request; later kernels
 *   have a start_time before ctrl. Checked: the generation counter equals the upper 4 bits of the command id that the driver just
 *   made from it, and is not zero.
 *
 *   nvme_ctrl has, somewhere in its first 2 KiB, a pointer to its character device, whose name is nvme<number>.
 */
#define GUESS_RESULT 8
#define GUESS_GENCTR 16
#define GUESS_RETRIES 17
#define GUESS_FLAGS 18
#define GUESS_STATUS 20
#define GUESS_CTRL 24
#define GUESS_CTRL_LATER 32
#define CTRL_BYTES 2048

/* Set by nvme_learn once the places were seen to hold. */
bool nvme_request_known;
__u32 nvme_ctrl_at = GUESS_CTRL; /* offset of the pointer to nvme_ctrl in nvme_request */
__u32 nvme_ctrl_device;          /* offset of the pointer to the device in nvme_ctrl; 0: not looked for yet, CTRL_BYTES: not found */

#define HAVE_TYPES (bpf_core_type_exists(struct nvme_request) && bpf_core_type_exists(struct nvme_ctrl))

static __always_inline struct nvme_request *nvme_req(struct request *rq)
{
	return (void *)rq + bpf_core_type_size(struct request);
}

#define READ_AT(type, base, offset) \
	({ \
		type value = 0; \
		bpf_probe_read_kernel(&value, sizeof(value), (void *)(base) + (offset)); \
		value; \
	})

static __always_inline struct nvme_ctrl *ctrl_of(struct request *rq)
{
	if (HAVE_TYPES)
		return BPF_CORE_READ(nvme_req(rq), ctrl);
	return READ_AT(struct nvme_ctrl *, nvme_req(rq), nvme_ctrl_at);
}

/* The number in nvme<number>, or -1. */
static __always_inline __s32 ctrl_number(const char name[16])
{
	__s32 number = 0;

	if (name[0] != 'n' || name[1] != 'v' || name[2] != 'm' || name[3] != 'e' || !name[4])
		return -1;
#pragma unroll
	for (int i = 4; i < 10; i++) {
		if (!name[i])
			return number;
		if (name[i] < '0' || name[i] > '9')
			return -1;
		number = number * 10 + (name[i] - '0');
	}
	return -1;
}

/* A pointer into the kernel: 0xff... with four and with five levels of page tables. What is none need not cost a fault. */
static __always_inline bool is_pointer(const void *p)
{
	return (__u64)p >> 56 == 0xff;
}

/* The name of the device that a pointer at this offset of the controller points to, if that is one; returns its length or less than 0. */
static __always_inline long device_name(struct nvme_ctrl *ctrl, __u32 offset, char name[16])
{
	struct device *device = READ_AT(struct device *, ctrl, offset);
	const char *text = 0;

	if (!is_pointer(device) || bpf_core_read(&text, sizeof(text), &device->kobj.name))
		return -1;
	return bpf_probe_read_kernel_str(name, 16, text);
}

/* Reads the name of the controller; returns its number, or -1 if it cannot be told. */
static __always_inline __s32 ctrl_name(struct nvme_ctrl *ctrl, char name[16])
{
	if (HAVE_TYPES) {
		bpf_probe_read_kernel_str(name, 16, BPF_CORE_READ(ctrl, device, kobj.name));
		return BPF_CORE_READ(ctrl, instance);
	}
	if (nvme_ctrl_device == 0 || nvme_ctrl_device >= CTRL_BYTES || device_name(ctrl, nvme_ctrl_device, name) < 0)
		return -1;
	return ctrl_number(name);
}

static __always_inline void learn_request(struct request *rq, const struct sqe *sqe)
{
	__u8 genctr = READ_AT(__u8, nvme_req(rq), GUESS_GENCTR) & 0xf;

	if (genctr && genctr == READ_AT(__u16, &sqe->cid, 0) >> 12)
		nvme_request_known = true;
}

static __always_inline void learn_ctrl(struct request *rq)
{
	struct nvme_ctrl *ctrl;
	char name[16] = {};

	if (!is_pointer(ctrl_of(rq)))
		nvme_ctrl_at = GUESS_CTRL_LATER;
	ctrl = ctrl_of(rq);

	for (__u32 offset = 8; offset < CTRL_BYTES; offset += 8) {
		/* "nvme" and a digit, in one comparison each: the verifier walks every branch of every turn. */
		if (device_name(ctrl, offset, name) < 6 || *(__u32 *)name != 0x656d766e || (__u8)(name[4] - '0') > 9)
			continue;
		nvme_ctrl_device = offset;
		return;
	}
	nvme_ctrl_device = CTRL_BYTES;
}

/* Attached only where the types are missing. Arguments: struct request *, struct nvme_command *. */
SEC("raw_tp/nvme_setup_cmd")
int raw_tp_nvme_learn(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];

	if (!nvme_request_known)
		learn_request(rq, (void *)ctx[1]);
	if (!nvme_ctrl_device)
		learn_ctrl(rq);
	return 0;
}

static __always_inline __u32 qid_of(struct request *rq)
{
	if (!BPF_CORE_READ(rq, q, queuedata))
		return 0;
	return BPF_CORE_READ(rq, mq_hctx, queue_num) + 1;
}

static __always_inline struct gendisk *disk_of(struct request *rq)
{
	struct request___rq_disk *old = (void *)rq;

	if (bpf_core_field_exists(old->rq_disk))
		return BPF_CORE_READ(old, rq_disk);
	return BPF_CORE_READ(rq, q, disk);
}

#define FABRICS 0x7f

static __always_inline enum nvme_opcode opcode_of(const struct sqe *sqe, __u32 qid)
{
	if (sqe->opcode == FABRICS)
		return 0x200 | (__u8)sqe->nsid;
	return (qid ? 0 : 0x100) | sqe->opcode;
}

/* Whether a command has a first block and a number of blocks, from its name. */
static __always_inline bool has_blocks(enum nvme_opcode opcode)
{
	switch (opcode) {
	case nvme_opcode__read:
	case nvme_opcode__write:
	case nvme_opcode__write_uncor:
	case nvme_opcode__compare:
	case nvme_opcode__write_zeroes:
	case nvme_opcode__verify:
	case nvme_opcode__zone_append:
		return true;
	default:
		return false;
	}
}

#define CAPTURE_CTRL(X, e, ctrl_pointer, stage) \
	do { \
		if (WANT(X, ctrl, stage) || WANT(X, ctrl_id, stage)) { \
			__s32 number; \
			__builtin_memset((e)->ctrl, 0, sizeof((e)->ctrl)); \
			number = ctrl_name(ctrl_pointer, (e)->ctrl); \
			if (number >= 0) { \
				SET(e, ctrl_id, number); \
				(e)->has.ctrl = 1; \
			} \
		} \
	} while (0)

/* What the request tells, with or without its submission. */
#define CAPTURE_REQUEST(X, e, rq, stage) \
	do { \
		CAPTURE_CTRL(X, e, ctrl_of(rq), stage); \
		if (WANT(X, disk, stage)) { \
			struct gendisk *disk = disk_of(rq); \
			if (disk && READ_STRING((e)->disk, &disk->disk_name) > 1) \
				(e)->has.disk = 1; \
		} \
		if (WANT(X, qid, stage)) \
			(e)->qid = qid_of(rq); \
	} while (0)

#define CAPTURE_CDW(X, e, entry, n, stage) \
	do { \
		if (WANT(X, cdw##n, stage)) \
			SET(e, cdw##n, (entry)->cdw10[n - 10]); \
	} while (0)

/* What the submission queue entry tells; data is the size of the request. */
#define CAPTURE_SQE(X, e, entry, queue, data, stage) \
	do { \
		enum nvme_opcode code = opcode_of(entry, queue); \
		if (WANT(X, cid, stage)) \
			SET(e, cid, (entry)->cid); \
		if (WANT(X, opcode, stage)) \
			SET(e, opcode, code); \
		if (WANT(X, raw_opcode, stage)) \
			SET(e, raw_opcode, (entry)->opcode); \
		if (WANT(X, nsid, stage) && (entry)->opcode != FABRICS) \
			SET(e, nsid, (entry)->nsid); \
		if (WANT(X, fctype, stage) && (entry)->opcode == FABRICS) \
			SET(e, fctype, (__u8)(entry)->nsid); \
		if (WANT(X, flags, stage)) \
			SET(e, flags, (entry)->flags); \
		if (WANT(X, slba, stage) && has_blocks(code)) \
			SET(e, slba, (entry)->cdw10[0] | (__u64)(entry)->cdw10[1] << 32); \
		if (WANT(X, nlb, stage) && has_blocks(code)) \
			SET(e, nlb, ((entry)->cdw10[2] & 0xffff) + 1); \
		if (WANT(X, bytes, stage)) \
			SET(e, bytes, data); \
		CAPTURE_CDW(X, e, entry, 10, stage); \
		CAPTURE_CDW(X, e, entry, 11, stage); \
		CAPTURE_CDW(X, e, entry, 12, stage); \
		CAPTURE_CDW(X, e, entry, 13, stage); \
		CAPTURE_CDW(X, e, entry, 14, stage); \
		CAPTURE_CDW(X, e, entry, 15, stage); \
	} while (0)

/* Who submitted the command, and the command, from what was kept in flight. */
#define CAPTURE_INFLIGHT(X, e, rq, fl, stage) \
	do { \
		if (WANT(X, pid, stage)) \
			SET(e, pid, (fl)->pid); \
		if (WANT(X, tid, stage)) \
			SET(e, tid, (fl)->tid); \
		if (WANT(X, uid, stage)) \
			SET(e, uid, (fl)->uid); \
		if (WANT(X, cgroup, stage)) \
			SET(e, cgroup, (fl)->cgroup); \
		if (WANT(X, comm, stage)) { \
			__builtin_memcpy((e)->comm, (fl)->comm, sizeof((e)->comm)); \
			(e)->has.comm = 1; \
		} \
		CAPTURE_SQE(X, e, &(fl)->sqe, qid_of(rq), (fl)->bytes, stage); \
	} while (0)

static __always_inline void nvme_setup_cmd_capture(struct nvme_setup_cmd *e, struct request *rq, const struct sqe *sqe,
						   enum stage stage)
{
	CAPTURE_COMMON(nvme_setup_cmd, e, stage);
	CAPTURE_REQUEST(nvme_setup_cmd, e, rq, stage);
	CAPTURE_SQE(nvme_setup_cmd, e, sqe, qid_of(rq), BPF_CORE_READ(rq, __data_len), stage);
}

/* Arguments: struct request *, struct nvme_command *. */
SEC("raw_tp/nvme_setup_cmd")
int raw_tp_nvme_setup_cmd(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	struct nvme_setup_cmd e;
	struct sqe sqe;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	bpf_probe_read_kernel(&sqe, sizeof(sqe), (void *)ctx[1]);
	EMIT(nvme_setup_cmd, ctx, &e, rq, &sqe);
	return 0;
}

SEC("raw_tp/nvme_setup_cmd")
int raw_tp_nvme_inflight(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	__u64 key = ctx[0], task = bpf_get_current_pid_tgid();
	struct inflight fl = {};

	bpf_probe_read_kernel(&fl.sqe, sizeof(fl.sqe), (void *)ctx[1]);
	fl.bytes = BPF_CORE_READ(rq, __data_len);
	fl.pid = task >> 32;
	fl.tid = task;
	fl.uid = bpf_get_current_uid_gid();
	fl.cgroup = current_cgroup();
	bpf_get_current_comm(fl.comm, sizeof(fl.comm));
	fl.started = bpf_ktime_get_ns();
	/* BPF_ANY: a request that comes again was taken back by a busy queue; its time counts from now. */
	if (bpf_map_update_elem(&nvme_inflight, &key, &fl, BPF_ANY)) {
		nvme_complete_rq_count(INFLIGHT_FULL);
		nvme_sq_count(INFLIGHT_FULL);
	}
	return 0;
}

static __always_inline void nvme_sq_capture(struct nvme_sq *e, struct request *rq, struct inflight *fl, __u32 head, __u32 tail,
					    enum stage stage)
{
	CAPTURE_TIME(nvme_sq, e, stage);
	CAPTURE_REQUEST(nvme_sq, e, rq, stage);
	if (WANT(nvme_sq, sq_head, stage))
		e->sq_head = head;
	if (WANT(nvme_sq, sq_tail, stage))
		e->sq_tail = tail;
	if (!fl)
		return;
	CAPTURE_INFLIGHT(nvme_sq, e, rq, fl, stage);
	if (WANT(nvme_sq, device_latency, stage))
		SET(e, device_latency, bpf_ktime_get_ns() - fl->started);
}

/* Arguments: struct request *, __le16 sq_head, int sq_tail. */
SEC("raw_tp/nvme_sq")
int raw_tp_nvme_sq(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	__u64 key = ctx[0];
	struct inflight *fl = bpf_map_lookup_elem(&nvme_inflight, &key);
	struct nvme_sq e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	if (!fl)
		nvme_sq_count(UNMATCHED);
	EMIT(nvme_sq, ctx, &e, rq, fl, (__u16)ctx[1], (__u16)ctx[2]);
	return 0;
}

SEC("raw_tp/nvme_sq")
int raw_tp_nvme_cqe(__u64 *ctx)
{
	__u64 key = ctx[0];
	struct inflight *fl = bpf_map_lookup_elem(&nvme_inflight, &key);

	if (fl)
		fl->cqe = bpf_ktime_get_ns();
	return 0;
}

#define CANCELLED 1 /* NVME_REQ_CANCELLED, drivers/nvme/host/nvme.h */

static __always_inline void capture_outcome(struct nvme_complete_rq *e, struct nvme_request *nr, enum stage stage)
{
	if (WANT(nvme_complete_rq, result, stage))
		SET(e, result, HAVE_TYPES ? BPF_CORE_READ(nr, result.u64) : READ_AT(__u64, nr, GUESS_RESULT));
	if (WANT(nvme_complete_rq, retries, stage))
		SET(e, retries, HAVE_TYPES ? BPF_CORE_READ(nr, retries) : READ_AT(__u8, nr, GUESS_RETRIES));
	if (WANT(nvme_complete_rq, cancelled, stage))
		SET(e, cancelled,
		    ((HAVE_TYPES ? BPF_CORE_READ(nr, flags) : READ_AT(__u8, nr, GUESS_FLAGS)) & CANCELLED) != 0);
	if (WANT(nvme_complete_rq, status, stage) || WANT(nvme_complete_rq, raw_status, stage) ||
	    WANT(nvme_complete_rq, sct, stage) || WANT(nvme_complete_rq, sc, stage) || WANT(nvme_complete_rq, crd, stage) ||
	    WANT(nvme_complete_rq, more, stage) || WANT(nvme_complete_rq, dnr, stage)) {
		__u16 status = HAVE_TYPES ? BPF_CORE_READ(nr, status) : READ_AT(__u16, nr, GUESS_STATUS);

		SET(e, status, status & 0x7ff);
		SET(e, raw_status, status);
		SET(e, sct, (status >> 8) & 7);
		SET(e, sc, status & 0xff);
		SET(e, crd, (status >> 11) & 3);
		SET(e, more, (status >> 13) & 1);
		SET(e, dnr, (status >> 14) & 1);
	}
}

static __always_inline void nvme_complete_rq_capture(struct nvme_complete_rq *e, struct request *rq, struct inflight *fl,
						     enum stage stage)
{
	CAPTURE_TIME(nvme_complete_rq, e, stage);
	CAPTURE_REQUEST(nvme_complete_rq, e, rq, stage);
	if (HAVE_TYPES || nvme_request_known)
		capture_outcome(e, nvme_req(rq), stage);
	if (!fl)
		return;
	CAPTURE_INFLIGHT(nvme_complete_rq, e, rq, fl, stage);
	if (WANT(nvme_complete_rq, latency, stage))
		SET(e, latency, bpf_ktime_get_ns() - fl->started);
	if (WANT(nvme_complete_rq, device_latency, stage) && fl->cqe)
		SET(e, device_latency, fl->cqe - fl->started);
}

/* Argument: struct request *. */
SEC("raw_tp/nvme_complete_rq")
int raw_tp_nvme_complete_rq(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	__u64 key = ctx[0];
	struct inflight *fl = bpf_map_lookup_elem(&nvme_inflight, &key);
	struct nvme_complete_rq e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	if (!fl)
		nvme_complete_rq_count(UNMATCHED);
	EMIT(nvme_complete_rq, ctx, &e, rq, fl);
	if (fl)
		bpf_map_delete_elem(&nvme_inflight, &key);
	return 0;
}

static __always_inline void nvme_async_event_capture(struct nvme_async_event *e, struct nvme_ctrl *ctrl, __u32 result,
						     enum stage stage)
{
	CAPTURE_COMMON(nvme_async_event, e, stage);
	CAPTURE_CTRL(nvme_async_event, e, ctrl, stage);
	if (WANT(nvme_async_event, type, stage))
		e->type = result & 7;
	if (WANT(nvme_async_event, info, stage))
		e->info = result >> 8;
	if (WANT(nvme_async_event, log_page, stage))
		e->log_page = result >> 16;
	if (WANT(nvme_async_event, result, stage))
		e->result = result;
}

/* Arguments: struct nvme_ctrl *, u32 result. */
SEC("raw_tp/nvme_async_event")
int raw_tp_nvme_async_event(__u64 *ctx)
{
	struct nvme_async_event e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(nvme_async_event, ctx, &e, (struct nvme_ctrl *)ctx[0], ctx[1]);
	return 0;
}
