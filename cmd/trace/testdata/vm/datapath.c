/*
 * Posts and polls exact numbers of work requests on rxe0, and prints JSON: a line when everything is connected, on demand a line for each
 * completed request, and the totals.
 *
 *   datapath [OPTION...]
 *     op=send|send_imm|write|write_imm|read|fadd   type=rc|ud   qps=N   threads=N (that post, of each QP)   count=N (requests of each)
 *     batch=N (requests in a chain)   signal=N (every Nth is signaled)   ids=distinct|same   sges=N   size=N (bytes of each)   inline=1
 *     srq=1   onecq=1 (for sends and receives)   pollers=N   entries=N (of a poll)   api=old|wr (ibv_wr_*)
 *     cq=old|ex|bare (ibv_cq_ex; bare: only wr_id and status are read, so QP and kind of a completion are known by wr_id)
 *     pause=US (between chains)   rate=N (requests a second of each thread, by absolute deadlines)
 *     build=US (before each request that ibv_wr_* builds)   rest=US (after a poll that returns something)   idle=US (after one
 *     that returns nothing)   rounds=N (QPs are reset in between)   lines=1   wait=1 (for a line of input, before the first post)   hold=SECONDS (before the end)
 *     room=N (of the send queue, into which more is posted than it takes)   bad=N (the Nth request of each chain, and a chain of receives, has
 *     more elements than the queue takes)   late=1 (polls begin when all is posted)   last=1 (at the end, each QP sends one more request)
 *     fail=rkey (the remote key is wrong)|rnr (no receive, one retry)|stuck (no receive, retries without end)|killed (the peer is gone)
 *
 * Each QP that sends has a peer that receives, in the same process except with fail=killed. A request that the provider refuses is not posted
 * again. In a line, a and b are before and after the post, c and d before and after the poll that returns the completion, and runq_X is what
 * the thread had waited for a CPU until then, by schedstat: runq_b of the thread that posts, the others of the one that polls; runq_before
 * and runq_last are before and after its poll before. trap is whether the function that posts had a breakpoint at a.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_QPS 64
#define MAX_BATCH 256
#define MAX_SGES 16
#define MANY_SGES 64 /* more than a queue takes */
#define MAX_ENTRIES 64
#define DEPTH 512 /* requests of a QP that are posted and not completed */
#define GRH 40    /* before each message of UD */
#define QKEY 0x11111111
#define STATUSES 24
#define OPCODES 140
#define ERRORS 128

enum { NOTHING, RKEY, RNR, STUCK, KILLED };
enum { EXTENDED = 1, BARE };

static struct {
	enum ibv_wr_opcode op;
	int ud, qps, threads, count, batch, signal, same, sges, size, inlined, srq, onecq, pollers, entries, new_api, cq, pause,
		rate, build, rest, idle, rounds, lines, wait, hold, fail;
	int room, bad, late, last;
} o = { .op = IBV_WR_SEND, .qps = 1, .threads = 1, .count = 100, .batch = 1, .signal = 1, .sges = 1, .size = 64, .pollers = 1, .entries = 16,
	.rounds = 1 };

struct request {
	long long a, b, c, d, runq_b, runq_c, runq_d, runq_before, runq_last;
	int opcode, status, trap;
	unsigned bytes;
};

/* The requests of one queue: of a QP that sends, of one that receives, or of the SRQ. */
struct queue {
	atomic_long posts, refused, claimed, signaled, bytes, completed, completed_bytes, retired; /* claimed: receives that are posted, or are about to be */
	atomic_long errors[ERRORS];            /* refused requests by errno */
	atomic_long by[STATUSES][OPCODES + 1]; /* completions by status and opcode, the last one if that is not known */
	struct request *requests;
};

