// Maps, touches and unmaps memory in all ways. memory FILE waits for a line; then it prints what the kernel counts of its thread named
// work: minor and major faults; and by how many KiB the process has grown, which also has threads that map and unmap at the same time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MB = 1 << 20, PAGE = 4096, RW = PROT_READ | PROT_WRITE };

static int file;

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static char *map(void *at, size_t length, int flags, int fd)
{
	char *p = mmap(at, length, RW, flags, fd, 0);

	check(p != MAP_FAILED, "mmap");
	return p;
}

// The stack grows by more than a MiB.
static __attribute__((noinline)) void deepen(void)
{
	volatile char room[MB];

	for (int i = 0; i < MB; i += PAGE)
		room[i] = 1;
	(void)room[0];
}

static void work(void)
{
	char *a = map(NULL, 8 * MB, MAP_PRIVATE | MAP_ANONYMOUS, -1), *shared, *pages, *copy;

	check(!madvise(a, 8 * MB, MADV_NOHUGEPAGE), "madvise");
	for (int i = 0; i < 100; i++)
		a[i * PAGE] = 1;
	check(!munmap(a + MB, 2 * MB), "munmap a part");
	check(!munmap(a, 5 * MB), "munmap around a hole");
	a = mremap(a + 5 * MB, 3 * MB, 16 * MB, MREMAP_MAYMOVE);
	check(a != MAP_FAILED, "mremap");
	check(mremap(a, 16 * MB, 6 * MB, 0) == a, "mremap to less");
	check(mremap(a + 4 * MB, 2 * MB, 3 * MB, MREMAP_MAYMOVE | MREMAP_FIXED, a) == a, "mremap to a fixed address");
	shared = map(NULL, 4 * MB, MAP_SHARED | MAP_ANONYMOUS, -1);
	map(shared + MB, MB, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1); // in place of a part
	pages = map(NULL, 64 * PAGE, MAP_SHARED, file);
	check(!madvise(pages, 64 * PAGE, MADV_RANDOM), "madvise of a file");
	for (int i = 0; i < 64; i += 2)
		(void)*(volatile char *)(pages + i * PAGE);
	copy = map(NULL, 64 * PAGE, MAP_PRIVATE, file);
	copy[0] = 1;
	check(mmap(NULL, 1UL << 60, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, "mmap of too much");
	a = map(NULL, 8 * MB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	check(!madvise(a, 8 * MB, MADV_NOHUGEPAGE), "madvise");
	for (int i = 0; i < 1000; i++)
		a[i * PAGE] = 1;
	check(!mprotect(a + MB, MB, PROT_READ) && !munmap(a + MB / 2, MB), "munmap of two mappings");
	a = map(NULL, 4 * MB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	map(a + MB, 64 * PAGE, MAP_SHARED | MAP_FIXED, file);
	check(!munmap(a, 4 * MB) && !munmap(shared, MB), "munmap of two kinds, and of shared memory");
	deepen();
	check(sbrk(5 * MB) != (void *)-1 && sbrk(-2 * MB) != (void *)-1, "sbrk");
}

static void nothing(void) {}

// Counts the faults of the thread while it has the name.
static struct rusage count(const char *name, void (*what)(void))
{
	struct rusage before, after;

	getrusage(RUSAGE_THREAD, &before);
	prctl(PR_SET_NAME, name);
	what();
	prctl(PR_SET_NAME, "rest");
	getrusage(RUSAGE_THREAD, &after);
	after.ru_minflt -= before.ru_minflt;
	after.ru_majflt -= before.ru_majflt;
	return after;
}

static void *others(void *unused)
{
	for (int i = 0; i < 500; i++)
		check(!munmap(map(NULL, 3 * MB, MAP_PRIVATE | MAP_ANONYMOUS, -1), (i % 2 ? 3 : 2) * MB), "munmap");
	return unused;
}

static long size(void)
{
	static char text[100];
	int statm = open("/proc/self/statm", O_RDONLY);

	check(statm >= 0 && read(statm, text, sizeof(text) - 1) > 0, "/proc/self/statm");
	close(statm);
	return atol(text) * PAGE / 1024;
}

int main(int argc, char **argv)
{
	struct rusage counted;
	pthread_t threads[4];
	long before;

	file = open(argv[1], O_RDWR);
	check(file >= 0, argv[1]);
	count("warm", nothing);
	size();
	puts("ready");
	fflush(stdout);
	getchar();
	before = size();
	for (int i = 0; i < 4; i++)
		check(!pthread_create(&threads[i], NULL, others, NULL), "pthread_create");
	counted = count("work", work);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("%ld %ld %ld\n", counted.ru_minflt, counted.ru_majflt, size() - before);
	fflush(stdout);
	getchar();
	return 0;
}
