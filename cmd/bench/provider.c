//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program that posts and polls as fast as it can. Its context, CQ and QP are of the first RDMA device, so the kernel knows them, but the
 * functions belong to a provider that is made up: what is posted completes at once, and takes a few ns. The library's inline calls go
 * through the same pointers as with a real provider.
 *
 * For each line of input, "BATCHES PAIRS", it makes that many batches of posts, each with the poll that returns its completion, and prints
 * the ns of a pair in the fastest batch.
 */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * It is compiled as a library, which a program calls: like a provider's, it needs a private symbol of libibverbs, and trace follows functions of
 * no other.
 */
extern bool verbs_allow_disassociate_destroy;
bool *provided = &verbs_allow_disassociate_destroy;

#define RING 64

static uint64_t ring[RING];
static unsigned long head, tail;

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static __attribute__((noipa)) int push(struct ibv_send_wr *wr)
{
	ring[tail++ % RING] = wr->wr_id;
	return 0;
}

static __attribute__((noipa)) int pop(uint64_t *wr_id)
{
	if (head == tail)
		return 0;
	*wr_id = ring[head++ % RING];
	return 1;
}

/* Like a real provider's functions they call others, so they begin with a push, which the kernel emulates under a probe. */
__attribute__((noipa)) int provider_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	do {
		int err = push(wr);

		if (err) {
			*bad = wr;
			return err;
		}
	} while ((wr = wr->next));
	return 0;
}

__attribute__((noipa)) int provider_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	int n = 0;

	for (; n < room && pop(&wc[n].wr_id); n++) {
		wc[n].status = IBV_WC_SUCCESS;
		wc[n].opcode = IBV_WC_RDMA_WRITE;
		wc[n].byte_len = 64;
		wc[n].qp_num = (uint32_t)(uintptr_t)cq->cq_context;
	}
	return n;
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Returns how long a batch takes. */
static long long batch(struct ibv_qp *qp, struct ibv_cq *cq, long pairs)
{
	static char memory[64];
	static uint64_t id;
	struct ibv_sge sge = { (uintptr_t)memory, sizeof(memory), 0 };
	long long began = now();

	for (long i = 0; i < pairs; i++) {
		struct ibv_send_wr wr = { .wr_id = ++id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_wc wc;

		need(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
		need(ibv_poll_cq(cq, 1, &wc) == 1 && wc.wr_id == id, "ibv_poll_cq");
	}
	return now() - began;
}

int provide(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr attr = { .cap = { 16, 16, 1, 1 }, .qp_type = IBV_QPT_RC, .sq_sig_all = 0 };
	struct ibv_context *context;
	long batches, pairs;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	need(list && list[0] && (context = ibv_open_device(list[0])), "ibv_open_device");
	context->ops.post_send = provider_post_send;
	context->ops.poll_cq = provider_poll_cq;
	need((pd = ibv_alloc_pd(context)) != NULL, "ibv_alloc_pd");
	need((cq = ibv_create_cq(context, 16, NULL, NULL, 0)) != NULL, "ibv_create_cq");
	attr.send_cq = attr.recv_cq = cq;
	need((qp = ibv_create_qp(pd, &attr)) != NULL, "ibv_create_qp");
	cq->cq_context = (void *)(uintptr_t)qp->qp_num;
	puts("ready");
	fflush(stdout);
	while (scanf("%ld %ld", &batches, &pairs) == 2) {
		long long least = -1;

		for (long i = 0; i < batches; i++) {
			long long took = batch(qp, cq, pairs);

			if (least < 0 || took < least)
				least = took;
		}
		printf("%f\n", (double)least / pairs);
		fflush(stdout);
	}
	return 0;
}
