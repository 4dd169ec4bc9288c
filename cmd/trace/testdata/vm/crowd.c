/*
 * Many processes on one CPU, so that each is preempted anywhere in its calls: crowd verbs|syscalls PROCESSES ROUNDS. Prints how often each
 * verb or system call was called.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REFUSED 30  /* calls for what is in use, before the one that succeeds */
#define GETPPID 100 /* in a round */

/* Of all processes. */
static struct {
	long alloc_pd, dealloc_pd, create_cq, destroy_cq, reg_mr, dereg_mr, create_qp, modify_qp, destroy_qp, getppid;
} *calls;

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

#define CALL(name, wanted, call) \
	do { \
		__sync_fetch_and_add(&calls->name, 1); \
		need((call) == (wanted), #name); \
	} while (0)

#define CREATE(name, call) \
	({ \
		__sync_fetch_and_add(&calls->name, 1); \
		typeof(call) made = (call); \
		need(made != NULL, #name); \
		made; \
	})

/* The QP talks to itself. */
static void connect_qp(struct ibv_context *ctx, struct ibv_qp *qp)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1 };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	rtr.ah_attr.is_global = 1;
	rtr.ah_attr.port_num = 1;
	rtr.ah_attr.grh.sgid_index = 1;
	rtr.ah_attr.grh.hop_limit = 1;
	need(!ibv_query_gid(ctx, 1, 1, &rtr.ah_attr.grh.dgid), "query_gid");
	CALL(modify_qp, 0, ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CALL(modify_qp, 0, ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CALL(modify_qp, 0, ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC));
}

static void verbs(struct ibv_context *ctx)
{
	static char buffer[4096];
	struct ibv_pd *pd = CREATE(alloc_pd, ibv_alloc_pd(ctx));
	struct ibv_cq *cq = CREATE(create_cq, ibv_create_cq(ctx, 10, NULL, NULL, 0));
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1 } };
	struct ibv_mr *mr = CREATE(reg_mr, ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE));
	struct ibv_qp *qp = CREATE(create_qp, ibv_create_qp(pd, &attr));

	connect_qp(ctx, qp);
	for (int i = 0; i < REFUSED; i++) {
		CALL(destroy_cq, EBUSY, ibv_destroy_cq(cq));
		CALL(dealloc_pd, EBUSY, ibv_dealloc_pd(pd));
	}
	CALL(destroy_qp, 0, ibv_destroy_qp(qp));
	CALL(destroy_cq, 0, ibv_destroy_cq(cq));
	CALL(dereg_mr, 0, ibv_dereg_mr(mr));
	CALL(dealloc_pd, 0, ibv_dealloc_pd(pd));
}

static void syscalls(void)
{
	for (int i = 0; i < GETPPID; i++)
		syscall(SYS_getppid);
	__sync_fetch_and_add(&calls->getppid, GETPPID);
}

static void work(int with_verbs, int rounds)
{
	struct ibv_device **devices = with_verbs ? ibv_get_device_list(NULL) : NULL;
	struct ibv_context *ctx = devices ? ibv_open_device(devices[0]) : NULL;

	need(ctx || !with_verbs, "open");
	for (int i = 0; i < rounds; i++)
		with_verbs ? verbs(ctx) : syscalls();
	exit(0);
}

int main(int argc, char **argv)
{
	int with_verbs = argc == 4 && !strcmp(argv[1], "verbs"), status;
	cpu_set_t one;

	calls = mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	need(argc == 4 && calls != MAP_FAILED && !sched_setaffinity(0, sizeof(one), &one), "usage: crowd verbs|syscalls PROCESSES ROUNDS");
	for (int i = 0; i < atoi(argv[2]); i++)
		if (!fork())
			work(with_verbs, atoi(argv[3]));
	while (wait(&status) > 0)
		need(!status, "a process");
	if (with_verbs)
		printf("alloc_pd %ld dealloc_pd %ld create_cq %ld destroy_cq %ld reg_mr %ld dereg_mr %ld create_qp %ld modify_qp %ld destroy_qp %ld\n",
		       calls->alloc_pd, calls->dealloc_pd, calls->create_cq, calls->destroy_cq, calls->reg_mr, calls->dereg_mr,
		       calls->create_qp, calls->modify_qp, calls->destroy_qp);
	else
		printf("getppid %ld\n", calls->getppid);
	return 0;
}
