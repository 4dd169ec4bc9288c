/*
 * wakes N: the thread "waker" sleeps and wakes the thread "woken" N times. Each prints how often it left the CPU by itself, as the kernel
 * counts (getrusage), from when it has its name until it has another one: "woken 100", "waker 100".
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int rounds, ends[2];

static long left(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void *thread(void *name)
{
	struct timespec pause = {.tv_nsec = 5000000};
	long before;
	char c = 0;

	prctl(PR_SET_NAME, name);
	before = left();
	for (int i = 0; i < rounds; i++) {
		if (((char *)name)[2] == 'o') /* woken */
			c += read(ends[0], &c, 1);
		else if (!nanosleep(&pause, 0))
			c += write(ends[1], &c, 1);
	}
	before = left() - before;
	prctl(PR_SET_NAME, "done");
	printf("%s %ld\n", (char *)name, before);
	return 0;
}

int main(int argc, char **argv)
{
	static char woken[] = "awoken", waker[] = "awaker";
	pthread_t other;

	rounds = atoi(argv[argc - 1]);
	if (pipe(ends) || pthread_create(&other, 0, thread, woken))
		return 1;
	thread(waker);
	return pthread_join(other, 0);
}
