//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hand-written equivalents of the programs in workloads.go, at the attach points that trace uses. The maps are per-CPU, and a
 * tracepoint of system calls is not entered twice on a CPU, so nothing is atomic.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* From linux/bpf.h (uapi). */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

#define THREADS 4096 /* bpftrace's max_map_keys */
#define REJECTED 9999 /* a number that no system call has */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} total SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, __u64);
} total_by_tid SEC(".maps");

/* For negative numbers, for 0, and for each power of two. */
struct buckets {
	__u64 n[2 + 63];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct buckets);
} buckets_by_key SEC(".maps");

static const __u64 no_total;
static const struct buckets no_buckets;

/* The value of key, which begins as zero. */
static __always_inline void *value_of(void *map, __u32 key, const void *zero)
{
	void *value = bpf_map_lookup_elem(map, &key);

	if (value)
		return value;
	bpf_map_update_elem(map, &key, zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, &key);
}

static __always_inline void add_to_total(void)
{
	__u32 only = 0;
	__u64 *n = bpf_map_lookup_elem(&total, &only);

	if (n)
		(*n)++;
}

static __always_inline __u32 log2_32(__u32 v)
{
	__u32 r, shift;

	r = (v > 0xffff) << 4;
	v >>= r;
	shift = (v > 0xff) << 3;
	v >>= shift;
	r |= shift;
	shift = (v > 0xf) << 2;
	v >>= shift;
	r |= shift;
	shift = (v > 0x3) << 1;
	v >>= shift;
	r |= shift;
	return r | v >> 1;
}

static __always_inline __u32 bucket(__s64 v)
{
	__u32 high = (__u64)v >> 32;

	if (v < 0)
		return 0;
	if (v == 0)
		return 1;
	return 2 + (high ? 32 + log2_32(high) : log2_32(v));
}

SEC("tp_btf/sys_enter")
int count(__u64 *ctx)
{
	add_to_total();
	return 0;
}

SEC("tp_btf/sys_enter")
int count_by_tid(__u64 *ctx)
{
	__u64 *n = value_of(&total_by_tid, bpf_get_current_pid_tgid(), &no_total);

	if (n)
		(*n)++;
	return 0;
}

SEC("tp_btf/sys_enter")
int hist_by_tid(__u64 *ctx)
{
	struct buckets *b = value_of(&buckets_by_key, bpf_get_current_pid_tgid(), &no_buckets);
	__u32 i = bucket(ctx[1]);

	if (b && i < sizeof(b->n) / sizeof(b->n[0]))
		b->n[i]++;
	return 0;
}

SEC("tp_btf/sys_enter")
int reject(__u64 *ctx)
{
	if (ctx[1] == REJECTED)
		add_to_total();
	return 0;
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct request_queue {
	void *queuedata;
};
struct blk_mq_hw_ctx {
	unsigned int queue_num;
};
struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
};
#pragma clang attribute pop

/* When each request was submitted, ns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} nvme_started SEC(".maps");

SEC("raw_tp/nvme_setup_cmd")
int nvme_submit(__u64 *ctx)
{
	__u64 key = ctx[0], now = bpf_ktime_get_ns();

	bpf_map_update_elem(&nvme_started, &key, &now, BPF_ANY);
	return 0;
}

SEC("raw_tp/nvme_complete_rq")
int nvme_complete(__u64 *ctx)
{
	__u64 key = ctx[0], now = bpf_ktime_get_ns();
	struct request *rq = (void *)key;
	__u64 *started = bpf_map_lookup_elem(&nvme_started, &key);
	__u32 i, qid = 0;
	struct buckets *b;

	if (!started)
		return 0;
	i = bucket(now - *started);
	bpf_map_delete_elem(&nvme_started, &key);
	if (BPF_CORE_READ(rq, q, queuedata))
		qid = BPF_CORE_READ(rq, mq_hctx, queue_num) + 1;
	b = value_of(&buckets_by_key, qid, &no_buckets);
	if (b && i < sizeof(b->n) / sizeof(b->n[0]))
		b->n[i]++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
