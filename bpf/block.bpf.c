//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The block layer: requests to disks, and the bios that they are made of, by raw tracepoints (include/trace/events/block.h). A bio of a device
 * without requests, like dm or md, is seen as the requests that it leads to on the disks below.
 */
#include "block_types.h"

/* The submitter of a request is the task that began it; interrupts and kernel threads carry it on. block_complete forgets it. */
#define NEEDS_SUBMITTER NEEDS(block_begun) NEEDS(block_handed) NEEDS(block_complete)

#define DISK_FIELDS \
	char disk[32] DOC("disk, like nvme0n1; absent from requests without one, like NVMe admin commands"); \
	hex32_t dev VERBOSE DOC("number of the disk: 0x10300 is 259:0; absent without a disk"); \
	enum block_op op DOC("what is done; drv_in and drv_out are commands of programs and drivers"); \
	enum block_flags flags FLAGS DOC("what else the submitter asks for; a write with PREFLUSH or FUA loses them where the block layer flushes for it")

#define IO_CGROUP(what) \
	cgroup_t io_cgroup DOC("cgroup whose io.stat counts the " what ", also for write-back; absent without data of a cgroup, and where the I/O controller is v1")

#define REQUEST_FIELDS \
	DISK_FIELDS; \
	__u64 sector DOC("first sector of 512 bytes; absent from flushes and from commands of programs and drivers"); \
	bytes_t bytes DOC("data of the request; of one that a device does in parts and gets again, the data of the last time"); \
	IO_CGROUP("request"); \
	hex64_t rq VERBOSE DOC("address of the kernel's request: the key from block:insert to block:complete")

#define REQUEST_HAS \
	TASK_HAS(); \
	__u32 disk : 1; \
	__u32 dev : 1; \
	__u32 sector : 1; \
	__u32 io_cgroup : 1

#define REQUEUES NEEDS(block_requeued) NEEDS(block_complete) DETAIL

#define QUEUE_LATENCY "time in the block layer, waits for a scheduler included; absent where the kernel takes no times"

struct block_insert {
	COMMON(NEEDS_SUBMITTER);
	REQUEST_FIELDS;
	struct {
		HAS_PAD;
		REQUEST_HAS;
	} has HAS_ALIGN;
} DOC("a request is put into the queue of a scheduler (raw tracepoint block_rq_insert), never where it goes directly to the driver; the task is the submitter");
EVENT(block_insert)
OF_BEGINNING(block_insert)

struct block_issue {
	COMMON(NEEDS_SUBMITTER);
	REQUEST_FIELDS;
	ns_t queue_latency DOC("from the beginning to here: " QUEUE_LATENCY);
	struct {
		HAS_PAD;
		REQUEST_HAS;
		__u32 queue_latency : 1;
	} has HAS_ALIGN;
} DOC("a request is handed to the driver (raw tracepoint block_rq_issue); the task is the submitter");
EVENT(block_issue)
OF_BEGINNING(block_issue)

struct block_complete {
	COMMON(NEEDS_SUBMITTER);
	REQUEST_FIELDS;
	enum block_status status DOC("how it ended; a number above 13 has no name, as its meaning depends on the kernel");
	ns_t latency DOC("from the beginning of the request, or of the oldest one that it was merged with, to here; absent where the kernel takes no times");
	ns_t queue_latency DOC("from the beginning until it was last handed to the driver: " QUEUE_LATENCY);
	ns_t device_latency VERBOSE DOC("from then to here; absent where the kernel takes no times");
	__u32 requeues REQUEUES DOC("how often the driver gave it back, since tracing began");
	__u32 merged DETAIL DOC("bios that were merged into it; absent above 127");
	struct {
		HAS_PAD;
		REQUEST_HAS;
		__u32 latency : 1;
		__u32 queue_latency : 1;
		__u32 device_latency : 1;
		__u32 merged : 1;
	} has HAS_ALIGN;
} DOC("a request has ended, once for all of its parts (raw tracepoint block_rq_complete); the task is the submitter");
EVENT(block_complete)
OF_BEGINNING(block_complete)

