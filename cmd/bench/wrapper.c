//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a tracer by LD_PRELOAD does, for comparison: a program is started with it, and when it makes a QP, the functions of its context are
 * replaced by those here, which call the real ones. QUESTION is what they do: "post" counts posts, "poll" counts completions, and "latency"
 * makes a histogram in powers of two of the time from post to completion.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The requests that are posted and not completed, by wr_id. */
#define SLOTS 4096

static int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
static struct {
	uint64_t wr_id;
	long long posted;
} slots[SLOTS];
static unsigned long posts, completions, histogram[64];
static int times;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	for (struct ibv_send_wr *w = wr; w; w = w->next) {
		posts++;
		if (times) {
			slots[w->wr_id % SLOTS].wr_id = w->wr_id;
			slots[w->wr_id % SLOTS].posted = now();
		}
	}
	return real_post_send(qp, wr, bad);
}

static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	int n = real_poll_cq(cq, room, wc);

	for (int i = 0; i < n; i++) {
		completions++;
		if (times && slots[wc[i].wr_id % SLOTS].wr_id == wc[i].wr_id)
			histogram[63 - __builtin_clzll((now() - slots[wc[i].wr_id % SLOTS].posted) | 1)]++;
	}
	return n;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *(*real)(struct ibv_pd *, struct ibv_qp_init_attr *) = dlvsym(RTLD_NEXT, "ibv_create_qp", "IBVERBS_1.1");
	const char *question = getenv("QUESTION");

	if (!question)
		question = "";
	times = !strcmp(question, "latency");
	if (times || !strcmp(question, "post")) {
		real_post_send = pd->context->ops.post_send;
		pd->context->ops.post_send = post_send;
	}
	if (times || !strcmp(question, "poll")) {
		real_poll_cq = pd->context->ops.poll_cq;
		pd->context->ops.poll_cq = poll_cq;
	}
	return real(pd, attr);
}

static __attribute__((destructor)) void report(void)
{
	fprintf(stderr, "posts %lu, completions %lu, by the power of two of their ns", posts, completions);
	for (int i = 0; i < 64; i++)
		fprintf(stderr, " %lu", histogram[i]);
	fprintf(stderr, "\n");
}
