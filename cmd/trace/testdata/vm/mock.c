/*
 * A provider of extended CQs that is made up: it has a fixed clock, and gives several completions between ibv_start_poll and ibv_end_poll, which
 * rxe cannot. Context, QPs and CQs are of the first device, with functions of this file in them. What is posted completes at once.
 *
 *   mock [OPTION...]
 *     rounds=N   qps=N   chain=N (requests of a QP in each round)   signal=N (every Nth of a QP is signaled)   fail=N (every Nth completion fails)
 *     ids=distinct|same   recv=1 (and as many receives)   nested=1 (a CQ is polled while another has a completion at hand)
 *     read=all|none|wallclock (instead of ticks)|qp|flags (immediate data without them, otherwise)   lives=1 (each round has QPs of its own)
 *     wait=1 (for a line of input)
 *
 * It prints JSON: a line with the frequency of the device's counter when it is ready, and then one for each completion, with the fields of
 * verbs:poll_cq that its calls allow to know. a and b are before and after the post, c and d before and after the call that gives the completion,
 * and retired and retired_bytes are what the completion of a send retires. depth is what is left then.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * It is compiled as a library, which a program calls: like a provider's, it needs a private symbol of libibverbs, and trace follows functions of
 * no other.
 */
extern bool verbs_allow_disassociate_destroy;
bool *provided = &verbs_allow_disassociate_destroy;

#define MAX_QPS 8
#define RING 4096

enum { ALL, NONE, WALLCLOCK, ONLY_QP, NO_FLAGS };

static struct {
	int rounds, qps, chain, signal, fail, same, recv, nested, read, lives, wait;
} o = { .rounds = 10, .qps = 1, .chain = 4, .signal = 1 };

struct done {
	uint64_t wr_id, ticks;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t qp, bytes, imm, src_qp;
	unsigned flags;
	long retired, retired_bytes, depth;
	long long a, b;
};

struct queue {
	struct ibv_cq_ex *cq;
	struct done ring[RING], *now;
	long head, tail;
};

struct sender {
	struct ibv_qp *qp;
	struct queue *to;
	long posts, bytes, retired, retired_bytes;
};

static struct queue queues[2];
static struct sender senders[MAX_QPS];
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static long completions;
static long long posting; /* when the post began */

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "mock: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/*
 * The provider.
 */

static struct queue *queue_of(struct ibv_cq_ex *cq) { return cq == queues[0].cq ? &queues[0] : &queues[1]; }

static struct done *push(struct queue *q)
{
	struct done *d = &q->ring[q->tail++ % RING];

	memset(d, 0, sizeof(*d));
	d->ticks = 1000003ULL * ++completions;
	if (o.fail && completions % o.fail == 0)
		d->status = IBV_WC_REM_ACCESS_ERR;
	return d;
}

static int mock_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct sender *s = senders;

	while (s->qp != qp)
		s++;
	for (; wr; wr = wr->next) {
		struct done *d;

		s->posts++;
		for (int i = 0; i < wr->num_sge; i++)
			s->bytes += wr->sg_list[i].length;
		if (!(wr->send_flags & IBV_SEND_SIGNALED))
			continue;
		d = push(s->to);
		d->wr_id = wr->wr_id;
		d->opcode = IBV_WC_RDMA_WRITE;
		d->qp = qp->qp_num;
		d->bytes = 17;
		d->a = posting;
		d->retired = s->posts - s->retired;
		d->retired_bytes = s->bytes - s->retired_bytes;
		s->retired = s->posts;
		s->retired_bytes = s->bytes;
	}
	return 0;
}

static void receive(struct sender *s, uint64_t wr_id)
{
	struct done *d = push(s->to);

	d->wr_id = wr_id;
	d->opcode = wr_id & 1 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	d->qp = s->qp->qp_num;
	d->bytes = 100 + wr_id % 1000;
	d->flags = wr_id & 1 ? IBV_WC_WITH_IMM : wr_id & 2 ? IBV_WC_WITH_INV : 0;
	d->imm = 0xabc000 + wr_id % 1000;
	d->src_qp = 4711;
}

static int give(struct queue *q)
{
	if (q->head == q->tail)
		return ENOENT;
	q->now = &q->ring[q->head++ % RING];
	q->cq->status = q->now->status;
	q->cq->wr_id = q->now->wr_id;
	return 0;
}

