/*
 * What a tracer must not change: a function that is called 10,000 times. It prints what these calls and as many of malloc returned.
 *
 *   hostile_victim [LIBRARY]    constant() of the library, or its own
 *
 * With -DLIBRARY it is such a library. With -DPRIVATE it needs a version IBVERBS_PRIVATE_*, as the libraries of providers do, and ibv_devinfo.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS 10000
#define RETURNED 0x1122334455667788ULL

/* It begins with an instruction of ten bytes. The last eight are what it returns: a breakpoint in them is in the result. */
asm(".text\n"
    ".globl constant\n"
    ".type constant, @function\n"
    "constant:\n"
    ".cfi_startproc\n"
    "movabs $0x1122334455667788, %rax\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size constant, . - constant\n");

/* Whoever takes it for ibv_post_send finds a QP, and one work request. */
uint64_t constant(void *qp, void *wr, void *bad);

#ifdef PRIVATE
int ibv_cmd_alloc_pd(void);
int (*volatile private)(void) = ibv_cmd_alloc_pd;
#endif

#ifndef LIBRARY
static uint64_t nothing[128];

int main(int argc, char **argv)
{
	uint64_t (*call)(void *, void *, void *) = constant;
	uint64_t sum = 0, wrong = 0, last = 0;
	size_t sizes = 0;

	if (argc > 1) {
		void *library = dlopen(argv[1], RTLD_NOW);

		if (!library || !(*(void **)&call = dlsym(library, "constant"))) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
	}
	for (int i = 0; i < CALLS; i++) {
		uint64_t is = call(nothing, nothing, nothing);

		sum += is;
		if (is != RETURNED)
			wrong++, last = is;
	}
	printf("%d calls: sum %#llx, %llu others, the last %#llx\n", CALLS, (unsigned long long)sum, (unsigned long long)wrong, (unsigned long long)last);
	for (int i = 0; i < CALLS; i++) {
		char *volatile memory = malloc(i + 1);

		sizes += memory != NULL ? i + 1 : 0;
		free(memory);
	}
	printf("%d mallocs: %zu bytes\n", CALLS, sizes);
	return 0;
}
#endif
