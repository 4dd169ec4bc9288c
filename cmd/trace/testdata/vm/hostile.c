/*
 * A program of a user without rights that lies about where functions of libibverbs are: whoever believes it attaches to the place that it names.
 *
 *   hostile HOW FILE OFFSET    names an offset of a file, which it maps as code
 *   hostile same FILE          names the functions of a copy of the provider's library, each as what it is
 *   hostile HOW swap           names the real provider's functions: the one for sends as the one for receives, and the other way round
 *   hostile called             calls the function lure() of this file 10,000 times, and ends: it is at an offset of the file that readelf knows
 *
 *   HOW  raw      opens the device without libibverbs, and has what looks like a struct ibv_context
 *        context  changes the context that libibverbs made
 *        qp       changes a struct ibv_qp_ex
 *        cq       changes a struct ibv_cq_ex
 *
 * It prints a line with its number, and for each line of input it makes objects of the device, or changes the state of its QP, so that it is looked
 * at again, and prints a line. It posts and polls nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NEED(ok) \
	do { \
		if (!(ok)) { \
			fprintf(stderr, "hostile: %s: %s\n", #ok, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

/* What trace reads of a struct ibv_context: infiniband/verbs.h. */
enum { POLL_CQ = 96, POST_SRQ_RECV = 168, POST_SEND = 208, POST_RECV = 216, CMD_FD = 264, ABI_COMPAT = 320 };
_Static_assert(offsetof(struct ibv_context, ops.poll_cq) == POLL_CQ && offsetof(struct ibv_context, ops.post_recv) == POST_RECV, "ops");
_Static_assert(offsetof(struct ibv_context, cmd_fd) == CMD_FD && offsetof(struct ibv_context, abi_compat) == ABI_COMPAT, "context");

static const int calls[] = { POLL_CQ, POST_SRQ_RECV, POST_SEND, POST_RECV };

__attribute__((noinline)) int lure(void *qp, void *wr, void *bad)
{
	asm volatile("" ::"r"(qp), "r"(wr), "r"(bad) : "memory");
	return 1;
}

static void call_lure(void)
{
	static uint64_t nothing[128];
	int sum = 0;

	for (int i = 0; i < 10000; i++)
		sum += lure(nothing, nothing, nothing);
	printf("%d calls\n", sum);
}

static uint64_t map_code(const char *file, off_t offset)
{
	off_t page = offset & ~4095L;
	int fd = open(file, O_RDONLY);
	char *code;

	NEED(fd >= 0);
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, page);
	NEED(code != MAP_FAILED);
	close(fd);
	return (uint64_t)code + (offset - page);
}

static void set(void *object, int offset, uint64_t value) { memcpy((char *)object + offset, &value, 8); }

static uint64_t *memory; /* that looks like a context */

static void forge_context(uint64_t place)
{
	int fd = open("/dev/infiniband/uverbs0", O_RDWR);

	memory = calloc(1, 4096);

	NEED(memory && fd >= 0);
	memory[0] = (uint64_t)memory; /* the device */
	for (int i = 0; i < 4; i++)
		set(memory, calls[i], place);
	memcpy((char *)memory + CMD_FD, &fd, 4);
	set(memory, ABI_COMPAT, ~0ULL);
}

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_qp *qp;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[0] && (ctx = ibv_open_device(list[0])));
}

static void make_objects(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1 } };

	NEED(cq && (pd = ibv_alloc_pd(ctx)) && (qp = ibv_create_qp(pd, &attr)));
}

/* The address in a copy of a library that is mapped there. */
static uint64_t copied(void *function, const char *copy)
{
	Dl_info info;

	NEED(dladdr(function, &info));
	return (uint64_t)copy + ((uint64_t)function - (uint64_t)info.dli_fbase); /* its code is where its file has it */
}

static void name_copy(const char *file)
{
	int fd = open(file, O_RDONLY);
	char *copy;

	NEED(fd >= 0);
	copy = mmap(NULL, lseek(fd, 0, SEEK_END), PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	NEED(copy != MAP_FAILED);
	set(ctx, POLL_CQ, copied(ctx->ops.poll_cq, copy));
	set(ctx, POST_SRQ_RECV, copied(ctx->ops.post_srq_recv, copy));
	set(ctx, POST_SEND, copied(ctx->ops.post_send, copy));
	set(ctx, POST_RECV, copied(ctx->ops.post_recv, copy));
}

static void change_qp(void)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET }, init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	NEED(!ibv_modify_qp(qp, &reset, IBV_QP_STATE));
	NEED(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	uint64_t place = argc > 3 ? map_code(argv[2], strtoll(argv[3], NULL, 0)) : 0;
	char line[64];

	if (!strcmp(how, "called")) {
		call_lure();
		return 0;
	}
	if (!strcmp(how, "raw")) {
		forge_context(place);
	} else {
		open_device();
		if (!strcmp(how, "same"))
			name_copy(argv[2]);
		if (!strcmp(how, "context") && place) {
			for (int i = 0; i < 4; i++)
				set(ctx, calls[i], place);
		} else if (!strcmp(how, "context")) {
			void *send = ctx->ops.post_send, *receive = ctx->ops.post_recv;

			set(ctx, POST_SEND, (uint64_t)receive);
			set(ctx, POST_RECV, (uint64_t)send);
		}
		make_objects();
		if (!strcmp(how, "qp"))
			for (int at = 184; at <= 336; at += 8) /* wr_atomic_cmp_swp to wr_abort */
				set(qp, at, at == 272 || at == 280 ? 0 : place);
		if (!strcmp(how, "cq"))
			for (int at = 144; at <= 216; at += 8) /* start_poll to read_wc_flags */
				set(qp->send_cq, at, place);
		change_qp();
	}
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!ctx)
			open_device(); /* an honest context, as well as the other one */
		NEED(ibv_alloc_pd(ctx));
		if (qp)
			change_qp();
		printf("again\n");
		fflush(stdout);
	}
	return 0;
}