struct pair {
	struct ibv_qp *sender, *receiver;
	struct ibv_ah *ah;
	uint32_t remote; /* number of the peer */
	struct queue sends, receives;
	atomic_long outstanding, order;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static char *memory;
static struct pair pairs[MAX_QPS];
static struct queue shared; /* of the SRQ */
static atomic_long polls, empty, left, last; /* last: when a completion came */
static atomic_long empty_before;             /* empty polls of each thread, until its last completion */

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "datapath: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

#define MAKE(call) \
	({ \
		typeof(call) made = (call); \
		need(made != NULL, #call); \
		made; \
	})

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* What this thread has waited for a CPU, read only for lines. */
static long long waited(void)
{
	static __thread int file = -1;
	char path[64], text[128] = "";
	long long ns;

	if (!o.lines)
		return 0;
	if (file < 0) {
		snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)syscall(SYS_gettid));
		file = open(path, O_RDONLY);
	}
	need(pread(file, text, sizeof(text) - 1, 0) > 0 && sscanf(text, "%*s %lld", &ns) == 1, "schedstat");
	return ns;
}

static int takes_receive(void)
{
	return o.op == IBV_WR_SEND || o.op == IBV_WR_SEND_WITH_IMM || o.op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static long total(void) { return (long)o.threads * o.count; }

/* Completions that come: of requests that fail, and of all behind them, also those that are not signaled. */
static long send_completions(void)
{
	if (o.fail == STUCK)
		return 0;
	return o.fail ? total() : total() / o.signal;
}

/* The receives of a QP whose peer breaks it by a wrong key come back, flushed, at once on some kernels. */
static long receives(void)
{
	if (o.fail)
		return o.fail == RKEY ? total() : 0;
	return takes_receive() ? total() : 0;
}

/*
 * Queues.
 */

static struct ibv_cq *make_cq(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 8192, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_IMM |
								     IBV_WC_EX_WITH_SRC_QP };

	if (!o.cq)
		return MAKE(ibv_create_cq(ctx, 8192, NULL, NULL, 0));
	return ibv_cq_ex_to_cq(MAKE(ibv_create_cq_ex(ctx, &attr)));
}

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = send_cq, .recv_cq = recv_cq, .srq = srq, .qp_type = o.ud ? IBV_QPT_UD : IBV_QPT_RC, .pd = pd,
		.cap = { o.room ?: DEPTH + MAX_BATCH, DEPTH, MAX_SGES, 1, o.inlined ? o.size * o.sges : 0 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};

	if (o.new_api) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
		if (!o.ud)
			attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
					       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	}
	return MAKE(ibv_create_qp_ex(ctx, &attr));
}

static struct ibv_ah_attr address(void)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1, .hop_limit = 1 } };

	need(!ibv_query_gid(ctx, 1, 1, &ah.grh.dgid), "query_gid");
	return ah;
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12, .ah_attr = address() };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	if (o.fail == KILLED || o.fail == RKEY) {
		rts.timeout = 8;
		rts.retry_cnt = 1;
	}
	if (o.fail == RNR)
		rts.rnr_retry = 1;
	need(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (o.ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)), "INIT");
	need(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | (o.ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)), "RTR");
	need(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | (o.ud ? 0 : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_MAX_QP_RD_ATOMIC)), "RTS");
}

