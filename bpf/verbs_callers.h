/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who calls functions of the data path, for Go: a process whose QPs can send and that calls none may write the device's queues itself
 * (probes/verbs/unseen.go). Programs that are attached anyway keep it, once for each process.
 */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* process */
	__type(value, __u8);
} verbs_callers SEC(".maps");
/* The last one: it needs no look into the map. */
volatile __u32 verbs_caller;

static __always_inline void keep_caller(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u8 yes = 1;

	if (verbs_caller == tgid)
		return;
	if (!bpf_map_lookup_elem(&verbs_callers, &tgid))
		bpf_map_update_elem(&verbs_callers, &tgid, &yes, BPF_ANY);
	verbs_caller = tgid;
}
