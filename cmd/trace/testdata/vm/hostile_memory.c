/*
 * A process of a user without rights whose memory, files or devices keep whoever looks into it busy, or waiting.
 *
 *   hostile_memory HOW [FOLDER]    it begins as root, which mounts what it needs on the folder, and goes on as user 1000
 *
 *   huge       maps 4 GiB, and touches nothing
 *   zero       maps 4 GiB, and has all pages, which take no memory
 *   missing    has 64 MiB that userfaultfd(2) is asked for, which nobody answers
 *   flip       has pages there, and takes them away, until somebody waits for one of them
 *   name       the struct ibv_device of its context is on such a page
 *   qp         the struct ibv_qp of its QP is on such a page
 *   fuse-name, fuse-qp    the same with a page of a file of FUSE, which is never read
 *   fuse-flip  has pages there, and puts one of such a file in the place of one of them, again and again
 *   fuse-code  the functions of its context are in a file of FUSE that answers nothing more, not even stat(2)
 *   fuse-overlay    so are they, and the file is in an overlay over FUSE
 *   fuse-exe   it executes such a file
 *   fuse-fd    it has such a file open, which is called uverbs0
 *   fuse-lock  a thread waits for a page of such a file, and has the lock of the memory's layout.
 *   regular, fifo, char, folder    what it has open as uverbs0 is such a file: FOLDER/uverbs0
 *
 * All but the ones of the last line have a device open. It prints a line when it is so, and another one for each line of input, for which it makes
 * objects of the device.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <infiniband/verbs.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NEED(ok) \
	do { \
		if (!(ok)) { \
			fprintf(stderr, "hostile_memory: %s: %s\n", #ok, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

enum { USER = 1000, PAGE = 4096 };
static const char *how, *folder;
static char *path; /* of the file in the folder */

static int is(const char *what) { return !strcmp(how, what); }

/* For good, and like a process that never was another user's. */
static void drop_rights(void)
{
	NEED(!setgroups(0, NULL) && !setresgid(USER, USER, USER) && !setresuid(USER, USER, USER));
	NEED(!prctl(PR_SET_DUMPABLE, 1));
}

/*
 * The server of a file system with one file, which has any name, and the content of this program or of zeros.
 */

static struct {
	int device, orders, content;
	struct stat stat;
	int silent;  /* answers nothing more */
	int reading; /* answers reads */
	int wrong;   /* so many reads get an error first */
} fuse = { .reading = 1 };

static void answer(uint64_t unique, int error, const void *data, size_t size)
{
	struct fuse_out_header head = { sizeof(head) + size, -error, unique };
	char message[sizeof(head) + (1 << 17)];

	memcpy(message, &head, sizeof(head));
	memcpy(message + sizeof(head), data, size);
	if (write(fuse.device, message, sizeof(head) + size) < 0 && errno != ENOENT && errno != ENODEV)
		perror("hostile_memory: fuse");
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr attr = { .ino = node, .mode = S_IFDIR | 0755, .nlink = 1, .uid = USER, .gid = USER, .blksize = PAGE };

	if (node == FUSE_ROOT_ID)
		return attr;
	attr.mode = S_IFREG | 0755;
	attr.size = fuse.stat.st_size;
	return attr;
}

