/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the probes of memory share: the flags of an allocation, the cgroup of a limit, and pages as bytes. */
#pragma once
#include "task.h"

/* ___GFP_*, include/linux/gfp_types.h: the bits that all kernels from 5.10 on have in common. */
enum gfp {
	gfp__DMA = 1 << 0,
	gfp__HIGHMEM = 1 << 1,
	gfp__DMA32 = 1 << 2,
	gfp__MOVABLE = 1 << 3,
	gfp__RECLAIMABLE = 1 << 4,
	gfp__HIGH = 1 << 5,
	gfp__IO = 1 << 6,
	gfp__FS = 1 << 7,
	gfp__ZERO = 1 << 8,
	gfp__DIRECT_RECLAIM = 1 << 10,
	gfp__KSWAPD_RECLAIM = 1 << 11,
	gfp__WRITE = 1 << 12,
	gfp__NOWARN = 1 << 13,
	gfp__RETRY_MAYFAIL = 1 << 14,
	gfp__NOFAIL = 1 << 15,
	gfp__NORETRY = 1 << 16,
	gfp__MEMALLOC = 1 << 17,
	gfp__COMP = 1 << 18,
	gfp__NOMEMALLOC = 1 << 19,
	gfp__HARDWALL = 1 << 20,
	gfp__THISNODE = 1 << 21,
	gfp__ACCOUNT = 1 << 22,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct cgroup_root {
	__s32 hierarchy_id;
};
struct cgroup___memory {
	struct kernfs_node *kn;
	struct cgroup_root *root;
};
struct cgroup_subsys {
	__s32 id;
};
struct cgroup_subsys_state {
	struct cgroup___memory *cgroup;
	struct cgroup_subsys *ss;
};
struct page_counter {
	unsigned long max;
};
struct mem_cgroup {
	struct cgroup_subsys_state css;
	struct page_counter memory;
};
#pragma clang attribute pop

/* Go sets it. */
const volatile __u8 page_shift SEC(".rodata");

/*
 * The id of the cgroup that a memory controller's state belongs to; false for none, and on a v1 host where the ids of cgroups are from
 * another controller's hierarchy. Hierarchy 0 is v2's (cgroup_init, kernel/cgroup/cgroup.c).
 */
static __always_inline bool cgroup_of_memory(struct mem_cgroup *memory, __u64 *id)
{
	if (!memory)
		return false;
	if (BPF_CORE_READ(memory, css.cgroup, root, hierarchy_id)) {
		if (BPF_CORE_READ(memory, css.ss, id) + 1 != cgroup_controller)
			return false;
	} else if (cgroup_controller != CGROUP_V2) {
		return false;
	}
	*id = BPF_CORE_READ(memory, css.cgroup, kn, id);
	return true;
}