static void open_device(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	size_t bytes = o.size * o.sges + GRH;

	ctx = MAKE(ibv_open_device(MAKE(ibv_get_device_list(NULL))[0]));
	pd = MAKE(ibv_alloc_pd(ctx));
	memory = MAKE(aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
	memset(memory, 1, bytes);
	mr = MAKE(ibv_reg_mr(pd, memory, bytes,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	send_cq = make_cq();
	recv_cq = o.onecq ? send_cq : make_cq();
	if (o.srq)
		srq = MAKE(ibv_create_srq(pd, &attr));
}

/* A process with the other QP, which is killed as soon as both are connected. */
static void connect_to_killed(struct pair *p, int peer, pid_t child)
{
	need(write(peer, &p->sender->qp_num, 4) == 4 && read(peer, &p->remote, 4) == 4, "the peer's number");
	connect_qp(p->sender, p->remote);
	need(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child, "kill");
}

static void be_peer(int peer)
{
	struct ibv_qp *qp;
	uint32_t remote;

	open_device();
	qp = make_qp();
	need(read(peer, &remote, 4) == 4, "the peer's number");
	connect_qp(qp, remote);
	need(write(peer, &qp->qp_num, 4) == 4, "my number");
	pause();
}

static void make_pair(struct pair *p)
{
	struct ibv_ah_attr ah;

	p->sends.requests = MAKE(calloc(total() + 1, sizeof(struct request)));
	p->receives.requests = MAKE(calloc(total() * o.rounds, sizeof(struct request)));
	p->sender = make_qp();
	if (o.fail == KILLED)
		return;
	p->receiver = make_qp();
	p->remote = p->receiver->qp_num;
	connect_qp(p->sender, p->remote);
	connect_qp(p->receiver, p->sender->qp_num);
	if (o.ud) {
		ah = address();
		p->ah = MAKE(ibv_create_ah(pd, &ah));
	}
}

/*
 * Posts.
 */

static struct ibv_sge places[MANY_SGES];

static void stamp_posts(struct request *r, int n, long long a)
{
	long long b = now(), runq = waited();

	for (int i = 0; i < n; i++) {
		r[i].a = a;
		r[i].b = b;
		r[i].runq_b = runq;
	}
}

/* Whether the function that posts has a breakpoint, which each program sees in its own memory: at its beginning, or behind endbr64. */
static int has_trap(struct pair *p)
{
	volatile unsigned char *code = o.new_api ? (void *)ibv_qp_to_qp_ex(p->sender)->wr_complete : (void *)ctx->ops.post_send;

	return code[0] == 0xcc || code[4] == 0xcc;
}

/* Waits until a thread that began at some time has to post its nth request. */
static void wait_for_turn(long long began, int n)
{
	long long at = began + n * 1000000000LL / o.rate;
	struct timespec t = { at / 1000000000, at % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

static uint64_t id_of(int pair, long request) { return o.same ? 7 : (uint64_t)pair << 32 | request; }

static int is_signaled(int i) { return (i + 1) % o.signal == 0; }

/* Whether a request of a chain is one that the provider must refuse. */
static int is_bad(int i, int n) { return o.bad && n > 1 && i + 1 == o.bad; }

/* Counts what became of n requests, and returns how many were posted: the others were refused. */
static int posts_ended(struct queue *q, int posted, int n, int error)
{
	need(error || posted == n, "a refusal without an error");
	q->refused += n - posted;
	q->errors[error] += n - posted;
	return posted;
}

static int post_old(struct pair *p, int thread, int first, int n)
{
	static __thread struct ibv_send_wr wr[MAX_BATCH];
	struct ibv_send_wr *bad = NULL;
	int error;

	for (int i = 0; i < n; i++) {
		memset(&wr[i], 0, sizeof(wr[i]));
		wr[i].wr_id = id_of(p - pairs, (long)thread * o.count + first + i);
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = places;
		wr[i].num_sge = is_bad(i, n) ? MANY_SGES : o.sges;
		wr[i].opcode = o.op;
		wr[i].send_flags = (is_signaled(first + i) ? IBV_SEND_SIGNALED : 0) | (o.inlined ? IBV_SEND_INLINE : 0);
		wr[i].imm_data = htobe32(1000 + i);
		if (o.ud) {
			wr[i].wr.ud.ah = p->ah;
			wr[i].wr.ud.remote_qpn = p->remote;
			wr[i].wr.ud.remote_qkey = QKEY;
		} else if (o.op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr[i].wr.atomic.remote_addr = (uint64_t)memory;
			wr[i].wr.atomic.rkey = mr->rkey;
			wr[i].wr.atomic.compare_add = 1;
		} else {
			wr[i].wr.rdma.remote_addr = (uint64_t)memory;
			wr[i].wr.rdma.rkey = mr->rkey ^ (o.fail == RKEY ? 0x5500 : 0);
		}
	}
	error = errno = ibv_post_send(p->sender, wr, &bad);
	need(!error || o.bad || o.room, "post_send");
	return posts_ended(&p->sends, error ? bad - wr : n, n, error);
}

static void build(struct ibv_qp_ex *qp, int i)
{
	uint32_t rkey = mr->rkey ^ (o.fail == RKEY ? 0x5500 : 0);
	uint64_t to = (uint64_t)memory;

	switch (o.op) {
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qp, htobe32(1000 + i));
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, rkey, to);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, rkey, to, htobe32(1000 + i));
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, rkey, to);
		break;
	default:
		ibv_wr_atomic_fetch_add(qp, rkey, to, 1);
	}
}

static void set_data(struct ibv_qp_ex *qp, int bad)
{
	struct ibv_data_buf data[MAX_SGES];

	if (bad) {
		ibv_wr_set_sge_list(qp, MANY_SGES, places);
	} else if (o.inlined) {
		for (int i = 0; i < o.sges; i++)
			data[i] = (struct ibv_data_buf){ (void *)places[i].addr, places[i].length };
		ibv_wr_set_inline_data_list(qp, o.sges, data);
	} else if (o.sges == 1) {
		ibv_wr_set_sge(qp, places[0].lkey, places[0].addr, places[0].length);
	} else {
		ibv_wr_set_sge_list(qp, o.sges, places);
	}
}

static int post_new(struct pair *p, int thread, int first, int n)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p->sender);
	int error;

	ibv_wr_start(qp);
	for (int i = 0; i < n; i++) {
		if (o.build)
			usleep(o.build);
		qp->wr_id = id_of(p - pairs, (long)thread * o.count + first + i);
		qp->wr_flags = (is_signaled(first + i) ? IBV_SEND_SIGNALED : 0) | (o.inlined ? IBV_SEND_INLINE : 0);
		build(qp, i);
		if (o.ud)
			ibv_wr_set_ud_addr(qp, p->ah, p->remote, QKEY);
		set_data(qp, is_bad(i, n));
	}
	error = errno = ibv_wr_complete(qp);
	need(!error || o.bad || o.room, "wr_complete");
	return posts_ended(&p->sends, error ? 0 : n, n, error);
}