static void serve(struct fuse_in_header *head, void *request)
{
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = PAGE, .max_write = PAGE, .max_background = 16 };
	struct fuse_entry_out entry = { .nodeid = 2, .attr = attributes(2) };
	struct fuse_attr_out attr = { .attr = attributes(head->nodeid) };
	struct fuse_open_out open = { .open_flags = FOPEN_KEEP_CACHE };
	struct fuse_statfs_out statfs = { .st = { .bsize = PAGE, .namelen = 255 } };
	static char content[1 << 17];
	struct fuse_read_in *read = request;

	switch (head->opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	case FUSE_INIT:
		answer(head->unique, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		answer(head->unique, 0, &entry, sizeof(entry));
		break;
	case FUSE_GETATTR:
		answer(head->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		answer(head->unique, 0, &open, sizeof(open));
		break;
	case FUSE_READ:
		if (fuse.wrong-- > 0)
			answer(head->unique, EIO, NULL, 0);
		else if (fuse.reading)
			answer(head->unique, 0, content, pread(fuse.content, content, read->size, read->offset));
		break;
	case FUSE_STATFS:
		answer(head->unique, 0, &statfs, sizeof(statfs));
		break;
	case FUSE_RELEASE:
		answer(head->unique, 0, NULL, 0);
		break;
	default:
		answer(head->unique, ENOSYS, NULL, 0);
	}
}

/* It ends with the input of the program, and with the program. */
static void serve_all(void)
{
	static struct {
		struct fuse_in_header head;
		char request[1 << 18];
	} in;
	struct pollfd of[] = { { fuse.device, POLLIN }, { fuse.orders, POLLIN }, { 0, 0 } };
	char order;

	NEED(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	while (poll(of, 3, -1) > 0 && !of[2].revents) {
		if (of[1].revents && read(fuse.orders, &order, 1) == 1)
			fuse.silent = 1;
		if (of[0].revents && read(fuse.device, &in, sizeof(in)) < 0 && errno == ENODEV)
			break;
		else if (of[0].revents && (!fuse.silent || in.head.opcode == FUSE_FLUSH || in.head.opcode == FUSE_RELEASE))
			serve(&in.head, in.request);
	}
	_exit(0);
}

/* Goes on with the file in an overlay. */
static void mount_overlay(void)
{
	char *options;

	NEED(asprintf(&options, "lowerdir=%s:%s.empty", folder, folder) > 0 && asprintf(&path, "%s.all/uverbs0", folder) > 0);
	*strrchr(path, '/') = 0;
	NEED(!mkdir(options + strlen("lowerdir=") + strlen(folder) + 1, 0755) && !mkdir(path, 0755));
	NEED(!mount("overlay", path, "overlay", 0, options));
	strcat(path, "/uverbs0");
}

/* Mounts it, and returns where to order silence. */
static int mount_fuse(void)
{
	char options[128];
	int orders[2];

	fuse.device = open("/dev/fuse", O_RDWR);
	fuse.content = open("/proc/self/exe", O_RDONLY);
	NEED(fuse.device >= 0 && fuse.content >= 0 && !fstat(fuse.content, &fuse.stat) && !pipe(orders));
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", fuse.device, USER, USER);
	NEED(!mount("hostile", folder, "fuse", MS_NOSUID | MS_NODEV, options));
	fuse.reading = is("fuse-exe");
	fuse.wrong = is("fuse-lock") ? 2 : 0; /* the third read is of a fault that keeps the lock */
	fuse.orders = orders[0];
	switch (fork()) {
	case -1:
		NEED(0);
	case 0:
		drop_rights();
		close(orders[1]);
		serve_all();
	}
	close(orders[0]);
	close(fuse.content);
	close(fuse.device);
	return orders[1];
}

/*
 * userfaultfd
 */

static int faults; /* the descriptor */

/* Replaces some pages by others for which nobody answers. */
static void *missing_at(void *at, size_t size)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	void *pages = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	NEED(pages != MAP_FAILED);
	faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	range.range.start = (uint64_t)pages;
	range.range.len = size;
	NEED(faults >= 0 && !ioctl(faults, UFFDIO_API, &api) && !ioctl(faults, UFFDIO_REGISTER, &range));
	return pages;
}

static char *flipped;
enum { FLIPPED = 4 << 20 };

static void *flip(void *unused)
{
	struct pollfd of = { faults, POLLIN };
	struct uffdio_zeropage fill = { .range = { (uint64_t)flipped, FLIPPED } };

	while (poll(&of, 1, 0) == 0) {
		if (ioctl(faults, UFFDIO_ZEROPAGE, &fill) && errno == EAGAIN)
			continue;
		poll(&of, 1, 2);
		NEED(!madvise(flipped, FLIPPED, MADV_DONTNEED));
	}
	return NULL; /* somebody waits, for ever */
}

static char *waited;

/* Whoever reads the page at the wrong moment waits for the server. */
static void *flip_file(void *unused)
{
	char *page = waited + FLIPPED / 2;
	int fd = open(path, O_RDONLY);

	NEED(fd >= 0);
	for (;;) {
		NEED(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == page);
		usleep(300);
		NEED(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0) == page);
		usleep(300);
	}
	return unused;
}

static void start_thread(void *(*run)(void *))
{
	pthread_t thread;

	NEED(!pthread_create(&thread, NULL, run, NULL));
}

/*
 * The device.
 */

static struct ibv_context *ctx;
static struct ibv_qp *qp;

static void open_device(void)
{
	struct ibv_device **list;

	mallopt(M_MMAP_THRESHOLD, 256); /* a QP has pages of its own */
	list = ibv_get_device_list(NULL);
	NEED(list && list[0] && (ctx = ibv_open_device(list[0])));
}

static void make_qp(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1 } };

	NEED(cq && pd && (qp = ibv_create_qp(pd, &attr)));
}

static void change_qp(void)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET }, init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	NEED(!ibv_modify_qp(qp, &reset, IBV_QP_STATE));
	NEED(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

/* The kernel has the address of the struct, and this process a copy of it. */
static void *copy_qp(void)
{
	uint64_t page = (uint64_t)qp & ~(PAGE - 1UL);
	char *copy = malloc(PAGE);

	memcpy(copy, (void *)page, PAGE);
	qp = (struct ibv_qp *)(copy + ((uint64_t)qp - page));
	return (void *)page;
}

static int open_file(int flags)
{
	int fd = open(path, flags);

	NEED(fd >= 0);
	return fd;
}

static char *map_file(void *at, int prot)
{
	int fd = open_file(O_RDONLY);
	char *pages = mmap(at, PAGE, prot, MAP_PRIVATE | (at ? MAP_FIXED : 0), fd, 0);

	NEED(pages != MAP_FAILED);
	close(fd);
	return pages;
}

/* Looks like a context of a descriptor. */
static void forge_context(int fd)
{
	static struct ibv_context *forged;

	forged = calloc(1, PAGE);
	forged->cmd_fd = fd;
	forged->abi_compat = (void *)~0UL;
	forged->device = (struct ibv_device *)forged;
}

static void *touch(void *unused)
{
	return (void *)(uintptr_t)*(volatile char *)waited;
}

static void *map_forever(void *unused)
{
	for (;;)
		munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGE);
	return NULL;
}

