/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What trace.h takes of libbpf, for a program in user space that has one map: an array. */
#pragma once
#include <stddef.h>

#define SEC(name)
#define __always_inline inline __attribute__((always_inline))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) value *name

extern char slots[];
extern size_t slot_size;

#define bpf_map_lookup_elem(map, key) ((void *)(map), (void *)(slots + *(key) * slot_size))

/* Functions of the kernel that the tested code does not call. */
static inline unsigned long long bpf_get_current_cgroup_id(void) { return 0; }
static inline unsigned long long bpf_get_current_task(void) { return 0; }