struct poster {
	pthread_t thread;
	struct pair *pair;
	int number;
};

static void *post_all(void *arg)
{
	struct poster *me = arg;
	struct pair *p = me->pair;
	long long began = now();

	for (int i = 0; i < o.count; i += o.batch) {
		int n = o.batch < o.count - i ? o.batch : o.count - i;
		struct request *r = &p->sends.requests[(long)me->number * o.count + i];
		int posted;
		long long a;

		while (!o.room && atomic_fetch_add(&p->outstanding, n) + n > DEPTH) {
			atomic_fetch_sub(&p->outstanding, n);
			sched_yield();
		}
		if (o.rate)
			wait_for_turn(began, i);
		for (int k = i; k < i + n; k++) {
			p->sends.signaled += is_signaled(k);
			r[k - i].trap = has_trap(p);
		}
		a = now();
		posted = (o.new_api ? post_new : post_old)(p, me->number, i, n);
		stamp_posts(r, n, a);
		p->sends.posts += posted;
		left -= n - posted;
		p->outstanding -= n - posted;
		p->sends.bytes += (long)posted * o.sges * o.size;
		if (o.pause)
			usleep(o.pause);
	}
	return NULL;
}

/* Posts n receives in a chain; their numbers follow. */
static void post_receives(struct pair *p, int n)
{
	struct queue *q = srq ? &shared : &p->receives;
	struct ibv_sge place = { (uint64_t)memory, o.size * o.sges + GRH, mr->lkey };
	struct ibv_recv_wr wr[MAX_BATCH] = {}, *bad = NULL;
	long first = atomic_fetch_add(&q->posts, n);
	long long a;
	int error, posted;

	for (int i = 0; i < n; i++) {
		wr[i].wr_id = 1ULL << 63 | id_of(srq ? MAX_QPS : p - pairs, first + i);
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = &place;
		wr[i].num_sge = is_bad(i, n) ? MANY_SGES : 1;
	}
	a = now();
	error = errno = srq ? ibv_post_srq_recv(srq, wr, &bad) : ibv_post_recv(p->receiver, wr, &bad);
	need(!error || o.bad, "post_recv");
	posted = posts_ended(q, error ? bad - wr : n, n, error);
	q->posts -= n - posted;
	stamp_posts(&q->requests[first], posted, a);
	q->bytes += (long)posted * place.length;
}

