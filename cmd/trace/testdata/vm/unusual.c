/*
 * Posts and polls on rxe0 in ways that a tracer may disturb. Each process that posts has the mode as its name, and prints what it has done:
 *
 *   MODE posted N received N completed N
 *
 *   unusual plain|late N            N sends to itself
 *   unusual fork N                  so does a child after it, by a context of its own, and then the parent again
 *   unusual exec N                  then it becomes plain
 *   unusual killed N                N children, each killed while its threads are in ibv_post_send
 *   unusual seccomp N               with a filter that kills it at each system call that is not needed
 *   unusual signals N               with a signal each 5 ms
 *   unusual cold N                  N sends after a line of input or its end, whose work requests are in memory that nobody has touched
 *   unusual crowd N                 N children at once, with five sends each
 *   unusual command N COMMAND       N sends after a line of input or its end, then the command, and N sends again
 *
 * As a library, with -Dmain=…, it is loaded late.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH 16

struct connection {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
};

static const char *mode;
static int posted, received, completed;

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "unusual %s: %s: %s\n", mode, what, strerror(errno));
		exit(1);
	}
}

static void report(void)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s posted %d received %d completed %d\n", mode, posted, received, completed);

	need(write(1, line, n) == n, "write");
	posted = received = completed = 0;
}

static void connect_to_itself(struct connection *c)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = c->qp->qp_num, .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1, .hop_limit = 1 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	need(!ibv_query_gid(c->ctx, 1, 1, &rtr.ah_attr.grh.dgid), "query_gid");
	need(!ibv_modify_qp(c->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	need(!ibv_modify_qp(c->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	need(!ibv_modify_qp(c->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void begin(struct connection *c)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr attr = { .cap = { DEPTH, DEPTH, 1, 1, 0 }, .qp_type = IBV_QPT_RC };

	need(list && list[0], "a device");
	need((c->ctx = ibv_open_device(list[0])) != NULL, "open");
	need((c->pd = ibv_alloc_pd(c->ctx)) != NULL, "pd");
	need((c->cq = ibv_create_cq(c->ctx, 2 * DEPTH, NULL, NULL, 0)) != NULL, "cq");
	attr.send_cq = attr.recv_cq = c->cq;
	need((c->qp = ibv_create_qp(c->pd, &attr)) != NULL, "qp");
	need((c->memory = aligned_alloc(4096, 4096)) != NULL, "memory");
	need((c->mr = ibv_reg_mr(c->pd, c->memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != NULL, "mr");
	connect_to_itself(c);
}

static void send_to_itself(struct connection *c, int n)
{
	struct ibv_sge place = { (uint64_t)c->memory, 64, c->mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &place, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = &place, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc[2];

	for (int i = 0; i < n; i++) {
		need(!(errno = ibv_post_recv(c->qp, &recv, &bad_recv)), "post_recv");
		need(!(errno = ibv_post_send(c->qp, &send, &bad)), "post_send");
		posted++;
		received++;
		for (int left = 2, got; left > 0; left -= got) {
			need((got = ibv_poll_cq(c->cq, left, wc)) >= 0, "poll_cq");
			for (int k = 0; k < got; k++)
				need(wc[k].status == IBV_WC_SUCCESS, "status");
			completed += got;
		}
	}
}

static void whole(int n)
{
	struct connection c;

	begin(&c);
	send_to_itself(&c, n);
	report();
}

/* The status of a child, or of any if it is -1. */
static int status_of(pid_t child)
{
	int status;

	need(waitpid(child, &status, 0) > 0, "wait");
	return status;
}

static void forks(int n)
{
	struct connection c;
	pid_t child;

	begin(&c);
	send_to_itself(&c, n);
	child = fork();
	need(child >= 0, "fork");
	if (!child) {
		posted = received = completed = 0;
		whole(n);
		_exit(7);
	}
	need(WEXITSTATUS(status_of(child)) == 7, "the child");
	send_to_itself(&c, n);
	report();
}

/* The queue is soon full, and the call fails: it is made all the time. */
static void *post_forever(void *arg)
{
	struct connection *c = arg;
	struct ibv_send_wr send = { .opcode = IBV_WR_RDMA_WRITE }, *bad;

	for (;;)
		ibv_post_send(c->qp, &send, &bad);
	return NULL;
}

