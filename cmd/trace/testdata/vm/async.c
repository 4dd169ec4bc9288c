/*
 * Causes asynchronous events of its SRQ, its CQ and, where rxe has any, its QP. It prints its QPs, waits for a line of input, and prints
 * the events that it got.
 */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECEIVES 3
#define CQES 10
#define SENDS 20 /* more than the CQ has room for */

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

#define MAKE(call) \
	({ \
		typeof(call) made = (call); \
		need(made != NULL, #call); \
		made; \
	})

static void connect_qp(struct ibv_context *ctx, struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .max_dest_rd_atomic = 1 };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	rtr.ah_attr.is_global = 1;
	rtr.ah_attr.port_num = 1;
	rtr.ah_attr.grh.sgid_index = 1;
	rtr.ah_attr.grh.hop_limit = 1;
	need(!ibv_query_gid(ctx, 1, 1, &rtr.ah_attr.grh.dgid), "query_gid");
	need(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	need(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	need(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				      IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* Sends nothing, as an RDMA write of 0 bytes takes no receive. */
static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = { .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;

	need(!ibv_post_send(qp, &wr, &bad), "post_send");
}

static void print_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		printf("event %d srq\n", event->event_type);
		break;
	case IBV_EVENT_CQ_ERR:
		printf("event %d cq\n", event->event_type);
		break;
	default:
		printf("event %d qp %u\n", event->event_type, event->element.qp->qp_num);
	}
}

/* Waits for the next event, at most a second if it need not come. */
static int next_event(struct ibv_context *ctx, int must)
{
	struct pollfd fd = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (poll(&fd, 1, must ? 20000 : 1000) <= 0) {
		need(!must, "an event");
		return 0;
	}
	need(!ibv_get_async_event(ctx, &event), "get_async_event");
	print_event(&event);
	ibv_ack_async_event(&event);
	return 1;
}

int main(void)
{
	struct ibv_device **devices = MAKE(ibv_get_device_list(NULL));
	struct ibv_context *ctx = MAKE(ibv_open_device(devices[0]));
	struct ibv_pd *pd = MAKE(ibv_alloc_pd(ctx));
	struct ibv_cq *cq = MAKE(ibv_create_cq(ctx, CQES, NULL, NULL, 0));
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
	struct ibv_srq *srq = MAKE(ibv_create_srq(pd, &srq_init));
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { SENDS, 1, 1, 1 } };
	struct ibv_qp *sender = MAKE(ibv_create_qp(pd, &init));
	struct ibv_srq_attr limit = { .srq_limit = RECEIVES };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr receive = { 0 }, *bad;
	struct ibv_qp *receiver;

	init.srq = srq;
	receiver = MAKE(ibv_create_qp(pd, &init));
	connect_qp(ctx, sender, receiver);
	connect_qp(ctx, receiver, sender);
	for (int i = 0; i < RECEIVES; i++)
		need(!ibv_post_srq_recv(srq, &receive, &bad), "post_srq_recv");
	printf("sender %u receiver %u\n", sender->qp_num, receiver->qp_num);
	fflush(stdout);
	getchar();

	need(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "modify_srq");
	post(sender, IBV_WR_SEND);
	next_event(ctx, 1);
	for (int i = 1; i < SENDS; i++)
		post(sender, IBV_WR_RDMA_WRITE);
	next_event(ctx, 1);
	need(!ibv_modify_qp(receiver, &error, IBV_QP_STATE), "ERR");
	while (next_event(ctx, 0))
		;
	return ibv_destroy_qp(sender) || ibv_destroy_qp(receiver) || ibv_destroy_srq(srq) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd);
}