static void first_receives(struct pair *p, long wanted)
{
	for (long i = 0, n; i < wanted && i < DEPTH; i += n) {
		n = o.batch < wanted - i ? o.batch : wanted - i;
		n = n < DEPTH - i ? n : DEPTH - i;
		post_receives(p, n);
	}
	(srq ? &shared : &p->receives)->claimed = wanted < DEPTH ? wanted : DEPTH;
}

/*
 * Completions.
 */

struct completion {
	uint64_t id;
	enum ibv_wc_status status;
	int opcode;
	unsigned bytes, qp;
};

/* The ids of receives have bit 63, and the pair in the upper half. */
static int is_received(uint64_t id) { return id >> 63; }

static struct pair *pair_of(unsigned qp)
{
	for (int i = 0; i < o.qps; i++)
		if (pairs[i].sender->qp_num == qp || (pairs[i].receiver && pairs[i].receiver->qp_num == qp))
			return &pairs[i];
	need(0, "a completion of no QP");
	return NULL;
}

/* Which request it is: with the same id on all of them, the next in the queue's order. */
static long number_of(struct pair *p, struct completion *c, int received)
{
	long next;

	if (!o.same)
		return c->id & 0xffffffff;
	if (received)
		return -1;
	next = atomic_fetch_add(&p->order, 1);
	return o.fail ? next : (next + 1) * o.signal - 1;
}

static void complete(struct completion *c, struct request *seen)
{
	struct pair *p = o.cq == BARE ? &pairs[c->id << 1 >> 33] : pair_of(c->qp);
	int received = o.cq == BARE ? is_received(c->id) : p->receiver && p->receiver->qp_num == c->qp;
	struct queue *q = received ? &p->receives : &p->sends, *posted = received && srq ? &shared : q;
	long number = number_of(p, c, received);

	q->by[c->status][c->status == IBV_WC_SUCCESS ? c->opcode : OPCODES]++;
	q->completed++;
	if (received && c->status == IBV_WC_SUCCESS)
		q->completed_bytes += c->bytes;
	if (number >= 0) {
		struct request *r = &posted->requests[number];

		need(r->d == 0, "a request that is completed twice");
		r->c = seen->c;
		r->d = seen->d;
		r->runq_c = seen->runq_c;
		r->runq_d = seen->runq_d;
		r->runq_before = seen->runq_before;
		r->runq_last = seen->runq_last;
		r->status = c->status;
		r->opcode = c->opcode;
		r->bytes = c->bytes;
	}
	if (received) {
		long wanted = srq ? receives() * o.qps : receives();

		q->retired++;
		if (atomic_fetch_add(&posted->claimed, 1) < wanted)
			post_receives(p, 1);
	} else {
		long n = o.fail || number == total() ? 1 : o.signal;

		q->retired += n;
		p->outstanding -= n;
	}
	left--;
}

static int poll_old(struct ibv_cq *cq, struct completion *c)
{
	struct ibv_wc wc[MAX_ENTRIES];
	int n = ibv_poll_cq(cq, o.entries, wc);

	need(n >= 0, "poll_cq");
	for (int i = 0; i < n; i++)
		c[i] = (struct completion){ wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].byte_len, wc[i].qp_num };
	return n;
}

static void read_all(struct ibv_cq_ex *ex, struct completion *c)
{
	c->qp = ibv_wc_read_qp_num(ex);
	if (ex->status) {
		ibv_wc_read_vendor_err(ex);
		return;
	}
	c->opcode = ibv_wc_read_opcode(ex);
	c->bytes = ibv_wc_read_byte_len(ex);
	if (ibv_wc_read_wc_flags(ex) & IBV_WC_WITH_IMM)
		ibv_wc_read_imm_data(ex);
	if (o.ud)
		ibv_wc_read_src_qp(ex);
}

