/*
 * register BYTES FILE: registers memory that it has not touched yet, and prints by how much the number max of FILE, a memory.events, grew
 * meanwhile. The objects go with the process.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define NEED(ok) \
	do { \
		if (!(ok)) { \
			perror(#ok); \
			exit(1); \
		} \
	} while (0)

static long max_of(const char *file)
{
	FILE *f = fopen(file, "r");
	long n = -1;

	NEED(f);
	while (fscanf(f, "max %ld", &n) != 1)
		NEED(fscanf(f, "%*[^\n]\n") == 0);
	fclose(f);
	return n;
}

int main(int argc, char **argv)
{
	size_t bytes = strtoul(argv[1], NULL, 0);
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	void *memory;
	long before;

	NEED(all && all[0]);
	NEED(ctx = ibv_open_device(all[0]));
	NEED(pd = ibv_alloc_pd(ctx));
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	before = max_of(argv[2]);
	NEED(ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE));
	printf("%ld\n", max_of(argv[2]) - before);
	return 0;
}