static int mock_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr) { return give(queue_of(cq)); }
static int mock_next_poll(struct ibv_cq_ex *cq) { return give(queue_of(cq)); }
static void mock_end_poll(struct ibv_cq_ex *cq) { queue_of(cq)->now = NULL; }
static enum ibv_wc_opcode mock_read_opcode(struct ibv_cq_ex *cq) { return queue_of(cq)->now->opcode; }
static uint32_t mock_read_vendor_err(struct ibv_cq_ex *cq) { return queue_of(cq)->now->status ? 0x1234 : 0; }
static uint32_t mock_read_byte_len(struct ibv_cq_ex *cq) { return queue_of(cq)->now->bytes; }
static __be32 mock_read_imm_data(struct ibv_cq_ex *cq) { return htobe32(queue_of(cq)->now->imm); }
static uint32_t mock_read_qp_num(struct ibv_cq_ex *cq) { return queue_of(cq)->now->qp; }
static uint32_t mock_read_src_qp(struct ibv_cq_ex *cq) { return queue_of(cq)->now->src_qp; }
static unsigned mock_read_wc_flags(struct ibv_cq_ex *cq) { return queue_of(cq)->now->flags; }
static uint64_t mock_read_ticks(struct ibv_cq_ex *cq) { return queue_of(cq)->now->ticks; }
static uint64_t mock_read_wallclock(struct ibv_cq_ex *cq) { return 1700000000000000000ULL + queue_of(cq)->now->ticks; }

static void make_queue(struct queue *q)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = RING };

	q->cq = ibv_create_cq_ex(ctx, &attr);
	need(q->cq != NULL, "create_cq_ex");
	q->cq->start_poll = mock_start_poll;
	q->cq->next_poll = mock_next_poll;
	q->cq->end_poll = mock_end_poll;
	q->cq->read_vendor_err = mock_read_vendor_err;
	/* The device's provider has set these, whatever was asked for: the functions of an object are in one file. */
	q->cq->read_opcode = NULL;
	q->cq->read_wc_flags = NULL;
	if (o.read == NONE)
		return;
	q->cq->read_qp_num = mock_read_qp_num;
	q->cq->read_opcode = mock_read_opcode;
	q->cq->read_byte_len = mock_read_byte_len;
	q->cq->read_imm_data = mock_read_imm_data;
	q->cq->read_src_qp = mock_read_src_qp;
	q->cq->read_wc_flags = mock_read_wc_flags;
	q->cq->read_completion_ts = mock_read_ticks;
	q->cq->read_completion_wallclock_ns = mock_read_wallclock;
}

