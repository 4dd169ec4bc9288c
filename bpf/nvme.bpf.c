//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NVMe host commands: the raw tracepoints of nvme_core (drivers/nvme/host/trace.h).
 *
 * The key of a command is its struct request, never queue and command id: kernel 5.10 reports the id with the generation counter at
 * submission and without it at completion, and an id is reused at once.
 */
#include "block_types.h"
#include "nvme_names.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
union nvme_result {
	__u64 u64;
};
struct nvme_ctrl_ops {
	const char *name;
};
struct nvme_ctrl {
	int instance;
	struct device *device;
	const struct nvme_ctrl_ops *ops;
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

#define REQ_FLAG(name) (1U << bpf_core_enum_value(enum req_flag_bits, __REQ_##name))

/* The submission queue entry: NVM Express Base Specification 2.0, "Common Command Format". */
struct sqe {
	__u8 opcode;
	__u8 flags;
	__u16 cid;
	__u32 nsid; /* in a fabrics command the low byte is its type */
	__u32 cdw2[8];
	__u32 cdw10[6];
};

/*
 * What is kept of a command until it ends. A command can be handed to the driver several times: again after a busy queue took it
 * back, and again after an attempt that failed. The value stays until the command ends for good, if an event wants fields of the
 * whole command.
 */
#define INFLIGHT_TIMES \
	__u64 started;   /* this attempt, ns, CLOCK_MONOTONIC */ \
	__u64 cqe;       /* when the completion queue entry was seen, or 0 */ \
	__u64 first;     /* attempt */ \
	__u64 allocated; /* request.start_time_ns: distinguishes a command from the next one in the same request */ \
	__u32 attempt; \
	__u32 requeues; \
	__u8 timeouts; /* of this attempt */ \
	bool counted;  /* among those in flight */ \
	bool ended;    /* this attempt */ \
	bool kept      /* the command may be retried */

struct inflight_times {
	INFLIGHT_TIMES;
};

/* Likewise, with the submission. */
struct inflight {
	INFLIGHT_TIMES;
	__u32 pid, tid, uid;
	__u64 bytes;
	__u64 cgroup;
	char comm[16];
	KEPT_OF_TASK;
	struct sqe sqe;
};

/* By request. Only one of the two is used: most of what is kept is the submission, which seldom an event wants. */
KEPT(nvme_inflight, request, struct inflight, 8192)
KEPT(nvme_inflight_times, request, struct inflight_times, 8192)

/*
 * The command of an event. Fields of the submission queue entry are absent from a completion whose submission was not seen; fields of
 * the driver's own structs are absent where this kernel does not describe them (see below).
 */
#define COMMAND_FIELDS(submission) \
	char ctrl[16] NEEDS(nvme_learn) DOC("controller, like nvme0"); \
	__s32 ctrl_id NEEDS(nvme_learn) VERBOSE DOC("number of the controller"); \
	char disk[32] DOC("disk, like nvme0n1; absent for admin commands"); \
	__u32 qid DOC("queue; 0 is the admin queue"); \
	hex64_t rq VERBOSE DOC("address of the kernel's request: the key of a command from its first attempt to its end"); \
	bool meta DOC("the block layer sends metadata along (REQ_INTEGRITY)"); \
	bool mpath DOC("the command came through a multipath device"); \
	__u16 cid submission VERBOSE DOC("command id; where the kernel guards against reuse its upper 4 bits count the uses of the slot"); \
	enum nvme_opcode opcode submission CLASSES("io admin fabrics") DOC("what the command does: admin, I/O and fabrics commands in one namespace"); \
	hex8_t raw_opcode submission VERBOSE DOC("opcode byte, whose meaning depends on the queue"); \
	__u32 nsid submission VERBOSE DOC("namespace id; 0 where a command is for no namespace; absent for fabrics commands"); \
	hex8_t fctype submission VERBOSE DOC("type of a fabrics command; absent for others"); \
	hex8_t flags submission VERBOSE DOC("flags byte of the submission queue entry: FUSE and PSDT"); \
	enum nvme_fuse fuse submission USUAL(normal) DOC("part of a fused operation"); \
	enum nvme_psdt psdt submission USUAL(prp) DOC("how the data is described"); \
	__u64 slba submission DOC("first logical block, of commands that have one (read, write, compare, zones, ...; for copy, the first one of the destination)"); \
	__u32 nlb submission INSTEAD(bytes) DOC("number of logical blocks: the 16-bit field of read, write, compare, ..., plus one"); \
	bool fua submission DOC("force unit access; like the next three only for commands that read, write, compare or verify blocks"); \
	bool lr submission DOC("limited retry by the controller"); \
	bool pract submission DOC("protection information action: the controller inserts or strips it"); \
	enum nvme_prchk prchk submission USUAL(unchecked) DOC("which protection information is checked"); \
	bool deac submission DOC("deallocate the blocks; of write_zeroes"); \
	__u16 ranges submission DOC("number of ranges, of dsm and copy"); \
	enum nvme_dsm_attributes attributes submission DOC("of dsm: deallocate (ad), integral for write (idw), for read (idr)"); \
	enum nvme_zone_action zone_action submission DOC("what zone_mgmt_send does, what zone_mgmt_recv asks for"); \
	enum nvme_zone_state zone_state submission DOC("which zones zone_mgmt_recv lists"); \
	bool zone_all submission DOC("for all zones; of zone_mgmt_send"); \
	bool zone_partial submission DOC("count only the zones that fit; of zone_mgmt_recv"); \
	enum nvme_property property submission DOC("register of the controller; of property_get and property_set"); \
	__u16 for_qid submission DOC("queue that an admin or fabrics command is about: create, delete, connect, abort"); \
	hex16_t for_cid submission DOC("command id that abort names"); \
	bytes_t bytes submission DOC("data of the request as the block layer counts it"); \
	hex32_t cdw10 submission VERBOSE DOC("command dword 10"); \
	hex32_t cdw11 submission VERBOSE DOC("command dword 11"); \
	hex32_t cdw12 submission VERBOSE DOC("command dword 12"); \
	hex32_t cdw13 submission VERBOSE DOC("command dword 13"); \
	hex32_t cdw14 submission VERBOSE DOC("command dword 14"); \
	hex32_t cdw15 submission VERBOSE DOC("command dword 15")

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
	__u32 fuse : 1; \
	__u32 psdt : 1; \
	__u32 slba : 1; \
	__u32 nlb : 1; \
	__u32 fua : 1; \
	__u32 lr : 1; \
	__u32 pract : 1; \
	__u32 prchk : 1; \
	__u32 deac : 1; \
	__u32 ranges : 1; \
	__u32 attributes : 1; \
	__u32 zone_action : 1; \
	__u32 zone_state : 1; \
	__u32 zone_all : 1; \
	__u32 zone_partial : 1; \
	__u32 property : 1; \
	__u32 for_qid : 1; \
	__u32 for_cid : 1; \
	__u32 bytes : 1; \
	__u32 cdw10 : 1; \
	__u32 cdw11 : 1; \
	__u32 cdw12 : 1; \
	__u32 cdw13 : 1; \
	HAS_PAD; \
	__u32 cdw14 : 1; \
	__u32 cdw15 : 1

/* For fields that are known only if a command is followed from its first attempt. */
#define NEEDS_CHAIN NEEDS(nvme_inflight) NEEDS(nvme_ended) NEEDS(nvme_learn)

/* Which time a command is handed to the driver: attempt is 1 + retries + requeues. */
#define CHAIN_FIELDS \
	__u32 attempt NEEDS_CHAIN USUAL(1) DOC("which time the command is handed to the driver; absent if earlier ones were not seen"); \
	__u32 requeues NEEDS_CHAIN DETAIL DOC("how often a busy queue took the command back before this attempt; after a failed attempt it is a retry instead")

#define CHAIN_HAS \
	__u32 attempt : 1; \
	__u32 requeues : 1

#define NEEDS_DEPTH NEEDS(nvme_inflight) NEEDS(nvme_ended)

/* For what was kept in flight, in events that do not remove it when the command ends. */
#define NEEDS_KEPT NEEDS(nvme_inflight) NEEDS(nvme_ended)

/* nvme_ctrl.ops->name */
enum nvme_transport {
	nvme_transport__pcie,
	nvme_transport__rdma,
	nvme_transport__tcp,
	nvme_transport__fc,
	nvme_transport__loop,
};

/* What the request and the controller know without the command. */
#define BLOCK_FIELDS(until) \
	ns_t block_latency VERBOSE DOC("time in the block layer: from the beginning of the request until " until "; absent where the kernel takes no times"); \
	cgroup_t io_cgroup VERBOSE DOC("cgroup whose io.stat counts the request, also for write-back; absent as in block:complete")

#define TRANSPORT_FIELD \
	enum nvme_transport transport VERBOSE DOC("how the controller is reached; absent for other transports, and where the kernel does not describe the driver's types")

#define BLOCK_HAS \
	__u32 block_latency : 1; \
	__u32 io_cgroup : 1; \
	__u32 transport : 1

struct nvme_setup_cmd {
	COMMON();
	COMMAND_FIELDS();
	CHAIN_FIELDS;
	BLOCK_FIELDS("here, over all attempts");
	__u32 retries NEEDS(nvme_learn) DETAIL DOC("failed attempts before this one");
	TRANSPORT_FIELD;
	__u32 queue_depth NEEDS_DEPTH DOC("commands in flight on this queue whose submission was seen, this one included");
	__u32 ctrl_depth NEEDS_DEPTH DOC("likewise on all I/O queues of the controller, or on its admin queue");
	struct {
		HAS_PAD;
		COMMAND_HAS;
		CHAIN_HAS;
		BLOCK_HAS;
		__u32 retries : 1;
		__u32 queue_depth : 1;
		__u32 ctrl_depth : 1;
	} has HAS_ALIGN;
} DOC("a command is handed to the NVMe driver (raw tracepoint nvme_setup_cmd), once for each attempt");
EVENT(nvme_setup_cmd)

#define OF_SUBMISSION \
	COMMAND_HAS; \
	__u32 pid : 1; \
	__u32 tid : 1; \
	__u32 uid : 1; \
	__u32 cgroup : 1; \
	__u32 comm : 1

struct nvme_complete_rq {
	COMMON(NEEDS_CHAIN);
	COMMAND_FIELDS(NEEDS(nvme_inflight));
	ns_t latency NEEDS(nvme_inflight) DOC("from nvme:setup_cmd to here; absent if the submission was not seen");
	ns_t device_latency NEEDS(nvme_inflight) NEEDS(nvme_cqe) VERBOSE DOC("from nvme:setup_cmd until the driver saw the completion queue entry; PCIe only");
	ns_t total_latency NEEDS_CHAIN VERBOSE DOC("from the first nvme:setup_cmd of the command to here, over all attempts; absent if that was not seen");
	CHAIN_FIELDS;
	BLOCK_FIELDS("it was last handed to the driver");
	hex64_t result NEEDS(nvme_learn) DETAIL DOC("command-specific result, dwords 0 and 1 of the completion queue entry");
	__u32 retries NEEDS(nvme_learn) DETAIL DOC("attempts before this one");
	TRANSPORT_FIELD;
	enum nvme_status status NEEDS(nvme_learn) CLASSES("generic command media path - - - vendor") DOC("status code type and status code");
	hex16_t raw_status NEEDS(nvme_learn) VERBOSE DOC("the whole status field without the phase bit");
	__u8 sct NEEDS(nvme_learn) VERBOSE DOC("status code type: 0 generic, 1 command specific, 2 media and data integrity, 3 path, 7 vendor");
	hex8_t sc NEEDS(nvme_learn) VERBOSE DOC("status code");
	__u8 crd NEEDS(nvme_learn) DETAIL DOC("command retry delay: which of the controller's three delays to wait before a retry; 0 none");
	bool more NEEDS(nvme_learn) DOC("the error log page has more about this status");
	bool dnr NEEDS(nvme_learn) DOC("do not retry");
	bool cancelled NEEDS(nvme_learn) DOC("ended by the host, on a timeout or a reset");
	hex8_t driver_flags NEEDS(nvme_learn) VERBOSE DOC("of the driver: 1 cancelled, 2 sent by a program, 4 and 8 accounted by multipath");
	struct {
		HAS_PAD;
		OF_SUBMISSION;
		CHAIN_HAS;
		BLOCK_HAS;
		__u32 latency : 1;
		__u32 device_latency : 1;
		__u32 total_latency : 1;
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
		__u32 driver_flags : 1;
	} has HAS_ALIGN;
} DOC("a command ends, once for each attempt (raw tracepoint nvme_complete_rq); pid, comm and cgroup are the submitter's");
EVENT(nvme_complete_rq)
OF_BEGINNING(nvme_complete_rq)

struct nvme_sq {
	COMMON(NEEDS_CHAIN);
	COMMAND_FIELDS(NEEDS_KEPT);
	__u32 sq_head DOC("submission queue head that the controller reports");
	__u32 sq_tail DOC("submission queue tail of the driver");
	ns_t device_latency NEEDS_KEPT DOC("from nvme:setup_cmd to here; absent if the submission was not seen");
	struct {
		HAS_PAD;
		OF_SUBMISSION;
		__u32 device_latency : 1;
	} has HAS_ALIGN;
} DOC("the driver sees a completion queue entry, PCIe only (raw tracepoint nvme_sq); pid, comm and cgroup are the submitter's");
EVENT(nvme_sq)
OF_BEGINNING(nvme_sq)

struct nvme_timeout {
	COMMON(NEEDS_CHAIN);
	COMMAND_FIELDS(NEEDS_KEPT);
	ns_t age NEEDS_KEPT DOC("from nvme:setup_cmd to here; absent if the submission was not seen");
	__u32 timeouts NEEDS_KEPT DOC("timeouts of this attempt, this one included; over PCIe the first aborts the command, the second resets the controller");
	struct {
		HAS_PAD;
		OF_SUBMISSION;
		__u32 age : 1;
		__u32 timeouts : 1;
	} has HAS_ALIGN;
} DOC("a command took too long (nvme_timeout, nvme_tcp_timeout, nvme_rdma_timeout, nvme_fc_timeout); pid, comm and cgroup are the submitter's");
EVENT(nvme_timeout)
OF_BEGINNING(nvme_timeout)

struct nvme_failover {
	COMMON(NEEDS_CHAIN);
	COMMAND_FIELDS(NEEDS_KEPT);
	ns_t latency NEEDS_KEPT DOC("from nvme:setup_cmd to here; absent if the submission was not seen");
	enum nvme_status status NEEDS(nvme_learn) DOC("why the path cannot be used");
	hex16_t raw_status NEEDS(nvme_learn) VERBOSE DOC("the whole status field without the phase bit");
	struct {
		HAS_PAD;
		OF_SUBMISSION;
		__u32 latency : 1;
		__u32 status : 1;
		__u32 raw_status : 1;
	} has HAS_ALIGN;
} DOC("a failed command goes to another path (nvme_failover_req); disk is on the failed path; follows nvme:complete_rq");
EVENT(nvme_failover)
OF_BEGINNING(nvme_failover)

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
	__s32 ctrl_id NEEDS(nvme_learn) VERBOSE DOC("number of the controller");
	enum nvme_aen_type type DOC("kind of event");
	hex8_t info DOC("event information; its meaning depends on the type");
	hex8_t log_page DOC("log page with details");
	hex32_t result VERBOSE DOC("dword 0 of the completion queue entry");
	struct {
		HAS_PAD;
		__u32 ctrl : 1;
		__u32 ctrl_id : 1;
	} has HAS_ALIGN;
} DOC("a controller reports an asynchronous event (raw tracepoint nvme_async_event)");
EVENT(nvme_async_event)