/* One at a time: the CQ of rxe does not survive an ibv_next_poll that finds nothing. */
static int poll_new(struct ibv_cq *cq, struct completion *c)
{
	struct ibv_cq_ex *ex = (struct ibv_cq_ex *)cq;
	struct ibv_poll_cq_attr attr = {};
	int err = ibv_start_poll(ex, &attr);

	if (err == ENOENT)
		return 0;
	need(!(errno = err), "start_poll");
	*c = (struct completion){ .id = ex->wr_id, .status = ex->status, .opcode = OPCODES };
	if (o.cq == EXTENDED)
		read_all(ex, c);
	ibv_end_poll(ex);
	return 1;
}

/* What has not come in time after a failure does not come. */
static int stopped(void)
{
	need(now() - last < 30 * 1000000000LL, "completions are missing");
	return o.fail && now() - last > 2 * 1000000000LL;
}

static void *poll_all(void *cq)
{
	struct request seen = { .runq_last = waited() };
	struct completion c[MAX_ENTRIES];
	long without = 0;
	int n;

	while (left > 0 && !stopped()) {
		seen.runq_c = waited();
		seen.c = now();
		n = (o.cq ? poll_new : poll_old)(cq, c);
		seen.d = now();
		seen.runq_d = waited();
		polls++;
		empty += n == 0;
		without += n == 0;
		if (n) {
			last = now();
			empty_before += without;
			without = 0;
		}
		for (int i = 0; i < n; i++)
			complete(&c[i], &seen);
		seen.runq_before = seen.runq_c;
		seen.runq_last = seen.runq_d;
		if (n ? o.rest : o.idle)
			usleep(n ? o.rest : o.idle);
		else if (!n)
			sched_yield();
	}
	return NULL;
}

/*
 * Output.
 */

static const char *statuses[STATUSES] = {
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR",
	"LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",
	"REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
	"TM_ERR", "TM_RNDV_INCOMPLETE",
};

static const char *opcode_name(int opcode)
{
	switch (opcode) {
	case IBV_WC_SEND: return "SEND";
	case IBV_WC_RDMA_WRITE: return "RDMA_WRITE";
	case IBV_WC_RDMA_READ: return "RDMA_READ";
	case IBV_WC_FETCH_ADD: return "FETCH_ADD";
	case IBV_WC_RECV: return "RECV";
	case IBV_WC_RECV_RDMA_WITH_IMM: return "RECV_RDMA_WITH_IMM";
	default: return "-";
	}
}

static void print_queue(const char *name, struct queue *q)
{
	const char *comma = "";

	printf("\"%s\":{\"posts\":%ld,\"refused\":%ld,\"signaled\":%ld,\"bytes\":%ld,\"completed\":%ld,\"completed_bytes\":%ld,\"retired\":%ld,"
	       "\"errors\":{", name, q->posts, q->refused, q->signaled, q->bytes, q->completed, q->completed_bytes, q->retired);
	for (int e = 1; e < ERRORS; e++)
		if (q->errors[e]) {
			printf("%s\"%d\":%ld", comma, e, q->errors[e]);
			comma = ",";
		}
	printf("},\"by\":{");
	comma = "";
	for (int s = 0; s < STATUSES; s++)
		for (int op = 0; op <= OPCODES; op++)
			if (q->by[s][op]) {
				printf("%s\"%s %s\":%ld", comma, opcode_name(op), statuses[s], q->by[s][op]);
				comma = ",";
			}
	printf("}}");
}

static void print_totals(void)
{
	printf("{\"type\":\"totals\",\"pid\":%d,\"polls\":%ld,\"empty\":%ld,\"empty_before\":%ld,\"qps\":[", getpid(), polls, empty,
	       empty_before);
	for (int i = 0; i < o.qps; i++) {
		printf("%s{\"sender\":%u,\"receiver\":%u,\"type\":\"%s\",", i ? "," : "", pairs[i].sender->qp_num, pairs[i].remote, o.ud ? "UD" : "RC");
		print_queue("sends", &pairs[i].sends);
		printf(",");
		print_queue("receives", &pairs[i].receives);
		printf("}");
	}
	printf("],");
	print_queue("srq", &shared);
	printf("}\n");
}

