/*
 * A library to preload: libmlx5, the provider, takes rxe0 for its device. What it asks the kernel for is answered here, and a thread does
 * what the device does: it reads the work requests that libmlx5 writes into its queues, and writes completions. So the provider's own code
 * posts and polls, without its device and without its driver.
 *
 * It knows RC, SEND, RDMA and atomics, by all calls, and no failures: nothing is transferred.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MOST 128
#define UVERBS_MAJOR 231
#define WQE_SHIFT 6 /* a work request takes multiples of this */
#define STRIDE (1 << WQE_SHIFT)

/*
 * libmlx5 registers itself with the devices that it knows: struct verbs_device_ops of libibverbs/driver.h.
 */

struct match {
	void *data;
	uint64_t driver_id;
	uint16_t vendor, device;
	uint8_t kind;
};

struct driver {
	const char *name;
	uint32_t min_abi, max_abi;
	const struct match *matches;
	void *rest[6];
};

enum { MATCH_DRIVER_ID = 3, RXE = 14 };

void verbs_register_driver_34(const struct driver *theirs)
{
	static const struct match rxe[] = { { .driver_id = RXE, .kind = MATCH_DRIVER_ID }, {} };
	static struct driver ours;
	void (*really)(const struct driver *) = dlvsym(RTLD_NEXT, "verbs_register_driver_34", "IBVERBS_PRIVATE_34");

	if (strcmp(theirs->name, "mlx5"))
		return;
	ours = *theirs;
	ours.min_abi = 0;
	ours.max_abi = 100;
	ours.matches = rxe;
	really(&ours);
}

/*
 * The device.
 */

struct cq {
	struct mlx5_cqe64 *entries;
	uint32_t size, next;
};

struct qp {
	char *sends;
	__be32 *doorbell; /* how many receives and sends were posted */
	uint32_t size, uidx, num, peer;
	struct cq *send_cq, *recv_cq;
	uint16_t sent, received;
};

static struct cq cqs[MOST];
static struct qp qps[MOST];
static atomic_int cq_count = 1, qp_count = 1; /* handles */

enum { FIRST_QP = 0x100 };

/* The layout of a completion: the newer one has an index of its queue's user. */
static bool is_v1(void)
{
	const char *version = getenv("CQE_VERSION");

	return !version || strcmp(version, "0");
}

static void complete(struct cq *cq, struct qp *qp, uint8_t opcode, uint32_t operation, uint16_t counter, uint32_t bytes, __be32 imm)
{
	struct mlx5_cqe64 *e = &cq->entries[cq->next % cq->size];

	e->srqn_uidx = htobe32(is_v1() ? qp->uidx : 0);
	e->imm_inval_pkey = imm;
	e->byte_cnt = htobe32(bytes);
	e->sop_drop_qpn = htobe32(operation << 24 | qp->num);
	e->wqe_counter = htobe16(counter);
	atomic_thread_fence(memory_order_release);
	*(volatile uint8_t *)&e->op_own = opcode << 4 | (cq->next / cq->size & 1);
	cq->next++;
}

/* What a work request has, in units of 16 bytes, which may go on at the queue's beginning. */
static void *unit(struct qp *qp, uint16_t wqe, uint32_t i)
{
	uint32_t bytes = qp->size * STRIDE;

	return qp->sends + ((uint32_t)wqe * STRIDE + i * 16) % bytes;
}

static uint32_t data_bytes(struct qp *qp, uint16_t wqe, uint32_t first, uint32_t units)
{
	uint32_t sum = 0;

	for (uint32_t i = first; i < units; i++) {
		uint32_t n = be32toh(*(__be32 *)unit(qp, wqe, i));

		if (n & MLX5_INLINE_SEG) {
			n &= ~MLX5_INLINE_SEG;
			i += (n + 4 + 15) / 16 - 1;
		}
		sum += n;
	}
	return sum;
}

/* Whether a work request is done: one that needs a receive waits for it. */
static bool transfer(struct qp *qp, uint16_t wqe, struct mlx5_wqe_ctrl_seg *control, uint8_t opcode, uint32_t units)
{
	struct qp *peer = &qps[qp->peer - FIRST_QP];
	bool write_imm = opcode == MLX5_OPCODE_RDMA_WRITE_IMM, imm = write_imm || opcode == MLX5_OPCODE_SEND_IMM;

	if (!write_imm && !imm && opcode != MLX5_OPCODE_SEND)
		return true;
	if (peer->received == (uint16_t)be32toh(*(volatile __be32 *)&peer->doorbell[MLX5_RCV_DBR]))
		return false;
	complete(peer->recv_cq, peer, write_imm ? MLX5_CQE_RESP_WR_IMM : imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND, 0, peer->received++,
		 data_bytes(qp, wqe, write_imm ? 2 : 1, units), control->imm);
	return true;
}

static bool send_one(struct qp *qp)
{
	struct mlx5_wqe_ctrl_seg *control = unit(qp, qp->sent, 0);
	uint32_t units = be32toh(control->qpn_ds) & 0x3f;
	uint8_t opcode = be32toh(control->opmod_idx_opcode);
	uint16_t wqe = be32toh(control->opmod_idx_opcode) >> 8;

	if (!transfer(qp, qp->sent, control, opcode, units))
		return false;
	if (control->fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE)
		complete(qp->send_cq, qp, MLX5_CQE_REQ, opcode, wqe, opcode == MLX5_OPCODE_RDMA_READ ? data_bytes(qp, wqe, 2, units) : 8, 0);
	qp->sent += (units * 16 + STRIDE - 1) / STRIDE;
	return true;
}

