//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The cgroups of a tree: one that user space names, and all below it, including those made later. Or all cgroups, each with the answer of
 * user space to a question about it. Generated code looks up the cgroup of each event.
 */
#include "trace.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	__u64 id;
};
struct cgroup_root {
	__s32 hierarchy_id;
};
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};
#pragma clang attribute pop

/* The number of the hierarchy in /proc/cgroups; 0 is cgroup v2. Cgroups of different hierarchies may have the same id. Go sets it. */
const volatile __s32 cgroups_hierarchy SEC(".rodata");

/* The answer, as generated code reads a boolean that may be absent. Whatever is in a tree has the same one. */
struct answer {
	__u64 yes;
	__u64 known;
};

/* The ids of the cgroups. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct answer);
} cgroups SEC(".maps");

/* How many did not fit. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} cgroups_full SEC(".maps");

static __always_inline void count_full(void)
{
	__u32 zero = 0;
	__u64 *full = bpf_map_lookup_elem(&cgroups_full, &zero);

	if (full)
		__sync_fetch_and_add(full, 1);
}

/*
 * Arguments: struct cgroup *, const char *path. No task can be in the new cgroup yet (cgroup_mkdir in kernel/cgroup/cgroup.c). It has the
 * answer of the one above, until user space corrects that.
 */
SEC("raw_tp/cgroup_mkdir")
int raw_tp_cgroups_made(__u64 *ctx)
{
	struct cgroup *cgroup = (void *)ctx[0];
	__u64 parent = BPF_CORE_READ(cgroup, self.parent, cgroup, kn, id);
	__u64 id = BPF_CORE_READ(cgroup, kn, id);
	struct answer *above, answer;

	if (BPF_CORE_READ(cgroup, root, hierarchy_id) != cgroups_hierarchy)
		return 0;
	above = bpf_map_lookup_elem(&cgroups, &parent);
	if (!above)
		return 0;
	answer = *above;
	if (bpf_map_update_elem(&cgroups, &id, &answer, BPF_ANY))
		count_full();
	return 0;
}

/*
 * Arguments: as above. A removed cgroup stays until nothing refers to it, for example pages that its tasks wrote. The kernel never
 * reuses an id.
 */
SEC("raw_tp/cgroup_release")
int raw_tp_cgroups_released(__u64 *ctx)
{
	struct cgroup *cgroup = (void *)ctx[0];
	__u64 id = BPF_CORE_READ(cgroup, kn, id);

	if (BPF_CORE_READ(cgroup, root, hierarchy_id) == cgroups_hierarchy)
		bpf_map_delete_elem(&cgroups, &id);
	return 0;
}