static void die_posting(int ready)
{
	struct connection c;
	pthread_t thread;

	begin(&c);
	for (int i = 0; i < 2; i++)
		need(!pthread_create(&thread, NULL, post_forever, &c), "thread");
	need(write(ready, "", 1) == 1, "ready");
	pause();
}

static void killed(int n)
{
	int ready[2], dead = 0;
	char byte;

	need(!pipe(ready), "pipe");
	for (int i = 0; i < n; i++) {
		pid_t child = fork();

		need(child >= 0, "fork");
		if (!child)
			die_posting(ready[1]);
		need(read(ready[0], &byte, 1) == 1, "ready");
		usleep(10000 + 3700 * i);
		need(!kill(child, SIGKILL), "kill");
		dead += WTERMSIG(status_of(child)) == SIGKILL;
	}
	printf("%d were killed\n", dead);
}

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void confined(int n)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_ioctl), ALLOW(SYS_exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	struct connection c;

	begin(&c);
	send_to_itself(&c, 1);
	need(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "seccomp");
	send_to_itself(&c, n);
	report();
	_exit(5);
}

static void on_alarm(int signal) {}

/* Signals interrupt calls that are under way, and the handling of traps in them. */
static void interrupted(int n)
{
	struct itimerval each = { { 0, 5000 }, { 0, 5000 } };
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

	need(!sigaction(SIGALRM, &act, NULL) && !setitimer(ITIMER_REAL, &each, NULL), "timer");
	whole(n);
}

/* Posts each request from pages of a file that are not mapped yet. */
static void cold(int n)
{
	struct ibv_send_wr send = { .wr_id = 3, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *mapped, *bad;
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv;
	int file = memfd_create("cold", 0);
	struct connection c;
	struct ibv_wc wc[2];

	begin(&c);
	need(file >= 0 && pwrite(file, &send, sizeof(send), 0) == sizeof(send), "memfd");
	getchar();
	for (int i = 0; i < n; i++) {
		mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		need(mapped != MAP_FAILED, "mmap");
		need(!(errno = ibv_post_recv(c.qp, &recv, &bad_recv)), "post_recv");
		need(!(errno = ibv_post_send(c.qp, mapped, &bad)), "post_send");
		posted++;
		received++;
		for (int left = 2, got; left > 0; left -= got) {
			need((got = ibv_poll_cq(c.cq, left, wc)) >= 0, "poll_cq");
			completed += got;
		}
		need(!munmap(mapped, 4096), "munmap");
	}
	report();
}

static void crowd(int n)
{
	int failed = 0;

	for (int i = 0; i < n; i++) {
		pid_t child = fork();

		need(child >= 0, "fork");
		if (!child) {
			whole(5);
			_exit(0);
		}
	}
	for (int i = 0; i < n; i++)
		failed += status_of(-1) != 0;
	printf("%d failed\n", failed);
}

static void command(int n, const char *line)
{
	struct connection c;

	begin(&c);
	getchar();
	send_to_itself(&c, n);
	report();
	printf("the command's status is %d\n", system(line));
	fflush(stdout);
	send_to_itself(&c, n);
	report();
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 0;

	mode = argc > 1 ? argv[1] : "";
	prctl(PR_SET_NAME, mode);
	if (!strcmp(mode, "plain") || !strcmp(mode, "late"))
		whole(n);
	else if (!strcmp(mode, "fork"))
		forks(n);
	else if (!strcmp(mode, "exec")) {
		whole(n);
		execl("/proc/self/exe", argv[0], "plain", argv[2], NULL);
		need(0, "exec");
	} else if (!strcmp(mode, "killed"))
		killed(n);
	else if (!strcmp(mode, "seccomp"))
		confined(n);
	else if (!strcmp(mode, "signals"))
		interrupted(n);
	else if (!strcmp(mode, "cold"))
		cold(n);
	else if (!strcmp(mode, "crowd"))
		crowd(n);
	else if (!strcmp(mode, "command") && argc > 3)
		command(n, argv[3]);
	else
		need(0, "no such mode");
	return 0;
}