/* It looks often while there is work, and seldom while there is none: several programs may wait. */
static void *device(void *unused)
{
	for (int idle = 0;; idle++) {
		for (int i = 1; i < qp_count; i++)
			while (qps[i].peer && qps[i].sent != (uint16_t)be32toh(*(volatile __be32 *)&qps[i].doorbell[MLX5_SND_DBR]) && send_one(&qps[i]))
				idle = 0;
		if (idle)
			usleep(idle < 100 ? 100 : 20000);
	}
	return NULL;
}

/*
 * The kernel: commands with a request, of its own part and the driver's, and likewise a response.
 */

static void get_context(struct ib_uverbs_get_context_resp *to)
{
	struct mlx5_ib_alloc_ucontext_resp *driver = (void *)(to + 1);

	to->async_fd = eventfd(0, EFD_CLOEXEC);
	to->num_comp_vectors = 1;
	driver->qp_tab_size = 1 << 18;
	driver->bf_reg_size = 512;
	driver->tot_bfregs = 16;
	driver->cache_line_size = 64;
	driver->max_sq_desc_sz = 1024;
	driver->max_rq_desc_sz = 512;
	driver->max_send_wqebb = driver->max_recv_wr = driver->max_srq_recv_wr = 1 << 15;
	driver->num_ports = 1;
	driver->cqe_version = is_v1();
}

static void make_cq(uint32_t cqe, struct mlx5_ib_create_cq *driver, struct ib_uverbs_create_cq_resp *to, struct mlx5_ib_create_cq_resp *driver_to)
{
	int handle = cq_count++;

	cqs[handle] = (struct cq){ .entries = (void *)driver->buf_addr, .size = cqe + 1 };
	to->cq_handle = handle;
	to->cqe = cqe;
	driver_to->cqn = handle;
}

static void make_qp(struct ib_uverbs_create_qp *from, struct ib_uverbs_create_qp_resp *to)
{
	struct mlx5_ib_create_qp *driver = (void *)(from + 1);
	struct mlx5_ib_create_qp_resp *driver_to = (void *)(to + 1);
	int handle = qp_count;
	pthread_t thread;

	qps[handle] = (struct qp){
		.sends = (char *)driver->buf_addr + (driver->rq_wqe_count << driver->rq_wqe_shift), .size = driver->sq_wqe_count,
		.doorbell = (void *)driver->db_addr, .uidx = driver->uidx, .num = FIRST_QP + handle,
		.send_cq = &cqs[from->send_cq_handle], .recv_cq = &cqs[from->recv_cq_handle],
	};
	to->qp_handle = handle;
	to->qpn = FIRST_QP + handle;
	to->max_send_wr = from->max_send_wr;
	to->max_recv_wr = from->max_recv_wr;
	to->max_send_sge = from->max_send_sge;
	to->max_recv_sge = from->max_recv_sge;
	to->max_inline_data = from->max_inline_data;
	driver_to->bfreg_index = handle % 4;
	qp_count = handle + 1;
	if (handle == 1 && pthread_create(&thread, NULL, device, NULL))
		abort();
}

/* IB_QP_DEST_QPN, include/rdma/ib_verbs.h */
#define DEST_QPN (1 << 20)

static ssize_t command(const struct ib_uverbs_cmd_hdr *header, size_t n)
{
	void *from = (void *)(header + 1), *to = *(void **)from;

	switch (header->command) {
	case IB_USER_VERBS_CMD_GET_CONTEXT:
		get_context(to);
		break;
	case IB_USER_VERBS_CMD_QUERY_DEVICE:
		memset(to, 0, sizeof(struct ib_uverbs_query_device_resp));
		((struct ib_uverbs_query_device_resp *)to)->atomic_cap = IBV_ATOMIC_HCA;
		break;
	case IB_USER_VERBS_CMD_ALLOC_PD:
	case IB_USER_VERBS_CMD_REG_MR:
		memset(to, 0x11, header->out_words * 4);
		break;
	case IB_USER_VERBS_CMD_CREATE_CQ: {
		struct ib_uverbs_create_cq_resp *response = to;

		make_cq(((struct ib_uverbs_create_cq *)from)->cqe, (void *)((struct ib_uverbs_create_cq *)from + 1), response, (void *)(response + 1));
		break;
	}
	case IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_CQ: {
		struct ib_uverbs_ex_cmd_hdr *extended = from;
		struct ib_uverbs_ex_create_cq *request = (void *)(extended + 1);
		struct ib_uverbs_ex_create_cq_resp *response = (void *)extended->response;

		response->response_length = sizeof(*response);
		make_cq(request->cqe, (void *)(request + 1), &response->base, (void *)(response + 1));
		break;
	}
	case IB_USER_VERBS_CMD_CREATE_QP:
		make_qp(from, to);
		break;
	case IB_USER_VERBS_CMD_MODIFY_QP: {
		struct ib_uverbs_modify_qp *request = from;

		if (request->attr_mask & DEST_QPN)
			qps[request->qp_handle].peer = request->dest_qp_num;
		break;
	}
	default:
		errno = EOPNOTSUPP;
		return -1;
	}
	return n;
}

static bool is_device(int fd)
{
	struct stat s;

	return !fstat(fd, &s) && S_ISCHR(s.st_mode) && major(s.st_rdev) == UVERBS_MAJOR;
}

ssize_t write(int fd, const void *data, size_t n)
{
	return is_device(fd) ? command(data, n) : syscall(SYS_write, fd, data, n);
}

/* Without it libibverbs writes its commands. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list rest;
	void *arg;

	va_start(rest, request);
	arg = va_arg(rest, void *);
	va_end(rest);
	if (!is_device(fd))
		return syscall(SYS_ioctl, fd, request, arg);
	errno = ENOTTY;
	return -1;
}

/* The pages that tell the device that something was written. */
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
	if (fd >= 0 && is_device(fd))
		return (void *)syscall(SYS_mmap, at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
	return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