/*
 * The driver's own structs. Their types come from the BTF of nvme_core, or from --btf. Without either (kernel 5.10 has no BTF for
 * modules) the offsets below are used, each only after a check:
 *
 *     nvme_request is { cmd, result, u8 genctr, u8 retries, u8 flags, u16 status, ctrl }, right behind the request; later kernels
 *     have a start_time before ctrl. Check: the generation counter equals the upper 4 bits of the command id that the driver just
 *     made from it, and is not zero.
 *
 *     nvme_ctrl has, somewhere in its first 2 KiB, a pointer to its character device, whose name is nvme<number>.
 */
#define GUESS_CMD 0
#define GUESS_RESULT 8
#define GUESS_GENCTR 16
#define GUESS_RETRIES 17
#define GUESS_FLAGS 18
#define GUESS_STATUS 20
#define GUESS_CTRL 24
#define GUESS_CTRL_LATER 32
#define CTRL_BYTES 2048

/* Set by nvme_learn once the checks of the offsets passed. */
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

/* Whether NVME_REQUEST reads the right members. */
#define OUTCOME_KNOWN (HAVE_TYPES || nvme_request_known)
#define NVME_REQUEST(rq, member, guess) \
	(HAVE_TYPES ? BPF_CORE_READ(nvme_req(rq), member) \
		    : READ_AT(typeof(((struct nvme_request *)0)->member), nvme_req(rq), guess))

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

