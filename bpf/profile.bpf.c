//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples of what the CPUs run: perf events of the software clock (PERF_COUNT_SW_CPU_CLOCK), one on each CPU. */
#include "trace.h"

struct profile_hz {
	COMMON();
} DOC("a sample of what runs, N times a second on every CPU (perf event cpu-clock); pid 0 is an idle CPU");
EVENT(profile_hz)

static __always_inline void profile_hz_capture(struct profile_hz *e, enum stage stage)
{
	CAPTURE_COMMON(profile_hz, e, stage);
}

SEC("perf_event")
int perf_event_profile_hz(void *ctx)
{
	struct profile_hz e;

	EMIT(profile_hz, ctx, &e);
	return 0;
}
