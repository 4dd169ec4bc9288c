/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BY_THREAD of trace.h in user space: more threads than there are slots begin and end, all at once. What is kept of a thread must be its own from
 * the beginning to the end. Prints how often there was room, how often there was none, and how often what was kept was not the thread's.
 */
#include <pthread.h>
#include <stdio.h>
#define __TARGET_ARCH_x86
#include "../trace.h"

enum { TABLE = SLOTS, THREADS = 2 * SLOTS, TURNS = 200000, ROUNDS = 20, MOST_ROUNDS = 200, ENOUGH = 10000 };

SLOTTED(calls, thread, __u64, TABLE)

char slots[sizeof(struct calls_bucket)] __attribute__((aligned(8)));
size_t slot_size = sizeof(struct calls_bucket);

static __u64 room, none, mixed;

static bool own(volatile __u64 *kept, __u64 value)
{
	for (int i = 0; i < 20; i++)
		if (*kept != value)
			return false;
	return true;
}

static void *turns(void *number)
{
	__u64 thread = (__u64)number;

	for (__u64 i = 0; i < TURNS; i++) {
		__u64 value = thread << 32 | i, *kept = calls_begin(thread);

		if (!kept) {
			__sync_fetch_and_add(&none, 1);
			continue;
		}
		*kept = value;
		__sync_fetch_and_add(&room, 1);
		if (calls_of(thread) != kept || calls_begin(thread) != kept || !own(kept, value))
			__sync_fetch_and_add(&mixed, 1);
		calls_end(kept);
		if (calls_of(thread))
			__sync_fetch_and_add(&mixed, 1);
	}
	return 0;
}

int main(void)
{
	pthread_t threads[THREADS];
	__u64 left = 0;

	/* On a busy machine the threads of a round may run one after the other. */
	for (int round = 0; round < ROUNDS || (none < ENOUGH && round < MOST_ROUNDS); round++) {
		for (long i = 0; i < THREADS; i++)
			pthread_create(&threads[i], 0, turns, (void *)(i + 1));
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], 0);
	}
	/* Afterwards all slots are free, and a thread that finds none takes none. */
	for (__u64 thread = 1; thread <= THREADS; thread++)
		left += calls_begin(thread) != 0;
	printf("%llu %llu %llu %llu %d\n", room, none, mixed, left, TABLE);
	return 0;
}
