/*
 * Opens rxe0, connects two QPs of its own, and then does with them what trace cannot see, or what it must refuse.
 *
 *   quiet WHAT [LIBRARY]
 *     open      only opens the device
 *     silent    posts nothing: as a program that writes the queues of the device itself
 *     post      posts a receive and a send, and polls
 *     abi       only opens the device, and its context gets another abi_compat
 *     pointer   the functions of its context are copied to memory that belongs to no file
 *     foreign   the kernel has an address for its QPs where there is none
 *     reopen    closes the device and opens it again, after the second line of input
 *
 * It maps the library, prints a line when the QPs are in RTS, and ends with its input. For each line of input it prints one.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#define NEED(ok) \
	do { \
		if (!(ok)) { \
			perror(#ok); \
			exit(1); \
		} \
	} while (0)

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	NEED(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rxe0"))
			ctx = ibv_open_device(list[i]);
	NEED(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	NEED(qp);
	return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	union ibv_gid gid;

	NEED(!ibv_query_gid(qp->context, 1, 1, &gid));
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = 1, .hop_limit = 1 } },
	};
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void post(struct ibv_qp *from, struct ibv_qp *to, struct ibv_cq *cq, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, 64, mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *bad_send;
	struct ibv_wc wc;

	NEED(!ibv_post_recv(to, &receive, &bad_receive));
	NEED(!ibv_post_send(from, &send, &bad_send));
	for (int n = 0; n < 2;)
		if (ibv_poll_cq(cq, 1, &wc) == 1) {
			NEED(wc.status == IBV_WC_SUCCESS);
			n++;
		}
}

/* Copies the code of a function to memory of no file. Nobody calls it. */
static void *copied(void *function)
{
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(code != MAP_FAILED);
	memcpy(code, function, 64);
	return code;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct ibv_context *ctx = open_device();
	char line[64];

	if (argc > 2) {
		int fd = open(argv[2], O_RDONLY);

		NEED(fd >= 0 && mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
		close(fd);
	}
	if (!strcmp(what, "abi"))
		ctx->abi_compat = &ctx;
	if (!strcmp(what, "pointer"))
		ctx->ops.post_recv = copied(ctx->ops.post_recv);
	if (strcmp(what, "open") && strcmp(what, "reopen") && strcmp(what, "abi")) {
		struct ibv_pd *pd = ibv_alloc_pd(ctx);
		struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
		struct ibv_mr *mr = ibv_reg_mr(pd, aligned_alloc(4096, 4096), 4096, IBV_ACCESS_LOCAL_WRITE);
		struct ibv_qp *a = make_qp(pd, cq), *b = make_qp(pd, cq);

		NEED(pd && cq && mr);
		if (!strcmp(what, "foreign"))
			a->qp_num ^= 0x10000, b->qp_num ^= 0x10000;
		connect_to(a, b->qp_num & 0xffff);
		connect_to(b, a->qp_num & 0xffff);
		if (!strcmp(what, "post")) {
			printf("ready %u %u\n", a->qp_num, b->qp_num);
			fflush(stdout);
			NEED(fgets(line, sizeof(line), stdin));
			post(a, b, cq, mr);
			printf("posted\n");
			fflush(stdout);
			while (fgets(line, sizeof(line), stdin))
				;
			return 0;
		}
		printf("ready %u %u\n", a->qp_num, b->qp_num);
	} else {
		printf("ready\n");
	}
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(what, "reopen")) {
			NEED(!ibv_close_device(ctx));
			ctx = open_device();
		}
		printf("again\n");
		fflush(stdout);
	}
	return 0;
}
