/* Makes RDMA objects on rxe0, waits for a line of input, makes calls that fail, and undoes it all. Prints what it has and what failed. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *p, const char *what)
{
	if (!p) {
		perror(what);
		exit(1);
	}
	return p;
}

int main(void)
{
	struct ibv_device **devices = need(ibv_get_device_list(NULL), "devices");
	struct ibv_context *ctx = need(ibv_open_device(devices[0]), "open");
	struct ibv_pd *pd = need(ibv_alloc_pd(ctx), "alloc_pd");
	struct ibv_cq *cq = need(ibv_create_cq(ctx, 100, NULL, NULL, ctx->num_comp_vectors - 1), "create_cq");
	char *buffer = need(aligned_alloc(4096, 12288), "memory");
	struct ibv_mr *mr;

	memset(buffer, 1, 12288);
	mr = need(ibv_reg_mr(pd, buffer + 100, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ), "reg_mr");
	printf("addr %llu lkey %u rkey %u cqe %d vector %d\n", (unsigned long long)(buffer + 100), mr->lkey, mr->rkey, cq->cqe,
	       ctx->num_comp_vectors - 1);
	fflush(stdout);
	getchar();

	errno = 0;
	ibv_reg_mr(pd, (void *)0x10000, 4096, IBV_ACCESS_LOCAL_WRITE);
	printf("reg_mr %d\n", errno);
	errno = 0;
	ibv_create_cq(ctx, 1 << 24, NULL, NULL, 0);
	printf("create_cq %d\n", errno);
	printf("dealloc_pd %d\n", ibv_dealloc_pd(pd));
	printf("rereg_mr %d\n", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	return ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd);
}