static void make_sender(int i)
{
	struct queue *to = &queues[o.nested ? i % 2 : 0];
	struct ibv_qp_init_attr attr = { .send_cq = ibv_cq_ex_to_cq(to->cq), .recv_cq = ibv_cq_ex_to_cq(to->cq), .qp_type = IBV_QPT_RC,
					 .cap = { 16, 16, 1, 1 } };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	need(!senders[i].qp || !ibv_destroy_qp(senders[i].qp), "destroy_qp");
	senders[i] = (struct sender){ .to = to, .qp = ibv_create_qp(pd, &attr) };
	need(senders[i].qp != NULL, "create_qp");
	need(!ibv_modify_qp(senders[i].qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
}

/*
 * The program.
 */

static struct ibv_sge place = { .length = 50 };

static uint64_t id_of(int sender, int round, int i) { return o.same ? 7 : (uint64_t)sender << 32 | (round * o.chain + i); }

static void post(int sender, int round)
{
	struct ibv_send_wr wr[32] = {}, *bad;
	struct sender *s = &senders[sender];
	long first = s->to->tail;
	long long b;

	for (int i = 0; i < o.chain; i++) {
		wr[i].wr_id = id_of(sender, round, i);
		wr[i].next = i + 1 < o.chain ? &wr[i + 1] : NULL;
		wr[i].sg_list = &place;
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = (round * o.chain + i + 1) % o.signal ? 0 : IBV_SEND_SIGNALED;
	}
	posting = now();
	need(!ibv_post_send(s->qp, wr, &bad), "post_send");
	b = now();
	for (long i = first; i < s->to->tail; i++)
		s->to->ring[i % RING].b = b;
	for (int i = 0; o.recv && i < o.chain; i++)
		receive(s, 1ULL << 62 | (uint64_t)sender << 32 | (round * o.chain + i));
}

static void print(struct queue *q, long long c, long long d)
{
	struct ibv_cq_ex *cq = q->cq;
	int failed = cq->status != IBV_WC_SUCCESS, read = o.read != NONE && o.read != ONLY_QP;
	unsigned flags = read && o.read != NO_FLAGS ? ibv_wc_read_wc_flags(cq) : 0;
	enum ibv_wc_opcode opcode;

	printf("{\"type\":\"completion\",\"wr_id\":%llu,\"status\":\"%s\"", (unsigned long long)cq->wr_id, failed ? "REM_ACCESS_ERR" : "SUCCESS");
	if (o.read != NONE)
		printf(",\"qp.num\":%u", ibv_wc_read_qp_num(cq));
	if (failed)
		printf(",\"vendor_err\":%u", ibv_wc_read_vendor_err(cq));
	if (read && !failed) {
		opcode = ibv_wc_read_opcode(cq);
		printf(",\"opcode\":\"%s\",\"bytes\":%u", opcode == IBV_WC_RDMA_WRITE ? "RDMA_WRITE" : opcode == IBV_WC_RECV ? "RECV" : "RECV_RDMA_WITH_IMM",
		       ibv_wc_read_byte_len(cq));
		if (o.read == NO_FLAGS ? opcode == IBV_WC_RECV_RDMA_WITH_IMM : flags & IBV_WC_WITH_IMM)
			printf(",\"imm\":%u", be32toh(ibv_wc_read_imm_data(cq)));
		else if (flags & IBV_WC_WITH_INV)
			ibv_wc_read_invalidated_rkey(cq);
		if (opcode != IBV_WC_RDMA_WRITE)
			printf(",\"src_qp\":%u", ibv_wc_read_src_qp(cq));
		if (o.read == WALLCLOCK)
			printf(",\"wallclock\":%llu", (unsigned long long)ibv_wc_read_completion_wallclock_ns(cq));
		else
			printf(",\"hw_ticks\":%llu", (unsigned long long)ibv_wc_read_completion_ts(cq));
	}
	printf(",\"sent_by\":%u,\"a\":%lld,\"b\":%lld,\"c\":%lld,\"d\":%lld,\"retired\":%ld,\"retired_bytes\":%ld}\n", q->now->qp, q->now->a, q->now->b, c, d,
	       q->now->retired, q->now->retired_bytes);
}

static void poll_queue(struct queue *q, struct queue *meanwhile)
{
	struct ibv_poll_cq_attr attr = {};
	long long c = now(), d;
	int err = ibv_start_poll(q->cq, &attr);

	if (err)
		return;
	while (!err) {
		d = now();
		if (meanwhile)
			poll_queue(meanwhile, NULL);
		print(q, c, d);
		c = now();
		err = ibv_next_poll(q->cq);
	}
	ibv_end_poll(q->cq);
}

static const struct {
	const char *name;
	int *value;
} numbers[] = {
	{ "rounds", &o.rounds }, { "qps", &o.qps }, { "chain", &o.chain }, { "signal", &o.signal }, { "fail", &o.fail }, { "recv", &o.recv },
	{ "nested", &o.nested }, { "lives", &o.lives }, { "wait", &o.wait },
};

static const struct {
	const char *text;
	int *value, is;
} words[] = {
	{ "ids=same", &o.same, 1 }, { "ids=distinct", &o.same, 0 }, { "read=all", &o.read, ALL }, { "read=none", &o.read, NONE },
	{ "read=wallclock", &o.read, WALLCLOCK }, { "read=qp", &o.read, ONLY_QP }, { "read=flags", &o.read, NO_FLAGS },
};

static int set_option(const char *arg)
{
	for (int i = 0; i < (int)(sizeof(words) / sizeof(*words)); i++)
		if (!strcmp(arg, words[i].text)) {
			*words[i].value = words[i].is;
			return 1;
		}
	for (int i = 0; i < (int)(sizeof(numbers) / sizeof(*numbers)); i++) {
		size_t n = strlen(numbers[i].name);

		if (!strncmp(arg, numbers[i].name, n) && arg[n] == '=') {
			*numbers[i].value = atoi(arg + n + 1);
			return 1;
		}
	}
	return 0;
}

static void setup(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr_ex device = {};

	need(list && list[0] && (ctx = ibv_open_device(list[0])), "open_device");
	ctx->ops.post_send = mock_post_send;
	need(!ibv_query_device_ex(ctx, NULL, &device), "query_device_ex");
	pd = ibv_alloc_pd(ctx);
	need(pd != NULL, "alloc_pd");
	make_queue(&queues[0]);
	make_queue(&queues[1]);
	for (int i = 0; i < o.qps; i++)
		make_sender(i);
	printf("{\"type\":\"ready\",\"kilohertz\":%llu}\n", (unsigned long long)device.hca_core_clock);
	fflush(stdout);
	if (o.wait)
		getchar();
}

int provide(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		need(set_option(argv[i]), argv[i]);
	need(o.qps <= MAX_QPS && o.chain <= 32 && o.qps * o.chain * 2 <= RING, "too much");
	setup();
	for (int round = 0; round < o.rounds; round++) {
		for (int i = 0; o.lives && round && i < o.qps; i++)
			make_sender(i);
		for (int i = 0; i < o.qps; i++)
			post(i, round);
		poll_queue(&queues[0], o.nested ? &queues[1] : NULL);
	}
	return 0;
}
