/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Views of the block layer's requests and bios (include/linux/blk-mq.h, blk_types.h), and what they are in words. */
#pragma once
#include "trace.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
};
struct kobject {
	const char *name;
	struct kobject *parent;
};
struct device {
	struct kobject kobj;
};
struct hd_struct {
	struct device __dev;
};
struct gendisk___part0 { /* before 5.11 */
	struct hd_struct part0;
};
struct blk_mq_tag_set;
struct request_queue {
	void *queuedata;
	struct blk_mq_tag_set *tag_set;
	struct gendisk *disk; /* absent in 5.10, where the request has rq_disk */
	struct kobject kobj;
};
struct blk_mq_hw_ctx {
	__u32 queue_num;
};
struct blk_mq_alloc_data {
	struct request_queue *q;
	__u32 cmd_flags;
	struct blk_mq_hw_ctx *hctx;
};
struct cgroup_root___io {
	int hierarchy_id;
};
struct kernfs_node___io {
	__u64 id;
};
struct cgroup___io {
	struct kernfs_node___io *kn;
	struct cgroup_root___io *root;
};
struct cgroup_subsys_state___io {
	struct cgroup___io *cgroup;
};
struct blkcg {
	struct cgroup_subsys_state___io css;
};
struct blkcg_gq {
	struct blkcg *blkcg;
};
struct bvec_iter {
	__u64 bi_sector;
	__u32 bi_size;
};
struct block_device {
	struct gendisk *bd_disk;
};
struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	__u32 bi_opf;
	struct bvec_iter bi_iter;
	void *bi_io_vec;
	struct blkcg_gq *bi_blkg;
};
struct bio___bi_disk { /* before 5.12 */
	struct gendisk *bi_disk;
};
struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	__u32 cmd_flags;
	__u32 rq_flags;
	__u32 __data_len;
	__u64 __sector;
	struct bio *bio;
	__u64 start_time_ns;
	__u64 io_start_time_ns;
	__u16 stats_sectors;
};
struct request___rq_disk {
	struct gendisk *rq_disk;
};
struct task_struct___switches {
	unsigned long nvcsw;
};
#pragma clang attribute pop

/* REQ_OP_*, enum req_op in include/linux/blk_types.h; before 6.0 zones had other numbers, see op_of. */
enum block_op {
	block_op__read = 0,
	block_op__write = 1,
	block_op__flush = 2,
	block_op__discard = 3,
	block_op__secure_erase = 5,
	block_op__zone_append = 7,
	block_op__write_zeroes = 9,
	block_op__zone_open = 11,
	block_op__zone_close = 13,
	block_op__zone_finish = 15,
	block_op__zone_reset = 17,
	block_op__zone_reset_all = 19,
	block_op__scsi_in = 32,
	block_op__scsi_out = 33,
	block_op__drv_in = 34,
	block_op__drv_out = 35,
	block_op__write_same = 256, /* before 5.18, there 7 */
};

enum req_opf { /* before 6.0 */
	REQ_OP_WRITE_SAME,
	REQ_OP_ZONE_OPEN,
	REQ_OP_ZONE_CLOSE,
	REQ_OP_ZONE_FINISH,
	REQ_OP_ZONE_APPEND,
	REQ_OP_ZONE_RESET,
	REQ_OP_ZONE_RESET_ALL,
};