static void lock_forever(void)
{
	NEED(open("/dev/infiniband/uverbs0", O_RDWR) >= 0);
	waited = map_file(NULL, PROT_READ);
	start_thread(touch);
	usleep(500000);
	printf("ready %d\n", getpid()); /* before the C library wants memory */
	fflush(stdout);
	start_thread(map_forever);
	for (;;)
		pause();
}

/* Continues in the file of FUSE, as root did not. */
static void execute(int orders)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", orders);
	execl(path, "hostile_memory", "fuse-exe-now", number, NULL);
	NEED(0);
}

/* This program is read as a whole, as nobody can read it afterwards. */
static void be_silent(int orders)
{
	char buf[PAGE];
	int self = open("/proc/self/exe", O_RDONLY);

	while (read(self, buf, sizeof(buf)) > 0)
		;
	close(self);
	NEED(write(orders, "", 1) == 1);
	usleep(100000);
}

static void begin_fuse(void)
{
	int orders = mount_fuse();
	char *code = NULL;

	if (is("fuse-overlay")) {
		mount_overlay();
		code = map_file(NULL, PROT_READ | PROT_EXEC);
	}
	drop_rights();
	if (is("fuse-code"))
		code = map_file(NULL, PROT_READ | PROT_EXEC);
	if (is("fuse-exe"))
		execute(orders);
	if (is("fuse-lock"))
		lock_forever();
	open_device();
	make_qp();
	if (is("fuse-name"))
		ctx->device = (struct ibv_device *)map_file(NULL, PROT_READ);
	if (is("fuse-qp"))
		map_file(copy_qp(), PROT_READ | PROT_WRITE);
	if (is("fuse-flip")) {
		waited = mmap(NULL, FLIPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		NEED(waited != MAP_FAILED);
		start_thread(flip_file);
	}
	if (is("fuse-fd"))
		forge_context(open_file(O_RDONLY));
	if (code) {
		ctx->ops.post_send = (void *)code;
		ctx->ops.post_recv = (void *)(code + 64);
		ctx->ops.poll_cq = (void *)(code + 128);
		ctx->ops.post_srq_recv = (void *)(code + 192);
	}
	if (is("fuse-fd") || is("fuse-code") || is("fuse-overlay"))
		be_silent(orders);
}

static void begin_forged(void)
{
	mode_t type = is("fifo") ? S_IFIFO : is("char") ? S_IFCHR : S_IFREG;

	if (is("folder"))
		NEED(!mkdir(path, 0777));
	else
		NEED(!mknod(path, type | 0666, is("char") ? makedev(1, 3) : 0));
	NEED(!chmod(path, 0777));
	drop_rights();
	forge_context(open_file(is("folder") ? O_RDONLY : O_RDWR | O_NONBLOCK));
}

static void begin_memory(void)
{
	const size_t huge = 4UL << 30;
	char *memory;

	drop_rights();
	if (is("name") || is("qp")) {
		open_device();
		make_qp();
	} else {
		NEED(open("/dev/infiniband/uverbs0", O_RDWR) >= 0);
	}
	if (is("name"))
		ctx->device = missing_at(NULL, PAGE);
	if (is("qp"))
		missing_at(copy_qp(), PAGE);
	if (is("missing"))
		missing_at(NULL, 64 << 20);
	if (is("flip")) {
		flipped = missing_at(NULL, FLIPPED);
		start_thread(flip);
	}
	if (is("huge") || is("zero"))
		NEED((memory = mmap(NULL, huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) != MAP_FAILED);
	if (is("zero")) {
		NEED(!madvise(memory, huge, MADV_HUGEPAGE));
		for (size_t i = 0; i < huge; i += 2 << 20) /* each is a page of 2 MiB of zeros */
			(void)*(volatile char *)(memory + i);
	}
}

int main(int argc, char **argv)
{
	char line[64];

	NEED(argc > 1);
	how = argv[1];
	if (argc > 2) {
		folder = argv[2];
		NEED(asprintf(&path, "%s/uverbs0", folder) > 0);
	}
	if (is("fuse-exe-now")) {
		open_device();
		be_silent(atoi(argv[2]));
	} else if (!strncmp(how, "fuse-", 5)) {
		begin_fuse();
	} else if (folder) {
		begin_forged();
	} else {
		begin_memory();
	}
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!ctx)
			open_device();
		if (!is("fuse-exe-now"))
			NEED(ibv_alloc_pd(ctx));
		if (qp)
			change_qp();
		printf("again\n");
		fflush(stdout);
	}
	return 0;
}
