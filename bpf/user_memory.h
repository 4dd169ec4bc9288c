/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads of the memory of the current process, and how many of them fail. After this file, the helpers for that count. */
#pragma once
#include "trace.h"

/* The place in failed_reads of the probe whose program this is; 0: nothing is counted. Go sets it for each program. */
const volatile __u8 reader SEC(".rodata");

/* Place 0 has what did not fail. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u64);
} failed_reads SEC(".maps");

/* Without a branch on the result: see IS_NEGATIVE of verbs.bpf.c. */
static __always_inline __s64 counted_read(__s64 result)
{
	__u32 place;
	__u64 *n;

	if (!reader)
		return result;
	place = (__u32)(result >> 63) & reader;
	n = bpf_map_lookup_elem(&failed_reads, &place);
	if (n)
		*n += 1;
	return result;
}

#define bpf_probe_read_user(dst, size, from) counted_read((bpf_probe_read_user)(dst, size, from))
#define bpf_probe_read_user_str(dst, size, from) counted_read((bpf_probe_read_user_str)(dst, size, from))
