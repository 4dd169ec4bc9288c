/*
 * Threads that make, change and destroy QPs, end, and leave their numbers to others: verbs_threads THREADS GENERATIONS. After each generation a
 * process has a thread that is not its leader execute this program again. Prints for each thread its name, how often it called each verb, and
 * how long that took.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 5
#define MAX_THREADS 4096

/* Of all processes. */
static struct thread {
	char name[16];
	long create_qp, modify_qp, destroy_qp, ns;
} *threads;

static char **self;
static struct ibv_context *context;

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

#define TIMED(t, verb, call) \
	({ \
		long began = now(); \
		typeof(call) result = (call); \
		(t)->ns += now() - began; \
		(t)->verb++; \
		result; \
	})

static void *call(void *arg)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 }, reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1 } };
	struct thread *t = arg;

	need(pd && cq, "pd, cq");
	prctl(PR_SET_NAME, t->name);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_qp *qp = TIMED(t, create_qp, ibv_create_qp(pd, &attr));

		need(qp != NULL, "create_qp");
		need(!TIMED(t, modify_qp, ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)), "INIT");
		need(!TIMED(t, modify_qp, ibv_modify_qp(qp, &reset, IBV_QP_STATE)), "RESET");
		need(!TIMED(t, destroy_qp, ibv_destroy_qp(qp)), "destroy_qp");
	}
	need(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd), "the end");
	return NULL;
}

static void execute(const char *role, char *memory, int number)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", number);
	execl("/proc/self/exe", *self, role, memory, text, NULL);
	need(0, "execl");
}

static struct thread *named(int at, char kind)
{
	snprintf(threads[at].name, sizeof(threads[at].name), "%c%d", kind, at);
	return &threads[at];
}

/* Of the process that has a thread execute the program. */
static void *call_and_execute(void *arg)
{
	call(arg);
	execute("executed", self[2], (struct thread *)arg - threads + 1);
	return NULL;
}

static void map_threads(int memory)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	threads = mmap(NULL, MAX_THREADS * sizeof(*threads), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	need(threads != MAP_FAILED, "mmap");
	context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	need(context != NULL, "open");
}

static void run(int count, int generations)
{
	int memory = memfd_create("threads", 0), at = 0, status;
	char text[16];

	need(memory >= 0 && !ftruncate(memory, MAX_THREADS * sizeof(*threads)), "memory");
	snprintf(text, sizeof(text), "%d", memory);
	map_threads(memory);
	need(generations * (count + 2) <= MAX_THREADS, "too many threads");
	for (int g = 0; g < generations; g++, at += count + 2) {
		pthread_t running[count];

		for (int i = 0; i < count; i++)
			need(!pthread_create(&running[i], NULL, call, named(at + i, 't')), "pthread_create");
		for (int i = 0; i < count; i++)
			pthread_join(running[i], NULL);
		if (!fork())
			execute("executes", text, at + count);
		wait(&status);
		need(!status, "a process");
	}
	for (int i = 0; i < at; i++)
		printf("%s create_qp %ld modify_qp %ld destroy_qp %ld ns %ld\n", threads[i].name, threads[i].create_qp, threads[i].modify_qp,
		       threads[i].destroy_qp, threads[i].ns);
}

int main(int argc, char **argv)
{
	pthread_t other;

	self = argv;
	if (argc == 3) {
		run(atoi(argv[1]), atoi(argv[2]));
		return 0;
	}
	need(argc == 4, "usage: verbs_threads THREADS GENERATIONS");
	map_threads(atoi(argv[2]));
	if (!strcmp(argv[1], "executed")) {
		call(named(atoi(argv[3]), 'e'));
		return 0;
	}
	need(!pthread_create(&other, NULL, call_and_execute, named(atoi(argv[3]), 'n')), "pthread_create");
	for (;;)
		pause();
}