static void print_requests(const char *kind, int pair, struct queue *q)
{
	for (long i = 0, n = *kind == 's' ? total() + o.last : q->posts; i < n; i++) {
		struct request *r = &q->requests[i];

		if (!r->d)
			continue;
		printf("{\"type\":\"request\",\"kind\":\"%s\",\"pair\":%d,\"qp\":%u,\"number\":%ld,\"opcode\":\"%s\",\"status\":\"%s\",\"bytes\":%u,\"trap\":%s,"
		       "\"a\":%lld,\"b\":%lld,\"c\":%lld,\"d\":%lld,\"runq_b\":%lld,\"runq_c\":%lld,\"runq_d\":%lld,\"runq_before\":%lld,\"runq_last\":%lld}\n",
		       kind, pair, pair < 0 ? 0 : *kind == 's' ? pairs[pair].sender->qp_num : pairs[pair].remote, i,
		       opcode_name(r->status ? OPCODES : r->opcode), statuses[r->status], r->bytes, r->trap ? "true" : "false", r->a, r->b, r->c, r->d, r->runq_b, r->runq_c,
		       r->runq_d, r->runq_before, r->runq_last);
	}
}

static void print_all(void)
{
	for (int i = 0; o.lines && i < o.qps; i++) {
		print_requests("send", i, &pairs[i].sends);
		if (!srq)
			print_requests("receive", i, &pairs[i].receives);
	}
	if (o.lines && srq)
		print_requests("receive", -1, &shared);
	print_totals();
}

/*
 * Options.
 */

static const struct {
	const char *name;
	int *value;
} numbers[] = {
	{ "qps", &o.qps }, { "threads", &o.threads }, { "count", &o.count }, { "batch", &o.batch }, { "signal", &o.signal }, { "sges", &o.sges },
	{ "size", &o.size }, { "inline", &o.inlined }, { "srq", &o.srq }, { "onecq", &o.onecq }, { "pollers", &o.pollers }, { "entries", &o.entries },
	{ "pause", &o.pause }, { "rate", &o.rate }, { "build", &o.build }, { "rest", &o.rest }, { "idle", &o.idle }, { "rounds", &o.rounds }, { "lines", &o.lines }, { "wait", &o.wait }, { "hold", &o.hold },
	{ "room", &o.room }, { "bad", &o.bad }, { "late", &o.late }, { "last", &o.last },
};

static const struct {
	const char *text;
	int *value, is;
} words[] = {
	{ "op=send", (int *)&o.op, IBV_WR_SEND }, { "op=send_imm", (int *)&o.op, IBV_WR_SEND_WITH_IMM },
	{ "op=write", (int *)&o.op, IBV_WR_RDMA_WRITE }, { "op=write_imm", (int *)&o.op, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "op=read", (int *)&o.op, IBV_WR_RDMA_READ }, { "op=fadd", (int *)&o.op, IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ "type=rc", &o.ud, 0 }, { "type=ud", &o.ud, 1 }, { "ids=distinct", &o.same, 0 }, { "ids=same", &o.same, 1 },
	{ "api=old", &o.new_api, 0 }, { "api=wr", &o.new_api, 1 }, { "cq=old", &o.cq, 0 }, { "cq=ex", &o.cq, EXTENDED }, { "cq=bare", &o.cq, BARE },
	{ "fail=rkey", &o.fail, RKEY }, { "fail=rnr", &o.fail, RNR }, { "fail=stuck", &o.fail, STUCK }, { "fail=killed", &o.fail, KILLED },
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

static void check_options(void)
{
	if (o.fail) { /* all in one chain, before the first failure is known */
		o.threads = 1;
		o.batch = o.count;
	}
	if (o.op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		o.size = 8;
	need(o.qps <= MAX_QPS && o.batch <= MAX_BATCH && o.sges <= MAX_SGES && o.entries <= MAX_ENTRIES, "too much");
	need(o.count % o.signal == 0, "count is no multiple of signal");
	need(o.threads * o.signal + o.batch * o.threads <= DEPTH, "the queue is full of requests that are not signaled");
	need(o.cq != BARE || !(o.same || o.srq), "cq=bare needs ids that show the QP");
	need(!o.same || !o.lines || (o.threads == 1 && o.pollers == 1), "lines of the same id take one thread that posts, and one that polls");
	need(o.fail != KILLED || (o.qps == 1 && o.rounds == 1), "one QP and one round for fail=killed");
	need(o.rounds == 1 || (!o.srq && !o.lines), "rounds have neither an SRQ nor lines");
	need(!(o.room || o.bad || o.last) || (o.signal == 1 && !o.same && !takes_receive()), "signal=1, distinct ids and op=write");
	need(!o.late || total() <= DEPTH, "too much for polls that begin late");
}

static void setup(void)
{
	int peer[2];
	pid_t child = -1;

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, peer), "socketpair");
	if (o.fail == KILLED) {
		child = fork();
		if (!child)
			be_peer(peer[1]);
	}
	open_device();
	for (int i = 0; i < o.sges; i++)
		places[i] = (struct ibv_sge){ (uint64_t)memory + (long)i * o.size, o.size, mr->lkey };
	for (int i = 0; i < o.qps; i++)
		make_pair(&pairs[i]);
	if (o.fail == KILLED)
		connect_to_killed(&pairs[0], peer[0], child);
	shared.requests = MAKE(calloc(total() * o.qps, sizeof(struct request)));
}

