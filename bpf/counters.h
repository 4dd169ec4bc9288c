/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters that Go reads again and again. Each event is a counter that has changed since the reading before. Go knows all fields when it makes
 * the event, so nothing is captured.
 */
#pragma once
#include "trace.h"

/* What each counter has; no task has changed it, so the fields of a task are absent, and so is the CPU. */
#define COUNTER(units) \
	__u64 value DOC("the counter, as the kernel gives it" units); \
	__u64 delta DOC("by how much it has grown; absent if it is lower than before: it was reset, or began again at 0"); \
	ns_t period DOC("time from the reading before to this one")

#define COUNTER_HAS() \
	TASK_HAS(); \
	__u32 cpu : 1; \
	__u32 delta : 1

#define COUNTERS_OF(X) \
	EVENT(X) \
	static __always_inline void X##_capture(struct X *e, enum stage stage) {} \
	MADE(X)
