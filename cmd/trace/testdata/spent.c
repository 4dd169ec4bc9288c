/*
 * Makes calls on a CPU that others keep busy, and reads around each what its thread has gone through: spent CALLS. A line for each call has
 * its name, and the differences of time, of what it waited for a CPU, of its page faults, and of how often it was switched away from.
 * Compiled with VERBS, it calls RDMA verbs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#ifdef VERBS
#include <infiniband/verbs.h>
#endif

#define BUSY 2
#define PAGES 64
#define PAGE 4096

struct reading {
	long long at, waited, faults, switches;
};

static int schedstat;

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* What is read may only be more than what the call goes through: of the time between the two readings all is in it. */
static struct reading usage(void)
{
	struct reading r;
	struct rusage u;
	char text[128] = "";

	r.at = now();
	need(pread(schedstat, text, sizeof(text) - 1, 0) > 0 && sscanf(text, "%*s %lld", &r.waited) == 1, "schedstat");
	need(!getrusage(RUSAGE_THREAD, &u), "getrusage");
	r.faults = u.ru_minflt + u.ru_majflt;
	r.switches = u.ru_nvcsw + u.ru_nivcsw;
	return r;
}

#define MEASURE(name, call) \
	do { \
		struct reading before = usage(); \
		need(call, name); \
		struct reading after = usage(); \
		printf("%s %lld %lld %lld %lld\n", name, now() - before.at, after.waited - before.waited, after.faults - before.faults, \
		       after.switches - before.switches); \
	} while (0)

static void *fresh_memory(void)
{
	void *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(memory != MAP_FAILED && !madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE), "mmap");
	return memory;
}

#ifdef VERBS
static void calls(int n)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *ctx = devices ? ibv_open_device(devices[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;

	need(pd != NULL, "ibv_alloc_pd");
	while (n--) {
		void *memory = fresh_memory();
		struct ibv_cq *cq;
		struct ibv_mr *mr;

		MEASURE("reg_mr", (mr = ibv_reg_mr(pd, memory, PAGES * PAGE, IBV_ACCESS_LOCAL_WRITE)) != NULL);
		MEASURE("create_cq", (cq = ibv_create_cq(ctx, 1000, NULL, NULL, 0)) != NULL);
		MEASURE("destroy_cq", !ibv_destroy_cq(cq));
		MEASURE("dereg_mr", !ibv_dereg_mr(mr));
		munmap(memory, PAGES * PAGE);
	}
}
#else
static void calls(int n)
{
	struct timespec moment = { .tv_nsec = 100000 };
	int zero = open("/dev/zero", O_RDONLY);

	need(zero >= 0, "/dev/zero");
	while (n--) {
		struct iovec into = { fresh_memory(), PAGES * PAGE };

		MEASURE("clock_nanosleep", !clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL));
		MEASURE("sched_yield", !sched_yield());
		MEASURE("readv", readv(zero, &into, 1) == PAGES * PAGE);
		munmap(into.iov_base, PAGES * PAGE);
	}
}
#endif

static void keep_busy(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		;
}

int main(int argc, char **argv)
{
	char path[64];
	cpu_set_t one;

	need(argc == 2, "usage: spent CALLS");
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	need(!sched_setaffinity(0, sizeof(one), &one), "sched_setaffinity");
	for (int i = 0; i < BUSY; i++)
		if (!fork())
			keep_busy();
	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)syscall(SYS_gettid));
	schedstat = open(path, O_RDONLY);
	need(schedstat >= 0, path);
	calls(atoi(argv[1]));
	return 0;
}
