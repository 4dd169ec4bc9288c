// Processes and threads that make getppid calls, each under a name and with a number of calls that depend on what it is. They exist when it prints
// their numbers, and begin when it reads a line. It ends at the end of its input.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int begin[2]; // closed when all may begin
static int ready[2]; // a byte from each that is there
static int over[2];  // at its end when all have ended

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void calls(const char *name, int n)
{
	prctl(PR_SET_NAME, name);
	for (int i = 0; i < n; i++)
		syscall(SYS_getppid);
}

static void await(void)
{
	char c;

	close(begin[1]);
	must(write(ready[1], "", 1) == 1, "ready");
	while (read(begin[0], &c, 1) > 0)
		;
}

static void enter(const char *cgroup)
{
	char path[256];
	FILE *procs;

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	procs = fopen(path, "w");
	must(procs != NULL, path);
	fprintf(procs, "0\n");
	must(fclose(procs) == 0, path);
}

// A child that waits, in a cgroup if one is named.
static pid_t child(const char *name, int n, const char *cgroup)
{
	pid_t pid = fork();

	must(pid >= 0, "fork");
	if (pid)
		return pid;
	if (cgroup)
		enter(cgroup);
	await();
	calls(name, n);
	exit(0);
}

static void *thread(void *unused)
{
	char c;

	(void)unused;
	must(write(ready[1], "", 1) == 1, "ready");
	while (read(begin[0], &c, 1) > 0)
		;
	calls("flt-thread", 2);
	return NULL;
}

static pid_t group(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setpgid(0, 0);
	child("flt-member", 8, NULL);
	await();
	calls("flt-group", 4);
	wait(NULL);
	exit(0);
}

// A child whose own child is in a new pid namespace.
static void space(void)
{
	if (fork())
		return;
	must(unshare(CLONE_NEWPID) == 0, "unshare");
	if (!fork()) {
		struct stat ns;

		must(stat("/proc/self/ns/pid", &ns) == 0, "/proc/self/ns/pid");
		printf("space %lu\n", (unsigned long)ns.st_ino);
		fflush(stdout);
		await();
		calls("flt-space", 16);
		exit(0);
	}
	close(begin[1]);
	wait(NULL);
	exit(0);
}

// A child whose parent has ended.
static void orphan(void)
{
	if (!fork()) {
		child("flt-orphan", 32, NULL);
		exit(0);
	}
	wait(NULL);
}

int main(int argc, char **argv)
{
	char line[16], deep[256], later[256];
	int there = 6;
	pthread_t id;
	pid_t g;

	setpgid(0, 0);
	must(pipe(begin) == 0 && pipe(ready) == 0 && pipe(over) == 0, "pipe");
	child("flt-child", 1, NULL);
	g = group();
	space();
	orphan();
	if (argc > 2) {
		snprintf(deep, sizeof(deep), "%s/deep", argv[1]);
		child("flt-inside", 64, argv[1]);
		child("flt-deep", 128, deep);
		child("flt-beside", 256, argv[2]);
		there += 3;
	}
	must(pthread_create(&id, NULL, thread, NULL) == 0, "pthread_create");
	for (; there > 0; there--)
		must(read(ready[0], line, 1) == 1, "ready");
	printf("root %d\ngroup %d\n", getpid(), g);
	fflush(stdout);
	must(fgets(line, sizeof(line), stdin) != NULL, "input");
	close(begin[1]);
	pthread_join(id, NULL);
	calls("flt-root", 512);
	// One that is forked later, and one in a cgroup that is made later.
	if (!fork()) {
		calls("flt-later", 1024);
		exit(0);
	}
	if (argc > 2 && !fork()) {
		snprintf(later, sizeof(later), "%s/later", argv[1]);
		must(mkdir(later, 0755) == 0, later);
		enter(later);
		calls("flt-made", 2048);
		exit(0);
	}
	close(over[1]);
	must(read(over[0], line, 1) == 0, "over");
	printf("done\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