static void start_pollers(pthread_t *pollers, int n)
{
	for (int i = 0; i < n; i++)
		need(!pthread_create(&pollers[i], NULL, poll_all, i < o.pollers ? send_cq : recv_cq), "thread");
}

/* Posts one more request to a QP without any, and waits for its completion. Its number follows the numbers of all threads. */
static void run_last(struct pair *p)
{
	left = 1;
	p->sends.signaled++;
	p->sends.posts++;
	need((o.new_api ? post_new : post_old)(p, o.threads, 0, 1) == 1, "the last request is refused");
	p->sends.bytes += (long)o.sges * o.size;
	poll_all(send_cq);
}

static void run(void)
{
	struct poster *posters = MAKE(calloc(o.qps * o.threads, sizeof(*posters)));
	pthread_t *pollers = MAKE(calloc(o.pollers + 1, sizeof(*pollers)));
	int polling = o.pollers + !o.onecq;

	left = (send_completions() + receives()) * o.qps;
	last = now();
	for (int i = 0; i < o.qps && !srq; i++)
		first_receives(&pairs[i], receives());
	if (srq)
		first_receives(&pairs[0], receives() * o.qps);
	for (int i = 0; i < o.qps && o.bad; i++)
		post_receives(&pairs[i], o.batch);
	if (!o.late)
		start_pollers(pollers, polling);
	for (int i = 0; i < o.qps * o.threads; i++) {
		posters[i].pair = &pairs[i / o.threads];
		posters[i].number = i % o.threads;
		need(!pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), "thread");
	}
	for (int i = 0; i < o.qps * o.threads; i++)
		pthread_join(posters[i].thread, NULL);
	if (o.late)
		start_pollers(pollers, polling);
	for (int i = 0; i < polling; i++)
		pthread_join(pollers[i], NULL);
	for (int i = 0; i < o.qps && o.last; i++)
		run_last(&pairs[i]);
}

/* Sets up all QPs once more, as after a failure. */
static void renew(void)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	for (struct pair *p = pairs; p < pairs + o.qps; p++) {
		need(!ibv_modify_qp(p->sender, &reset, IBV_QP_STATE) && !ibv_modify_qp(p->receiver, &reset, IBV_QP_STATE), "RESET");
		connect_qp(p->sender, p->remote);
		connect_qp(p->receiver, p->sender->qp_num);
		memset(p->sends.requests, 0, total() * sizeof(struct request));
		p->outstanding = p->order = 0;
	}
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		need(set_option(argv[i]), argv[i]);
	check_options();
	setup();
	printf("{\"type\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	if (o.wait)
		getchar();
	run();
	for (int i = 1; i < o.rounds; i++) {
		renew();
		run();
	}
	sleep(o.hold);
	print_all();
	return 0;
}