struct block_error {
	COMMON(NEEDS_SUBMITTER);
	REQUEST_FIELDS;
	enum block_status status DOC("what is wrong; a number above 13 has no name, as its meaning depends on the kernel");
	ns_t latency DOC("from the beginning of the request to here; absent where the kernel takes no times");
	struct {
		HAS_PAD;
		REQUEST_HAS;
		__u32 latency : 1;
	} has HAS_ALIGN;
} DOC("a request fails, and the kernel logs it (raw tracepoint block_rq_error, before 5.18 block_rq_complete); the task is the submitter");
EVENT(block_error)
OF_BEGINNING(block_error)

struct block_requeue {
	COMMON(NEEDS_SUBMITTER);
	REQUEST_FIELDS;
	__u32 requeues REQUEUES DOC("how often the driver gave it back, since tracing began, this time included");
	struct {
		HAS_PAD;
		REQUEST_HAS;
	} has HAS_ALIGN;
} DOC("the driver gives a request back, to get it again later (raw tracepoint block_rq_requeue); the task is the submitter");
EVENT(block_requeue)
OF_BEGINNING(block_requeue)

#define BIO_HAS \
	HAS_PAD; \
	__u32 disk : 1; \
	__u32 dev : 1; \
	__u32 io_cgroup : 1

enum block_merge_kind {
	block_merge_kind__back,
	block_merge_kind__front,
	block_merge_kind__request,
};

struct block_merge {
	COMMON();
	DISK_FIELDS;
	__u64 sector DOC("first sector of 512 bytes of what is merged");
	bytes_t bytes DOC("its size");
	IO_CGROUP("I/O");
	enum block_merge_kind kind DOC("a bio goes to the end or the beginning of a request, or a whole request goes to the end of another one");
	struct {
		BIO_HAS;
	} has HAS_ALIGN;
} DOC("a bio or a request becomes part of a request (raw tracepoints block_bio_backmerge, block_bio_frontmerge, block_rq_merge); the kernel has no tracepoint where discards become ranges of one request");
EVENT(block_merge)

struct block_split {
	COMMON();
	DISK_FIELDS;
	__u64 sector DOC("first sector of 512 bytes of the first part");
	bytes_t bytes DOC("size of the first part");
	__u64 rest DOC("first sector of the rest, which comes back as a bio of its own");
	IO_CGROUP("I/O");
	struct {
		BIO_HAS;
	} has HAS_ALIGN;
} DOC("a bio is too large for the disk, or crosses a border in it, and is split (raw tracepoint block_split)");
EVENT(block_split)

struct block_tag_wait {
	COMMON();
	DISK_FIELDS;
	__u32 queue DOC("number of the hardware queue that gave the tag");
	ns_t latency DOC("how long the submitter waited, from when it asked for a tag until it had one");
	struct {
		HAS_PAD;
		__u32 disk : 1;
		__u32 dev : 1;
	} has HAS_ALIGN;
} DOC("a submitter has slept because all tags of a queue were in use: its depth is exhausted (blk_mq_get_tag)");
EVENT(block_tag_wait)
OF_NESTED_CALL(block_tag_wait)

ARGUMENTS(block_rq_insert);
ARGUMENTS(block_rq_issue);
ARGUMENTS(block_rq_merge);
ARGUMENTS(block_rq_requeue);

/* The request of a tracepoint. Before 5.11 (a54895fa057c) struct request_queue * came first. */
#define REQUEST(ctx, tracepoint) (struct request *)(tracepoint##_arguments == 2 ? ARGUMENT(ctx, 1) : ARGUMENT(ctx, 0))

/* The task that began a request. */
struct submitter {
	bool known;
	__u32 pid, tid, uid;
	__u64 began;
	__u64 cgroup;
	char comm[16];
	KEPT_OF_TASK;
};

