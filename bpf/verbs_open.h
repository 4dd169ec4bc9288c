/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* verbs:open is an event that Go makes: nothing in the kernel knows the library that a program opens a device with. */

/* Which functions of a provider were found in the process. */
enum verbs_interface {
	verbs_interface__OLD = 1 << 0,   /* ibv_post_send, ibv_poll_cq and their like, in the context */
	verbs_interface__WR = 1 << 1,    /* ibv_wr_*, in a QP */
	verbs_interface__CQ_EX = 1 << 2, /* ibv_start_poll and its companions, in an extended CQ */
};

struct verbs_open {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	char provider[16] DOC("the name that the provider's library has in its file name, like mlx5; absent if no context was found, or its code is in another file");
	char library[112] DOC("path of the provider's library in the process, the end if it is longer; absent if no context was found");
	char build_id[48] VERBOSE DOC("of the library, hexadecimal; absent if it has none, or no context was found");
	enum verbs_interface interfaces FLAGS VERBOSE
		DOC("functions that were found by then. OLD: ibv_post_send, ibv_poll_cq and their like. WR: ibv_wr_*, in a QP. CQ_EX: ibv_start_poll, in an extended CQ. Absent if no context was found");
	bool seeded DOC("the device was open before the program began");
	struct {
		HAS_PAD;
		TASK_HAS();
		__u32 dev : 1;
		__u32 provider : 1;
		__u32 library : 1;
		__u32 build_id : 1;
		__u32 interfaces : 1;
	} has HAS_ALIGN;
} DOC("a program opens an RDMA device, or has one open at the start; pid, comm and so on are of its process (made in user space, without a trap)");
EVENT(verbs_open)

static __always_inline void verbs_open_capture(struct verbs_open *e, enum stage stage)
{
	if (WANT(verbs_open, nsecs, stage))
		e->nsecs = bpf_ktime_get_boot_ns();
	if (WANT(verbs_open, cpu, stage))
		e->cpu = bpf_get_smp_processor_id();
}

MADE(verbs_open)