#define OP_MASK 0xff /* REQ_OP_BITS */
#define OP_IS(op, name) \
	(bpf_core_enum_value_exists(enum req_opf, REQ_OP_##name) && (op) == bpf_core_enum_value(enum req_opf, REQ_OP_##name))

enum rqf_flags { /* since 6.11 */
	__RQF_IO_STAT,
};

/*
 * When a request began; 0 if the kernel took no time. It takes none of a command of a program that io.stat does not count. Until 6.12 the
 * field is 0 then; 7.2 leaves what the request's use before had in it.
 */
static __always_inline __u64 began_at(struct request *rq)
{
	__u32 op = BPF_CORE_READ(rq, cmd_flags) & OP_MASK;

	if (op >= block_op__scsi_in && op <= block_op__drv_out && bpf_core_enum_value_exists(enum rqf_flags, __RQF_IO_STAT) &&
	    !(BPF_CORE_READ(rq, rq_flags) >> bpf_core_enum_value(enum rqf_flags, __RQF_IO_STAT) & 1))
		return 0;
	return BPF_CORE_READ(rq, start_time_ns);
}

static __always_inline enum block_op op_of(__u32 flags)
{
	__u32 op = flags & OP_MASK;

	if (!bpf_core_type_exists(enum req_opf))
		return op;
	if (OP_IS(op, WRITE_SAME))
		return block_op__write_same;
	if (OP_IS(op, ZONE_OPEN))
		return block_op__zone_open;
	if (OP_IS(op, ZONE_CLOSE))
		return block_op__zone_close;
	if (OP_IS(op, ZONE_FINISH))
		return block_op__zone_finish;
	if (OP_IS(op, ZONE_APPEND))
		return block_op__zone_append;
	if (OP_IS(op, ZONE_RESET))
		return block_op__zone_reset;
	if (OP_IS(op, ZONE_RESET_ALL))
		return block_op__zone_reset_all;
	return op;
}

/* Requests of a driver or a program, past the file systems: blk_op_is_passthrough, include/linux/blk-mq.h. */
static __always_inline bool is_passthrough(enum block_op op)
{
	return op >= block_op__scsi_in && op <= block_op__drv_out;
}

/* What a request asks for beside its operation: REQ_*, with bits of our own, as their numbers differ. */
enum block_flags {
	block_flags__SYNC = 1,
	block_flags__META = 2,
	block_flags__PRIO = 4,
	block_flags__FUA = 8,
	block_flags__PREFLUSH = 16,
	block_flags__RAHEAD = 32,
	block_flags__BACKGROUND = 64,
	block_flags__NOWAIT = 128,
	block_flags__POLLED = 256,
	block_flags__SWAP = 512,
};

/* The numbers come from the running kernel, by bpf_core_enum_value. REQ_DRV is REQ_NVME_MPATH (drivers/nvme/host/nvme.h). */
enum req_flag_bits {
	__REQ_FAILFAST_DEV,
	__REQ_FAILFAST_TRANSPORT,
	__REQ_FAILFAST_DRIVER,
	__REQ_INTEGRITY,
	__REQ_DRV,
	__REQ_SYNC,
	__REQ_META,
	__REQ_PRIO,
	__REQ_FUA,
	__REQ_PREFLUSH,
	__REQ_RAHEAD,
	__REQ_BACKGROUND,
	__REQ_NOWAIT,
	__REQ_POLLED,
	__REQ_HIPRI, /* POLLED, before 5.16 */
	__REQ_SWAP,
};
#define FLAG_OF(flags, bit, name) \
	(bpf_core_enum_value_exists(enum req_flag_bits, __REQ_##bit) && \
			 ((flags) >> bpf_core_enum_value(enum req_flag_bits, __REQ_##bit) & 1) ? \
		 block_flags__##name : \
		 0)

static __always_inline enum block_flags flags_of(__u32 flags)
{
	return FLAG_OF(flags, SYNC, SYNC) | FLAG_OF(flags, META, META) | FLAG_OF(flags, PRIO, PRIO) | FLAG_OF(flags, FUA, FUA) |
	       FLAG_OF(flags, PREFLUSH, PREFLUSH) | FLAG_OF(flags, RAHEAD, RAHEAD) | FLAG_OF(flags, BACKGROUND, BACKGROUND) |
	       FLAG_OF(flags, NOWAIT, NOWAIT) | FLAG_OF(flags, POLLED, POLLED) | FLAG_OF(flags, HIPRI, POLLED) | FLAG_OF(flags, SWAP, SWAP);
}

/* BLK_STS_*, include/linux/blk_types.h. Above these the numbers differ between kernels. */
enum block_status {
	block_status__OK,
	block_status__NOTSUPP,
	block_status__TIMEOUT,
	block_status__NOSPC,
	block_status__TRANSPORT,
	block_status__TARGET,
	block_status__RESV_CONFLICT,
	block_status__MEDIUM,
	block_status__PROTECTION,
	block_status__RESOURCE,
	block_status__IOERR,
	block_status__DM_REQUEUE,
	block_status__AGAIN,
	block_status__DEV_RESOURCE,
};

/* The status of a request from the argument of its tracepoint. Before 5.16 that is a number of errno.h: blk_errors in block/blk-core.c. */
static __always_inline enum block_status block_status_of(__s32 error)
{
	switch (-error) {
	case 5: /* EIO */
		return block_status__IOERR;
	case 11: /* EAGAIN */
		return block_status__AGAIN;
	case 12: /* ENOMEM */
		return block_status__RESOURCE;
	case 16: /* EBUSY */
		return block_status__DEV_RESOURCE;
	case 28: /* ENOSPC */
		return block_status__NOSPC;
	case 52: /* EBADE */
		return block_status__RESV_CONFLICT;
	case 61: /* ENODATA */
		return block_status__MEDIUM;
	case 67: /* ENOLINK */
		return block_status__TRANSPORT;
	case 78: /* EREMCHG */
		return block_status__DM_REQUEUE;
	case 84: /* EILSEQ */
		return block_status__PROTECTION;
	case 95: /* EOPNOTSUPP */
		return block_status__NOTSUPP;
	case 110: /* ETIMEDOUT */
		return block_status__TIMEOUT;
	case 121: /* EREMOTEIO */
		return block_status__TARGET;
	default:
		return error;
	}
}

static __always_inline struct gendisk *disk_of(struct request *rq)
{
	struct request___rq_disk *old = (void *)rq;

	if (bpf_core_field_exists(old->rq_disk))
		return BPF_CORE_READ(old, rq_disk);
	return BPF_CORE_READ(rq, q, disk);
}

static __always_inline struct gendisk *disk_of_bio(struct bio *bio)
{
	struct bio___bi_disk *old = (void *)bio;

	if (bpf_core_field_exists(old->bi_disk))
		return BPF_CORE_READ(old, bi_disk);
	return BPF_CORE_READ(bio, bi_bdev, bd_disk);
}

/* In 5.10 a queue is below its disk in sysfs: blk_register_queue, block/blk-sysfs.c. */
static __always_inline struct gendisk *disk_of_queue(struct request_queue *q)
{
	struct gendisk___part0 *old = 0;
	void *parent;

	if (bpf_core_field_exists(q->disk))
		return BPF_CORE_READ(q, disk);
	if (!bpf_core_field_exists(old->part0.__dev.kobj))
		return 0;
	parent = BPF_CORE_READ(q, kobj.parent);
	return parent ? parent - bpf_core_field_offset(struct gendisk___part0, part0.__dev.kobj) : 0;
}

/* The number of a disk, as user space encodes it: new_encode_dev, include/linux/kdev_t.h. */
static __always_inline __u32 dev_of(struct gendisk *disk)
{
	__u32 minor = BPF_CORE_READ(disk, first_minor);

	return (minor & 0xff) | BPF_CORE_READ(disk, major) << 8 | (minor & ~0xff) << 12;
}

/*
 * The cgroup that a bio belongs to: the one whose io.stat counts it, of the task that made the data dirty if this is write-back. 0 if that is
 * unknown: the bio has none, the kernel has no controller of I/O, or that is in a v1 hierarchy, whose numbers mean nothing in v2.
 */
static __always_inline __u64 io_cgroup_of(struct bio *bio)
{
	struct cgroup___io *cgroup;

	if (!bpf_core_field_exists(bio->bi_blkg))
		return 0;
	cgroup = BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup);
	if (BPF_CORE_READ(cgroup, root, hierarchy_id))
		return 0;
	return BPF_CORE_READ(cgroup, kn, id);
}