/* By request. Go sets the size of this map and the next from the queues of the disks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct submitter);
} block_begun SEC(".maps");

/* Whether any event of a request satisfies test(X, ...). */
#define ANY_REQUEST(test, ...) \
	(test(block_insert, ##__VA_ARGS__) || test(block_issue, ##__VA_ARGS__) || test(block_complete, ##__VA_ARGS__) || \
	 test(block_error, ##__VA_ARGS__) || test(block_requeue, ##__VA_ARGS__))
#define WANTED_OF_SUBMITTER(field) ANY_REQUEST(WANTED, field)

/* Whether event X wants the submitter. */
#define SUBMITTER_WANTED(X) \
	(WANTED(X, pid) || WANTED(X, tid) || WANTED(X, uid) || WANTED(X, cgroup) || WANTED(X, comm) || ANY_OF_TASK(WANTED_FIELD, X))

static __always_inline void keep_current(struct submitter *s)
{
	s->known = true;
	if (WANTED_OF_SUBMITTER(pid) || WANTED_OF_SUBMITTER(tid)) {
		__u64 task = bpf_get_current_pid_tgid();

		s->pid = task >> 32;
		s->tid = task;
	}
	if (WANTED_OF_SUBMITTER(uid))
		s->uid = bpf_get_current_uid_gid();
	if (WANTED_OF_SUBMITTER(cgroup))
		s->cgroup = current_cgroup();
	if (WANTED_OF_SUBMITTER(comm))
		bpf_get_current_comm(s->comm, sizeof(s->comm));
	if (ANY_OF_TASK(WANTED_OF_SUBMITTER))
		READ_OF_TASK(s, bpf_get_current_task(), WANTED_OF_SUBMITTER);
}

ARGUMENTS(block_io_start);
#define HAS_IO_START (block_io_start_arguments != 0)

#define FLUSH_SEQ (1 << 4) /* RQF_FLUSH_SEQ, include/linux/blkdev.h, in all kernels without block_io_start */

/*
 * Without block_io_start the first one to insert or to issue a request is its submitter, except where a flush goes before it: then a kernel
 * thread issues it, and the submitter is unknown. start_time_ns distinguishes a request from the next one at its address; it becomes
 * earlier if the request is merged with an older one.
 */
static __always_inline void keep_submitter(struct request *rq)
{
	struct submitter s, *kept;
	__u64 key = (__u64)rq;

	__builtin_memset(&s, 0, sizeof(s));
	s.began = BPF_CORE_READ(rq, start_time_ns);
	if (!HAS_IO_START) {
		kept = bpf_map_lookup_elem(&block_begun, &key);
		if (kept && kept->began >= s.began)
			return;
	}
	if (HAS_IO_START || (s.began && !(BPF_CORE_READ(rq, rq_flags) & FLUSH_SEQ)))
		keep_current(&s);
	if (bpf_map_update_elem(&block_begun, &key, &s, BPF_ANY))
		block_complete_count(INFLIGHT_FULL);
}

/* block_io_start has the request as its only argument. */
SEC("raw_tp/block_io_start")
int raw_tp_block_begun(__u64 *ctx)
{
	keep_submitter(HAS_IO_START ? (void *)ARGUMENT(ctx, 0) : REQUEST(ctx, block_rq_insert));
	return 0;
}

SEC("raw_tp/block_rq_issue")
int raw_tp_block_handed(__u64 *ctx)
{
	if (!HAS_IO_START)
		keep_submitter(REQUEST(ctx, block_rq_issue));
	return 0;
}

/* How often requests came back, of those in flight that did. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u32);
} block_requeued SEC(".maps");

#define REQUEUES_WANTED (WANTED(block_complete, requeues) || WANTED(block_requeue, requeues))

SEC("raw_tp/block_rq_requeue")
int raw_tp_block_requeued(__u64 *ctx)
{
	__u64 key = (__u64)REQUEST(ctx, block_rq_requeue);
	__u32 *times = bpf_map_lookup_elem(&block_requeued, &key);
	__u32 once = 1;

	if (times)
		++*times;
	else if (bpf_map_update_elem(&block_requeued, &key, &once, BPF_ANY))
		block_complete_count(INFLIGHT_FULL);
	return 0;
}

static __always_inline __u32 requeues_of(struct request *rq)
{
	__u64 key = (__u64)rq;
	__u32 *times = bpf_map_lookup_elem(&block_requeued, &key);

	return times ? *times : 0;
}

static __always_inline struct submitter *submitter_of(struct request *rq)
{
	__u64 key = (__u64)rq;

	return bpf_map_lookup_elem(&block_begun, &key);
}

/*
 * Whether the beginning of a request cannot be seen: of the flushes of the block layer itself, and without block_io_start of a flush that a
 * program asks for, a write without data, which no driver gets.
 */
static __always_inline bool begins_unseen(struct request *rq)
{
	return op_of(BPF_CORE_READ(rq, cmd_flags)) == block_op__flush || (!HAS_IO_START && !BPF_CORE_READ(rq, __data_len));
}

#define CAPTURE_SUBMITTER(X, e, rq, s, stage) \
	do { \
		if (SUBMITTER_WANTED(X)) \
			COUNT_UNMATCHED(X, (s) || begins_unseen(rq), stage); \
		if (!(s) || !(s)->known) \
			break; \
		if (WANT(X, pid, stage)) \
			SET(e, pid, (s)->pid); \
		if (WANT(X, tid, stage)) \
			SET(e, tid, (s)->tid); \
		if (WANT(X, uid, stage)) \
			SET(e, uid, (s)->uid); \
		if (WANT(X, cgroup, stage)) \
			SET(e, cgroup, (s)->cgroup); \
		if (WANT(X, comm, stage)) { \
			__builtin_memcpy((e)->comm, (s)->comm, sizeof((e)->comm)); \
			(e)->has.comm = 1; \
		} \
		CAPTURE_KEPT_OF_TASK(X, e, s, stage); \
	} while (0)

/* What of a request is left: the kernel moves its beginning where a device does it in parts. */
static __always_inline __u64 bytes_of(struct request *rq)
{
	__u64 issued = (__u64)BPF_CORE_READ(rq, stats_sectors) << 9, left = BPF_CORE_READ(rq, __data_len);

	return issued > left ? issued : left;
}

/* asked is cmd_flags or bi_opf; it and the disk are read only if they are needed. */
#define CAPTURE_DISK(X, e, on, asked, stage) \
	do { \
		struct gendisk *disk = 0; \
		__u32 all = 0; \
		if (WANT(X, disk, stage) || WANT(X, dev, stage)) \
			disk = on; \
		if (WANT(X, disk, stage) && disk && READ_STRING((e)->disk, &disk->disk_name) > 1) \
			(e)->has.disk = 1; \
		if (WANT(X, dev, stage) && disk) \
			SET(e, dev, dev_of(disk)); \
		if (WANT(X, op, stage) || WANT(X, flags, stage)) \
			all = asked; \
		if (WANT(X, op, stage)) \
			(e)->op = op_of(all); \
		if (WANT(X, flags, stage)) \
			(e)->flags = flags_of(all); \
	} while (0)

#define CAPTURE_IO_CGROUP(X, e, bio, stage) \
	do { \
		if (WANT(X, io_cgroup, stage)) { \
			__u64 cgroup = io_cgroup_of(bio); \
			if (cgroup) \
				SET(e, io_cgroup, cgroup); \
		} \
	} while (0)

static __always_inline bool has_sector(enum block_op op)
{
	return op != block_op__flush && !is_passthrough(op);
}

/* length is what the request had when it was issued. */
#define CAPTURE_REQUEST(X, e, rq, length, stage) \
	do { \
		CAPTURE_DISK(X, e, disk_of(rq), BPF_CORE_READ(rq, cmd_flags), stage); \
		if (WANT(X, sector, stage) && has_sector(op_of(BPF_CORE_READ(rq, cmd_flags)))) \
			SET(e, sector, BPF_CORE_READ(rq, __sector) - ((length) - BPF_CORE_READ(rq, __data_len)) / 512); \
		if (WANT(X, bytes, stage)) \
			(e)->bytes = length; \
		CAPTURE_IO_CGROUP(X, e, BPF_CORE_READ(rq, bio), stage); \
		if (WANT(X, rq, stage)) \
			(e)->rq = (__u64)(rq); \
	} while (0)

/* The program of an event whose capture gets the request and its submitter. */
#define ON_REQUEST(X, tracepoint) \
	SEC("raw_tp/" #tracepoint) \
	int raw_tp_##X(__u64 *ctx) \
	{ \
		struct request *rq = REQUEST(ctx, tracepoint); \
		struct submitter *s = SUBMITTER_WANTED(X) ? submitter_of(rq) : 0; \
		struct X e; \
\
		__builtin_memset(&e.has, 0, sizeof(e.has)); \
		EMIT(X, ctx, &e, rq, s); \
		return 0; \
	}

static __always_inline void block_insert_capture(struct block_insert *e, struct request *rq, struct submitter *s, enum stage stage)
{
	CAPTURE_TIME(block_insert, e, stage);
	CAPTURE_SUBMITTER(block_insert, e, rq, s, stage);
	CAPTURE_REQUEST(block_insert, e, rq, BPF_CORE_READ(rq, __data_len), stage);
}

ON_REQUEST(block_insert, block_rq_insert)

static __always_inline void block_issue_capture(struct block_issue *e, struct request *rq, struct submitter *s, enum stage stage)
{
	CAPTURE_TIME(block_issue, e, stage);
	CAPTURE_SUBMITTER(block_issue, e, rq, s, stage);
	CAPTURE_REQUEST(block_issue, e, rq, BPF_CORE_READ(rq, __data_len), stage);
	if (WANT(block_issue, queue_latency, stage)) {
		__u64 began = began_at(rq);

		if (began)
			SET(e, queue_latency, bpf_ktime_get_ns() - began);
	}
}

ON_REQUEST(block_issue, block_rq_issue)

#define MOST_MERGED 127

/*
 * How many bios a request has beside its first one; more than MOST_MERGED if these are too many to count. bpf_core_read returns 0, which the
 * verifier does not know: for it all numbers are the same. Otherwise it would go through the rest of the program for each.
 */
static __always_inline __u32 merged_in(struct request *rq)
{
	struct bio *bio = BPF_CORE_READ(rq, bio);
	__u32 n = 0;

	if (!bio)
		return 0;
	for (__u32 i = 0; i <= MOST_MERGED; i++) {
		n += bpf_core_read(&bio, sizeof(bio), &bio->bi_next);
		if (!bio)
			break;
		n++;
	}
	return n;
}

/* The times that the kernel took are of CLOCK_MONOTONIC: ktime_get_ns, since 6.9 blk_time_get_ns in block/blk.h. */
static __always_inline void capture_times(struct block_complete *e, struct request *rq, enum stage stage)
{
	__u64 began = 0, issued = 0, now = 0;

	if (WANT(block_complete, latency, stage) || WANT(block_complete, queue_latency, stage))
		began = began_at(rq);
	if (WANT(block_complete, queue_latency, stage) || WANT(block_complete, device_latency, stage))
		issued = BPF_CORE_READ(rq, io_start_time_ns);
	if (WANT(block_complete, latency, stage) || WANT(block_complete, device_latency, stage))
		now = bpf_ktime_get_ns();
	if (WANT(block_complete, latency, stage) && began)
		SET(e, latency, now - began);
	if (WANT(block_complete, queue_latency, stage) && began && issued)
		SET(e, queue_latency, issued - began);
	if (WANT(block_complete, device_latency, stage) && issued)
		SET(e, device_latency, now - issued);
}

static __always_inline void block_complete_capture(struct block_complete *e, struct request *rq, __s32 error, struct submitter *s,
						   enum stage stage)
{
	CAPTURE_TIME(block_complete, e, stage);
	CAPTURE_SUBMITTER(block_complete, e, rq, s, stage);
	CAPTURE_REQUEST(block_complete, e, rq, bytes_of(rq), stage);
	if (WANT(block_complete, status, stage))
		e->status = block_status_of(error);
	capture_times(e, rq, stage);
	if (WANT(block_complete, requeues, stage))
		e->requeues = requeues_of(rq);
	if (WANT(block_complete, merged, stage)) {
		__u32 merged = merged_in(rq);

		if (merged <= MOST_MERGED)
			SET(e, merged, merged);
	}
}

/*
 * Whether a write has been reported already. The block layer ends one with PREFLUSH or FUA twice: with its data, and, after a flush that may
 * follow, without (blk_flush_complete_seq, block/blk-flush.c). A flush that a program asks for is a write that never had data.
 */
static __always_inline bool ended_before(struct request *rq)
{
	return op_of(BPF_CORE_READ(rq, cmd_flags)) == block_op__write && BPF_CORE_READ(rq, bio, bi_io_vec);
}

/* Arguments: struct request *, blk_status_t, or before 5.16 int, and unsigned int, the bytes that are done. */
SEC("raw_tp/block_rq_complete")
int raw_tp_block_complete(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	struct submitter *s = ANY_REQUEST(SUBMITTER_WANTED) ? submitter_of(rq) : 0;
	__u32 done = ctx[2];
	__u64 key = ctx[0];
	struct block_complete e;

	if (done < BPF_CORE_READ(rq, __data_len) || (!done && ended_before(rq)))
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(block_complete, ctx, &e, rq, ctx[1], s);
	/* block_rq_error comes after this. The next request at this address replaces the submitter. */
	if (ANY_REQUEST(SUBMITTER_WANTED) && s && !(__s32)ctx[1])
		bpf_map_delete_elem(&block_begun, &key);
	if (REQUEUES_WANTED)
		bpf_map_delete_elem(&block_requeued, &key); /* few requests have an entry */
	return 0;
}

static __always_inline void block_error_capture(struct block_error *e, struct request *rq, __s32 error, struct submitter *s, enum stage stage)
{
	CAPTURE_TIME(block_error, e, stage);
	CAPTURE_SUBMITTER(block_error, e, rq, s, stage);
	CAPTURE_REQUEST(block_error, e, rq, bytes_of(rq), stage);
	if (WANT(block_error, status, stage))
		e->status = block_status_of(error);
	if (WANT(block_error, latency, stage)) {
		__u64 began = began_at(rq);

		if (began)
			SET(e, latency, bpf_ktime_get_ns() - began);
	}
}

ARGUMENTS(block_rq_error);

#define QUIET (1 << 11) /* RQF_QUIET, include/linux/blkdev.h, in all kernels without block_rq_error */

/* Whether the kernel logs the end of a request as an error, where it has no tracepoint for that: blk_update_request, block/blk-core.c. */
static __always_inline bool is_logged(struct request *rq, __s32 error)
{
	return error && !is_passthrough(op_of(BPF_CORE_READ(rq, cmd_flags))) && !(BPF_CORE_READ(rq, rq_flags) & QUIET);
}

/* Arguments as of block_rq_complete. */
SEC("raw_tp/block_rq_error")
int raw_tp_block_error(__u64 *ctx)
{
	struct request *rq = (void *)ctx[0];
	struct submitter *s;
	struct block_error e;

	if (block_rq_error_arguments == 0 && !is_logged(rq, ctx[1]))
		return 0;
	s = SUBMITTER_WANTED(block_error) ? submitter_of(rq) : 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(block_error, ctx, &e, rq, ctx[1], s);
	return 0;
}

static __always_inline void block_requeue_capture(struct block_requeue *e, struct request *rq, struct submitter *s, enum stage stage)
{
	CAPTURE_TIME(block_requeue, e, stage);
	CAPTURE_SUBMITTER(block_requeue, e, rq, s, stage);
	CAPTURE_REQUEST(block_requeue, e, rq, BPF_CORE_READ(rq, __data_len), stage);
	if (WANT(block_requeue, requeues, stage))
		e->requeues = requeues_of(rq);
}

ON_REQUEST(block_requeue, block_rq_requeue)

#define CAPTURE_BIO(X, e, bio, stage) \
	do { \
		CAPTURE_DISK(X, e, disk_of_bio(bio), BPF_CORE_READ(bio, bi_opf), stage); \
		if (WANT(X, sector, stage)) \
			(e)->sector = BPF_CORE_READ(bio, bi_iter.bi_sector); \
		if (WANT(X, bytes, stage)) \
			(e)->bytes = BPF_CORE_READ(bio, bi_iter.bi_size); \
		CAPTURE_IO_CGROUP(X, e, bio, stage); \
	} while (0)

/* What is merged is the bio, or the request if there is none. */
static __always_inline void block_merge_capture(struct block_merge *e, struct bio *bio, struct request *rq, enum block_merge_kind kind,
						enum stage stage)
{
	CAPTURE_COMMON(block_merge, e, stage);
	if (WANT(block_merge, kind, stage))
		e->kind = kind;
	if (bio) {
		CAPTURE_BIO(block_merge, e, bio, stage);
		return;
	}
	CAPTURE_DISK(block_merge, e, disk_of(rq), BPF_CORE_READ(rq, cmd_flags), stage);
	if (WANT(block_merge, sector, stage))
		e->sector = BPF_CORE_READ(rq, __sector);
	if (WANT(block_merge, bytes, stage))
		e->bytes = BPF_CORE_READ(rq, __data_len);
	CAPTURE_IO_CGROUP(block_merge, e, BPF_CORE_READ(rq, bio), stage);
}

static __always_inline int merged(__u64 *ctx, struct bio *bio, struct request *rq, enum block_merge_kind kind)
{
	struct block_merge e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(block_merge, ctx, &e, bio, rq, kind);
	return 0;
}

ARGUMENTS(block_bio_backmerge);
ARGUMENTS(block_bio_frontmerge);

/* The bio of a tracepoint. Before 5.11 (e8a676d61c07) struct request_queue * and struct request * came first. */
#define MERGED_BIO(ctx, tracepoint) (struct bio *)(tracepoint##_arguments == 3 ? ARGUMENT(ctx, 2) : ARGUMENT(ctx, 0))

SEC("raw_tp/block_bio_backmerge")
int raw_tp_block_merge(__u64 *ctx)
{
	return merged(ctx, MERGED_BIO(ctx, block_bio_backmerge), 0, block_merge_kind__back);
}

SEC("raw_tp/block_bio_frontmerge")
int raw_tp_block_merge__block_bio_frontmerge(__u64 *ctx)
{
	return merged(ctx, MERGED_BIO(ctx, block_bio_frontmerge), 0, block_merge_kind__front);
}

SEC("raw_tp/block_rq_merge")
int raw_tp_block_merge__block_rq_merge(__u64 *ctx)
{
	return merged(ctx, 0, REQUEST(ctx, block_rq_merge), block_merge_kind__request);
}

static __always_inline void block_split_capture(struct block_split *e, struct bio *bio, __u64 rest, enum stage stage)
{
	CAPTURE_COMMON(block_split, e, stage);
	CAPTURE_BIO(block_split, e, bio, stage);
	if (WANT(block_split, rest, stage))
		e->rest = rest;
}

ARGUMENTS(block_split);

/* Arguments: struct bio *, the first part, and unsigned int. Before 5.11 (eb6f7f7cd3af) struct request_queue * came first. */
SEC("raw_tp/block_split")
int raw_tp_block_split(__u64 *ctx)
{
	bool old = block_split_arguments == 3;
	__u64 bio = old ? ARGUMENT(ctx, 1) : ARGUMENT(ctx, 0);
	__u64 rest = old ? ARGUMENT(ctx, 2) : ARGUMENT(ctx, 1);
	struct block_split e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(block_split, ctx, &e, (struct bio *)bio, (__u32)rest);
	return 0;
}

/* A call of blk_mq_get_tag. It sleeps only to wait for a tag, so a thread that left the CPU by its own will has waited. */
struct asked {
	__u64 began;
	__u64 data;
	__u64 switches;
};

KEPT(block_tag_wait_calls, thread, struct asked, 8192)

static __always_inline __u64 switches_of_current(void)
{
	return BPF_CORE_READ((struct task_struct___switches *)bpf_get_current_task(), nvcsw);
}

static __always_inline int ask_for_tag(void *ctx, __u64 data, __u64 unused1, __u64 unused2)
{
	struct asked asked = {.began = bpf_ktime_get_ns(), .data = data, .switches = switches_of_current()};

	BEGIN_CALL(block_tag_wait, block_tag_wait_calls, &asked);
	return 0;
}

static __always_inline void block_tag_wait_capture(struct block_tag_wait *e, struct asked *asked, enum stage stage)
{
	struct blk_mq_alloc_data *data = (void *)asked->data;

	CAPTURE_COMMON(block_tag_wait, e, stage);
	CAPTURE_DISK(block_tag_wait, e, disk_of_queue(BPF_CORE_READ(data, q)), BPF_CORE_READ(data, cmd_flags), stage);
	if (WANT(block_tag_wait, queue, stage))
		e->queue = BPF_CORE_READ(data, hctx, queue_num);
	if (WANT(block_tag_wait, latency, stage))
		e->latency = bpf_ktime_get_ns() - asked->began;
}

static __always_inline int got_tag(void *ctx, __s64 ret)
{
	struct asked *asked = block_tag_wait_calls_of(bpf_get_current_pid_tgid());
	struct block_tag_wait e;

	if (block_tag_wait_unseen(asked))
		return 0;
	if (asked->switches != switches_of_current()) {
		__builtin_memset(&e.has, 0, sizeof(e.has));
		EMIT(block_tag_wait, ctx, &e, asked);
	}
	block_tag_wait_calls_end(asked);
	return 0;
}

ON_CALL(block_tag_wait, blk_mq_get_tag, 1, ask_for_tag, got_tag)
