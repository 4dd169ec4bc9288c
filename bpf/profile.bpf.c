//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples of what the CPUs run: perf events of the software clock (PERF_COUNT_SW_CPU_CLOCK), one on each CPU. */
#include "trace.h"

struct profile_hz {
	COMMON();
	__u8 usermode VERBOSE DOC("1 if the sample met the program itself, 0 if it met the kernel");
} DOC("a sample of what runs, N times a second on every CPU (perf event cpu-clock); pid 0 is an idle CPU");
EVENT(profile_hz)

/*
 * struct bpf_perf_event_data begins with the registers. x86: the lowest bits of cs in struct pt_regs are the privilege level, which is 3 in
 * user mode. arm64: the lowest bits of pstate in struct user_pt_regs are 0 in user mode (PSR_MODE_EL0t).
 */
#ifdef __TARGET_ARCH_x86
#define IN_USER_MODE(ctx) ((((__u64 *)(ctx))[17] & 3) == 3)
#else
#define IN_USER_MODE(ctx) ((((__u64 *)(ctx))[33] & 15) == 0)
#endif

static __always_inline void profile_hz_capture(struct profile_hz *e, void *ctx, enum stage stage)
{
	CAPTURE_COMMON(profile_hz, e, stage);
	if (WANT(profile_hz, usermode, stage))
		e->usermode = IN_USER_MODE(ctx);
}

SEC("perf_event")
int perf_event_profile_hz(void *ctx)
{
	struct profile_hz e;

	EMIT(profile_hz, ctx, &e, ctx);
	return 0;
}