/* A pointer into the kernel: 0xff... with four and with five levels of page tables. This saves a page fault on other values. */
static __always_inline bool is_pointer(const void *p)
{
	return (__u64)p >> 56 == 0xff;
}

/* The name of the device that a pointer at this offset of the controller points to, if it is a device; returns its length or less
 * than 0. */
static __always_inline long device_name(struct nvme_ctrl *ctrl, __u32 offset, char name[16])
{
	struct device *device = READ_AT(struct device *, ctrl, offset);
	const char *text = 0;

	if (!is_pointer(device) || bpf_core_read(&text, sizeof(text), &device->kobj.name))
		return -1;
	return bpf_probe_read_kernel_str(name, 16, text);
}

/* Reads the name of the controller; returns its number, or -1 if it is unknown. */
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

#define FABRICS 0x7f

static __always_inline enum nvme_opcode opcode_of(const struct sqe *sqe, __u32 qid)
{
	if (sqe->opcode == FABRICS)
		return 0x200 | (__u8)sqe->nsid;
	return (qid ? 0 : 0x100) | sqe->opcode;
}

/* Whether a command has a first block, a number of blocks, and the flags that go with them. */
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

/* Whether a command has a first block, but no number of blocks in its place. */
static __always_inline bool has_slba(enum nvme_opcode opcode)
{
	switch (opcode) {
	case nvme_opcode__copy:
	case nvme_opcode__zone_mgmt_send:
	case nvme_opcode__zone_mgmt_recv:
	case nvme_opcode__get_lba_status:
		return true;
	default:
		return false;
	}
}

/* Whether the upper half of dword 12 has the flags of read and write; write_uncor has none. */
static __always_inline bool has_rw_flags(enum nvme_opcode opcode)
{
	return opcode == nvme_opcode__copy || (has_blocks(opcode) && opcode != nvme_opcode__write_uncor);
}

/* Where a command holds the queue that it is about, as the index of a 16-bit word from dword 10 on, or -1. */
static __always_inline int for_qid_at(enum nvme_opcode opcode)
{
	switch (opcode) {
	case nvme_opcode__delete_sq:
	case nvme_opcode__create_sq:
	case nvme_opcode__delete_cq:
	case nvme_opcode__create_cq:
	case nvme_opcode__abort:
		return 0;
	case nvme_opcode__connect:
		return 1;
	default:
		return -1;
	}
}

static __always_inline enum nvme_zone_action zone_action_of(const struct sqe *sqe, bool receive)
{
	return (receive ? 0x100 : 0) | (__u8)sqe->cdw10[3];
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

/* The fields of the request, with or without its submission. */
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
		if (WANT(X, rq, stage)) \
			(e)->rq = (__u64)(rq); \
		if (WANT(X, meta, stage)) \
			(e)->meta = (BPF_CORE_READ(rq, cmd_flags) & REQ_FLAG(INTEGRITY)) != 0; \
		if (WANT(X, mpath, stage)) \
			(e)->mpath = (BPF_CORE_READ(rq, cmd_flags) & REQ_FLAG(DRV)) != 0; \
	} while (0)

/* The transport from the first bytes of its name, as both architectures order them; there is little room for the name itself. */
static __always_inline bool transport_of(__u32 name, enum nvme_transport *transport)
{
	switch (name) {
	case 0x65696370:
		*transport = nvme_transport__pcie;
		return true;
	case 0x616d6472:
		*transport = nvme_transport__rdma;
		return true;
	case 0x706374: /* with its NUL, as is fc */
		*transport = nvme_transport__tcp;
		return true;
	case 0x706f6f6c:
		*transport = nvme_transport__loop;
		return true;
	default:
		*transport = nvme_transport__fc;
		return (name & 0xffffff) == 0x6366;
	}
}

/* until is the end of the time in the block layer, or 0 if that is unknown. */
#define CAPTURE_BLOCK(X, e, rq, until, stage) \
	do { \
		if (WANT(X, block_latency, stage)) { \
			__u64 began = began_at(rq), end = until; \
			if (began && end) \
				SET(e, block_latency, end - began); \
		} \
		if (WANT(X, io_cgroup, stage)) { \
			__u64 cgroup = io_cgroup_of(BPF_CORE_READ(rq, bio)); \
			if (cgroup) \
				SET(e, io_cgroup, cgroup); \
		} \
		if (WANT(X, transport, stage) && HAVE_TYPES) { \
			bpf_probe_read_kernel(&(e)->transport, 4, BPF_CORE_READ(ctrl_of(rq), ops, name)); \
			(e)->has.transport = transport_of((e)->transport, &(e)->transport); \
		} \
	} while (0)

/* Whether an event wants a field that depends on the opcode; test is WANT, with a stage, or WANTED. */
#define ANY_BY_OPCODE(test, X, ...) \
	(test(X, opcode, ##__VA_ARGS__) || test(X, slba, ##__VA_ARGS__) || test(X, nlb, ##__VA_ARGS__) || \
	 test(X, fua, ##__VA_ARGS__) || test(X, lr, ##__VA_ARGS__) || test(X, pract, ##__VA_ARGS__) || \
	 test(X, prchk, ##__VA_ARGS__) || test(X, deac, ##__VA_ARGS__) || test(X, ranges, ##__VA_ARGS__) || \
	 test(X, attributes, ##__VA_ARGS__) || test(X, zone_action, ##__VA_ARGS__) || test(X, zone_state, ##__VA_ARGS__) || \
	 test(X, zone_all, ##__VA_ARGS__) || test(X, zone_partial, ##__VA_ARGS__) || test(X, property, ##__VA_ARGS__) || \
	 test(X, for_qid, ##__VA_ARGS__) || test(X, for_cid, ##__VA_ARGS__))

/* Likewise for any field of the submission queue entry. */
#define ANY_OF_SQE(test, X, ...) \
	(ANY_BY_OPCODE(test, X, ##__VA_ARGS__) || test(X, cid, ##__VA_ARGS__) || test(X, raw_opcode, ##__VA_ARGS__) || \
	 test(X, nsid, ##__VA_ARGS__) || test(X, fctype, ##__VA_ARGS__) || test(X, flags, ##__VA_ARGS__) || \
	 test(X, fuse, ##__VA_ARGS__) || test(X, psdt, ##__VA_ARGS__) || test(X, cdw10, ##__VA_ARGS__) || \
	 test(X, cdw11, ##__VA_ARGS__) || test(X, cdw12, ##__VA_ARGS__) || test(X, cdw13, ##__VA_ARGS__) || \
	 test(X, cdw14, ##__VA_ARGS__) || test(X, cdw15, ##__VA_ARGS__))

#define CAPTURE_CDW(X, e, entry, n, stage) \
	do { \
		if (WANT(X, cdw##n, stage)) \
			SET(e, cdw##n, (entry)->cdw10[n - 10]); \
	} while (0)

/* The fields of the submission queue entry. queue, and data, the size of the request, are read only if they are needed. */
#define CAPTURE_SQE(X, e, entry, queue, data, stage) \
	do { \
		enum nvme_opcode code = ANY_BY_OPCODE(WANT, X, stage) ? opcode_of(entry, queue) : 0; \
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
		if (WANT(X, fuse, stage)) \
			SET(e, fuse, (entry)->flags & 3); \
		if (WANT(X, psdt, stage)) \
			SET(e, psdt, (entry)->flags >> 6); \
		if (WANT(X, slba, stage) && (has_blocks(code) || has_slba(code))) \
			SET(e, slba, (entry)->cdw10[0] | (__u64)(entry)->cdw10[1] << 32); \
		if (WANT(X, nlb, stage) && has_blocks(code)) \
			SET(e, nlb, ((entry)->cdw10[2] & 0xffff) + 1); \
		if (WANT(X, fua, stage) && has_rw_flags(code)) \
			SET(e, fua, (entry)->cdw10[2] >> 30 & 1); \
		if (WANT(X, lr, stage) && has_rw_flags(code)) \
			SET(e, lr, (entry)->cdw10[2] >> 31); \
		if (WANT(X, pract, stage) && has_rw_flags(code)) \
			SET(e, pract, (entry)->cdw10[2] >> 29 & 1); \
		if (WANT(X, prchk, stage) && has_rw_flags(code)) \
			SET(e, prchk, (entry)->cdw10[2] >> 26 & 7); \
		if (WANT(X, deac, stage) && code == nvme_opcode__write_zeroes) \
			SET(e, deac, (entry)->cdw10[2] >> 25 & 1); \
		if (WANT(X, ranges, stage) && code == nvme_opcode__dsm) \
			SET(e, ranges, (__u8)(entry)->cdw10[0] + 1); \
		if (WANT(X, ranges, stage) && code == nvme_opcode__copy) \
			SET(e, ranges, (__u8)(entry)->cdw10[2] + 1); \
		if (WANT(X, attributes, stage) && code == nvme_opcode__dsm) \
			SET(e, attributes, (entry)->cdw10[1] & 7); \
		if (WANT(X, zone_action, stage) && (code == nvme_opcode__zone_mgmt_send || code == nvme_opcode__zone_mgmt_recv)) \
			SET(e, zone_action, zone_action_of(entry, code == nvme_opcode__zone_mgmt_recv)); \
		if (WANT(X, zone_state, stage) && code == nvme_opcode__zone_mgmt_recv) \
			SET(e, zone_state, (entry)->cdw10[3] >> 8); \
		if (WANT(X, zone_all, stage) && code == nvme_opcode__zone_mgmt_send) \
			SET(e, zone_all, (entry)->cdw10[3] >> 8 & 1); \
		if (WANT(X, zone_partial, stage) && code == nvme_opcode__zone_mgmt_recv) \
			SET(e, zone_partial, (entry)->cdw10[3] >> 16 & 1); \
		if (WANT(X, property, stage) && (code == nvme_opcode__property_get || code == nvme_opcode__property_set)) \
			SET(e, property, (entry)->cdw10[1]); \
		if (WANT(X, for_qid, stage) && for_qid_at(code) >= 0) \
			SET(e, for_qid, (entry)->cdw10[0] >> 16 * for_qid_at(code)); \
		if (WANT(X, for_cid, stage) && code == nvme_opcode__abort) \
			SET(e, for_cid, (entry)->cdw10[0] >> 16); \
		if (WANT(X, bytes, stage)) \
			SET(e, bytes, data); \
		CAPTURE_CDW(X, e, entry, 10, stage); \
		CAPTURE_CDW(X, e, entry, 11, stage); \
		CAPTURE_CDW(X, e, entry, 12, stage); \
		CAPTURE_CDW(X, e, entry, 13, stage); \
		CAPTURE_CDW(X, e, entry, 14, stage); \
		CAPTURE_CDW(X, e, entry, 15, stage); \
	} while (0)

/* The submitter and the command, from what was kept in flight. */
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
		CAPTURE_KEPT_OF_TASK(X, e, fl, stage); \
		CAPTURE_SQE(X, e, &(fl)->sqe, qid_of(rq), (fl)->bytes, stage); \
	} while (0)

#define CAPTURE_CHAIN(X, e, fl, stage) \
	do { \
		if (WANT(X, attempt, stage) && (fl)->attempt) \
			SET(e, attempt, (fl)->attempt); \
		if (WANT(X, requeues, stage) && (fl)->attempt) \
			SET(e, requeues, (fl)->requeues); \
	} while (0)

/* Whether the event at the end of an attempt, or one in between, wants what is kept in flight; test(X, ...) decides for event X. */
#define ANY_LATER(test, ...) \
	(test(nvme_complete_rq, ##__VA_ARGS__) || test(nvme_sq, ##__VA_ARGS__) || test(nvme_timeout, ##__VA_ARGS__) || \
	 test(nvme_failover, ##__VA_ARGS__))
#define WANTED_LATER(field) ANY_LATER(WANTED, field)
#define SQE_WANTED(X) ANY_OF_SQE(WANTED, X)

/* A kernel thread submits a command again; its submitter is the task that submitted it first. */
#define SUBMITTER_WANTED(X) \
	(WANTED(X, pid) || WANTED(X, tid) || WANTED(X, uid) || WANTED(X, cgroup) || WANTED(X, comm) || ANY_OF_TASK(WANTED_FIELD, X))

/* Whether event X, if it is not the submission, wants anything that is kept in flight. */
#define SUBMISSION_WANTED(X) (SUBMITTER_WANTED(X) || WANTED(X, bytes) || SQE_WANTED(X))

/* Whether event X wants anything that is kept in flight. */
#define KEPT_WANTED_nvme_complete_rq \
	(SUBMISSION_WANTED(nvme_complete_rq) || WANTED(nvme_complete_rq, latency) || WANTED(nvme_complete_rq, device_latency) || \
	 WANTED(nvme_complete_rq, total_latency) || WANTED(nvme_complete_rq, attempt) || WANTED(nvme_complete_rq, requeues))
#define KEPT_WANTED_nvme_sq (SUBMISSION_WANTED(nvme_sq) || WANTED(nvme_sq, device_latency))
#define KEPT_WANTED_nvme_timeout \
	(SUBMISSION_WANTED(nvme_timeout) || WANTED(nvme_timeout, age) || WANTED(nvme_timeout, timeouts))
#define KEPT_WANTED_nvme_failover (SUBMISSION_WANTED(nvme_failover) || WANTED(nvme_failover, latency))
#define KEPT_WANTED(X) KEPT_WANTED_##X

/* inflight_of, inflight_room, inflight_end: of the one that is used. */
static __always_inline struct inflight *inflight_of(__u64 rq)
{
	return ANY_LATER(SUBMISSION_WANTED) ? nvme_inflight_of(rq) : (void *)nvme_inflight_times_of(rq);
}

static __always_inline struct inflight *inflight_room(__u64 rq)
{
	return ANY_LATER(SUBMISSION_WANTED) ? nvme_inflight_room(rq) : (void *)nvme_inflight_times_room(rq);
}

static __always_inline void inflight_end(struct inflight *fl)
{
	if (ANY_LATER(SUBMISSION_WANTED))
		nvme_inflight_end(fl);
	else
		nvme_inflight_times_end((void *)fl);
}

/* Whether an event wants a command to be followed from its first attempt to its end. */
#define FOLLOWED \
	(ANY_LATER(SUBMITTER_WANTED) || \
	 WANTED(nvme_setup_cmd, attempt) || WANTED(nvme_setup_cmd, requeues) || WANTED(nvme_complete_rq, attempt) || \
	 WANTED(nvme_complete_rq, requeues) || WANTED(nvme_complete_rq, total_latency))

/* Whether an event wants the number of commands in flight. */
#define COUNTED (WANTED(nvme_setup_cmd, queue_depth) || WANTED(nvme_setup_cmd, ctrl_depth))

#define ANY_KEPT (FOLLOWED || COUNTED || ANY_LATER(KEPT_WANTED))

/*
 * What was kept of the command in a request. If the attempt has ended, it belongs to an earlier command: the kernel skipped the
 * program at the submission of this one, as it does where it preempts tasks in such programs (probes/kernel/preempt.go).
 */
static __always_inline struct inflight *in_flight(__u64 key)
{
	struct inflight *fl = inflight_of(key);

	return fl && !fl->ended ? fl : 0;
}

/* Commands in flight, by hardware queue and by tag set, which the I/O queues of a controller share. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u32);
} nvme_depths SEC(".maps");

static __always_inline __u64 queue_key(struct request *rq)
{
	return (__u64)BPF_CORE_READ(rq, mq_hctx);
}

static __always_inline __u64 ctrl_key(struct request *rq)
{
	return (__u64)BPF_CORE_READ(rq, q, tag_set);
}

static __always_inline void depth_up(__u64 key)
{
	__u32 one = 1, *depth = bpf_map_lookup_elem(&nvme_depths, &key);

	if (!depth && bpf_map_update_elem(&nvme_depths, &key, &one, BPF_NOEXIST) == 0)
		return;
	/* It exists, or another CPU just made it, or there is no room. */
	depth = bpf_map_lookup_elem(&nvme_depths, &key);
	if (depth)
		__sync_fetch_and_add(depth, 1);
	else
		nvme_setup_cmd_count(INFLIGHT_FULL);
}

static __always_inline void depth_down(__u64 key)
{
	__u32 *depth = bpf_map_lookup_elem(&nvme_depths, &key);

	if (depth)
		__sync_fetch_and_add(depth, -1);
}

static __always_inline __u32 depth_of(__u64 key)
{
	__u32 *depth = bpf_map_lookup_elem(&nvme_depths, &key);

	return depth ? *depth : 0;
}

static __always_inline void nvme_setup_cmd_capture(struct nvme_setup_cmd *e, struct request *rq, const void *cmd, struct sqe *sqe,
						   struct inflight *fl, enum stage stage)
{
	CAPTURE_COMMON(nvme_setup_cmd, e, stage);
	CAPTURE_REQUEST(nvme_setup_cmd, e, rq, stage);
	if (ANY_OF_SQE(WANT, nvme_setup_cmd, stage) && (stage == BEFORE || !ANY_OF_SQE(WANT, nvme_setup_cmd, BEFORE)))
		bpf_probe_read_kernel(sqe, sizeof(*sqe), cmd);
	CAPTURE_SQE(nvme_setup_cmd, e, sqe, qid_of(rq), BPF_CORE_READ(rq, __data_len), stage);
	CAPTURE_BLOCK(nvme_setup_cmd, e, rq, bpf_ktime_get_ns(), stage);
	if (WANT(nvme_setup_cmd, retries, stage) && OUTCOME_KNOWN)
		SET(e, retries, NVME_REQUEST(rq, retries, GUESS_RETRIES));
	if (!fl)
		return;
	CAPTURE_CHAIN(nvme_setup_cmd, e, fl, stage);
	if (WANT(nvme_setup_cmd, queue_depth, stage)) {
		__u32 depth = depth_of(queue_key(rq));
		if (depth)
			SET(e, queue_depth, depth);
	}
	if (WANT(nvme_setup_cmd, ctrl_depth, stage)) {
		__u32 depth = depth_of(ctrl_key(rq));
		if (depth)
			SET(e, ctrl_depth, depth);
	}
}

/* Arguments: struct request *, struct nvme_command *. */
SEC("raw_tp/nvme_setup_cmd")
int raw_tp_nvme_setup_cmd(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	struct inflight *fl = 0;
	struct nvme_setup_cmd e;
	struct sqe sqe;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	if (WANTED(nvme_setup_cmd, attempt) || WANTED(nvme_setup_cmd, requeues) || COUNTED)
		fl = in_flight(ctx[0]);
	EMIT(nvme_setup_cmd, ctx, &e, rq, (void *)ctx[1], &sqe, fl);
	return 0;
}

/*
 * Whether a request is submitted again for the same command, and whether that follows a failed attempt or a busy queue. The driver
 * counts failed attempts, from 0 for each new command (nvme_retry_req, nvme_clear_nvme_request in drivers/nvme/host/core.c). The
 * block layer sets when a request was allocated. Where it does not, as for commands of programs, there is no second attempt.
 */
static __always_inline bool follow(struct inflight *fl, bool seen, struct request *rq)
{
	__u8 retries = OUTCOME_KNOWN ? NVME_REQUEST(rq, retries, GUESS_RETRIES) : 0;
	__u64 allocated = BPF_CORE_READ(rq, start_time_ns);

	if (seen && allocated == fl->allocated && (!fl->ended || retries)) {
		fl->requeues += !fl->ended;
		fl->attempt += !!fl->attempt;
		return true;
	}
	fl->allocated = allocated;
	fl->first = 0;
	fl->attempt = !retries;
	fl->requeues = 0;
	return false;
}

/* Keeps of the submitter only what an event wants, like keep_submission: they run for every command. */
static __always_inline void keep_submitter(struct inflight *fl)
{
	if (WANTED_LATER(pid) || WANTED_LATER(tid)) {
		__u64 task = bpf_get_current_pid_tgid();

		fl->pid = task >> 32;
		fl->tid = task;
	}
	if (WANTED_LATER(uid))
		fl->uid = bpf_get_current_uid_gid();
	if (WANTED_LATER(cgroup))
		fl->cgroup = current_cgroup();
	if (WANTED_LATER(comm))
		READ_COMM(fl->comm);
	if (ANY_OF_TASK(WANTED_LATER)) {
		__builtin_memset(&fl->has_of_task, 0, sizeof(fl->has_of_task));
		READ_OF_TASK(fl, bpf_get_current_task(), WANTED_LATER);
	}
}

static __always_inline void keep_submission(struct inflight *fl, struct request *rq, const void *cmd)
{
	if (ANY_LATER(SQE_WANTED))
		bpf_probe_read_kernel(&fl->sqe, sizeof(fl->sqe), cmd);
	if (WANTED_LATER(bytes))
		fl->bytes = BPF_CORE_READ(rq, __data_len);
}

SEC("raw_tp/nvme_setup_cmd")
int raw_tp_nvme_inflight(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	struct inflight *fl = inflight_of(ctx[0]);
	/* A busy queue took the request back, it failed, or the end of its last command was not seen. */
	bool seen = fl;

	if (!seen)
		fl = inflight_room(ctx[0]);
	if (!fl) {
		nvme_complete_rq_count(INFLIGHT_FULL);
		nvme_sq_count(INFLIGHT_FULL);
		nvme_timeout_count(INFLIGHT_FULL);
		nvme_failover_count(INFLIGHT_FULL);
		return 0;
	}
	if ((!FOLLOWED || !follow(fl, seen, rq)) && ANY_LATER(SUBMITTER_WANTED))
		keep_submitter(fl);
	keep_submission(fl, rq, (void *)ctx[1]);
	if (COUNTED) {
		if (!seen || !fl->counted) {
			depth_up(queue_key(rq));
			depth_up(ctrl_key(rq));
		}
		fl->counted = true;
	}
	fl->cqe = 0;
	fl->timeouts = 0;
	fl->ended = false;
	fl->kept = false;
	fl->started = bpf_ktime_get_ns();
	if (FOLLOWED && fl->attempt == 1)
		fl->first = fl->started;
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
	COUNT_UNMATCHED(nvme_sq, fl, stage);
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
	struct inflight *fl = KEPT_WANTED(nvme_sq) ? in_flight(ctx[0]) : 0;
	struct nvme_sq e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(nvme_sq, ctx, &e, rq, fl, (__u16)ctx[1], (__u16)ctx[2]);
	return 0;
}

SEC("raw_tp/nvme_sq")
int raw_tp_nvme_cqe(__u64 *ctx)
{
	struct inflight *fl = in_flight(ctx[0]);

	if (fl)
		fl->cqe = bpf_ktime_get_ns();
	return 0;
}

#define CANCELLED 1 /* NVME_REQ_CANCELLED, drivers/nvme/host/nvme.h */
#define DNR 0x4000

/* From 0x180 to 0x191 the status of a fabrics command has another meaning. */
static __always_inline enum nvme_status status_of(struct request *rq, __u16 status)
{
	status &= 0x7ff;
	if (status >= 0x180 && status <= 0x191 && READ_AT(__u8, NVME_REQUEST(rq, cmd, GUESS_CMD), 0) == FABRICS)
		return 0x1000 | status;
	return status;
}

/*
 * At the end of an attempt, before its event: whether the driver may try again (nvme_decide_disposition in drivers/nvme/host/core.c).
 * Whether it does depends on more; follow() sees if the next command in the request is another one. Argument: struct request *.
 */
SEC("raw_tp/nvme_complete_rq")
int raw_tp_nvme_ended(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	struct inflight *fl = inflight_of(ctx[0]);
	__u32 noretry;
	__u16 status;

	if (!fl)
		return 0;
	/*
	 * The beginning of this command was not seen, and the value belongs to an earlier one. A command that ends again without another
	 * attempt, because its path is gone, is the same one.
	 */
	if (fl->ended && !(FOLLOWED && fl->allocated && fl->allocated == BPF_CORE_READ(rq, start_time_ns))) {
		inflight_end(fl);
		return 0;
	}
	if (COUNTED && fl->counted) {
		fl->counted = false;
		depth_down(queue_key(rq));
		depth_down(ctrl_key(rq));
	}
	fl->ended = true;
	status = OUTCOME_KNOWN ? NVME_REQUEST(rq, status, GUESS_STATUS) : 0;
	noretry = REQ_FLAG(FAILFAST_DEV) | REQ_FLAG(FAILFAST_TRANSPORT) | REQ_FLAG(FAILFAST_DRIVER);
	fl->kept = status && !(status & DNR) && !(BPF_CORE_READ(rq, cmd_flags) & noretry);
	return 0;
}

static __always_inline void capture_outcome(struct nvme_complete_rq *e, struct request *rq, enum stage stage)
{
	if (WANT(nvme_complete_rq, result, stage))
		SET(e, result, NVME_REQUEST(rq, result.u64, GUESS_RESULT));
	if (WANT(nvme_complete_rq, retries, stage))
		SET(e, retries, NVME_REQUEST(rq, retries, GUESS_RETRIES));
	if (WANT(nvme_complete_rq, cancelled, stage))
		SET(e, cancelled, NVME_REQUEST(rq, flags, GUESS_FLAGS) & CANCELLED);
	if (WANT(nvme_complete_rq, driver_flags, stage))
		SET(e, driver_flags, NVME_REQUEST(rq, flags, GUESS_FLAGS));
	if (WANT(nvme_complete_rq, status, stage) || WANT(nvme_complete_rq, raw_status, stage) ||
	    WANT(nvme_complete_rq, sct, stage) || WANT(nvme_complete_rq, sc, stage) || WANT(nvme_complete_rq, crd, stage) ||
	    WANT(nvme_complete_rq, more, stage) || WANT(nvme_complete_rq, dnr, stage)) {
		__u16 status = NVME_REQUEST(rq, status, GUESS_STATUS);

		SET(e, status, status_of(rq, status));
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
	if (OUTCOME_KNOWN)
		capture_outcome(e, rq, stage);
	CAPTURE_BLOCK(nvme_complete_rq, e, rq, BPF_CORE_READ(rq, io_start_time_ns), stage);
	COUNT_UNMATCHED(nvme_complete_rq, fl, stage);
	if (!fl)
		return;
	CAPTURE_INFLIGHT(nvme_complete_rq, e, rq, fl, stage);
	CAPTURE_CHAIN(nvme_complete_rq, e, fl, stage);
	if (WANT(nvme_complete_rq, latency, stage) || WANT(nvme_complete_rq, total_latency, stage)) {
		__u64 now = bpf_ktime_get_ns();

		if (WANT(nvme_complete_rq, latency, stage))
			SET(e, latency, now - fl->started);
		if (WANT(nvme_complete_rq, total_latency, stage) && fl->attempt)
			SET(e, total_latency, now - fl->first);
	}
	if (WANT(nvme_complete_rq, device_latency, stage) && fl->cqe)
		SET(e, device_latency, fl->cqe - fl->started);
}

/* Argument: struct request *. */
SEC("raw_tp/nvme_complete_rq")
int raw_tp_nvme_complete_rq(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	struct inflight *fl = 0;
	struct nvme_complete_rq e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	/* Another event may want what is kept, and this one must remove it. */
	if (ANY_KEPT)
		fl = inflight_of(ctx[0]);
	EMIT(nvme_complete_rq, ctx, &e, rq, fl);
	if (ANY_KEPT && fl && !fl->kept)
		inflight_end(fl);
	return 0;
}

static __always_inline void nvme_timeout_capture(struct nvme_timeout *e, struct request *rq, struct inflight *fl, enum stage stage)
{
	CAPTURE_TIME(nvme_timeout, e, stage);
	CAPTURE_REQUEST(nvme_timeout, e, rq, stage);
	COUNT_UNMATCHED(nvme_timeout, fl, stage);
	if (!fl)
		return;
	CAPTURE_INFLIGHT(nvme_timeout, e, rq, fl, stage);
	if (WANT(nvme_timeout, age, stage))
		SET(e, age, bpf_ktime_get_ns() - fl->started);
	if (WANT(nvme_timeout, timeouts, stage))
		SET(e, timeouts, fl->timeouts);
}

static __always_inline int timed_out(struct kprobe_regs *ctx)
{
	__u64 key = KPROBE_ARG0(ctx);
	struct inflight *fl = in_flight(key);
	struct nvme_timeout e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	if (fl && WANTED(nvme_timeout, timeouts))
		fl->timeouts++;
	EMIT(nvme_timeout, ctx, &e, (struct request *)key, fl);
	return 0;
}

/*
 * Each transport has a static function in its own module, so there is no fentry: the catalog knows the types of one module. The first
 * argument is the request on every kernel; some have a second one.
 */
#define ON_TIMEOUT(function) \
	SEC("kprobe/" #function) \
	int kprobe_nvme_timeout__##function(struct kprobe_regs *ctx) \
	{ \
		return timed_out(ctx); \
	}

ON_TIMEOUT(nvme_timeout)
ON_TIMEOUT(nvme_tcp_timeout)
ON_TIMEOUT(nvme_rdma_timeout)
ON_TIMEOUT(nvme_fc_timeout)

static __always_inline void nvme_failover_capture(struct nvme_failover *e, struct request *rq, struct inflight *fl, enum stage stage)
{
	CAPTURE_TIME(nvme_failover, e, stage);
	CAPTURE_REQUEST(nvme_failover, e, rq, stage);
	if (OUTCOME_KNOWN && (WANT(nvme_failover, status, stage) || WANT(nvme_failover, raw_status, stage))) {
		__u16 status = NVME_REQUEST(rq, status, GUESS_STATUS);

		SET(e, status, status & 0x7ff);
		SET(e, raw_status, status);
	}
	COUNT_UNMATCHED(nvme_failover, fl, stage);
	if (!fl)
		return;
	CAPTURE_INFLIGHT(nvme_failover, e, rq, fl, stage);
	if (WANT(nvme_failover, latency, stage))
		SET(e, latency, bpf_ktime_get_ns() - fl->started);
}

static __always_inline int failed_over(void *ctx, __u64 request, __u64 unused1, __u64 unused2)
{
	struct inflight *fl;
	struct nvme_failover e;
	__u64 key = 0;

	/* For fentry the argument is a pointer, and a pointer is not multiplied. What has been read is a number. */
	bpf_probe_read_kernel(&key, sizeof(key), &request);
	fl = inflight_of(key);
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(nvme_failover, ctx, &e, (struct request *)request, fl);
	/* The path keeps the request and moves the command to another request. */
	if (fl)
		inflight_end(fl);
	return 0;
}

ON_ENTER(nvme_failover, nvme_failover_req, 1, failed_over)

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
