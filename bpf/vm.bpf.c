//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The memory of processes: page faults (mm/memory.c), and what is mapped (mm/mmap.c, mm/util.c). */
#include "file.h"
#include "registers.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct mm_struct {
	unsigned long total_vm;
	unsigned long hiwater_vm;
	unsigned long start_brk, brk, start_stack;
};
struct task_struct {
	struct mm_struct *mm;
};
struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	struct mm_struct *vm_mm;
	struct file *vm_file;
};
#pragma clang attribute pop

/* enum vm_fault_reason, include/linux/mm_types.h */
enum vm_fault_result {
	vm_fault_result__OOM = 0x1,
	vm_fault_result__SIGBUS = 0x2,
	vm_fault_result__MAJOR = 0x4,
	vm_fault_result__HWPOISON = 0x10,
	vm_fault_result__HWPOISON_LARGE = 0x20,
	vm_fault_result__SIGSEGV = 0x40,
	vm_fault_result__NOPAGE = 0x100,
	vm_fault_result__LOCKED = 0x200,
	vm_fault_result__FALLBACK = 0x800,
	vm_fault_result__DONE_COW = 0x1000,
	vm_fault_result__NEEDDSYNC = 0x2000,
	vm_fault_result__COMPLETED = 0x4000,
};
enum {
	FAULT_RETRY = 0x400,
	FAULT_CODES = 0xffff, /* above is the size of a huge page with broken memory */
	/* VM_FAULT_ERROR */
	FAULT_FAILED = vm_fault_result__OOM | vm_fault_result__SIGBUS | vm_fault_result__HWPOISON | vm_fault_result__HWPOISON_LARGE |
		       vm_fault_result__SIGSEGV | vm_fault_result__FALLBACK,
};

/* enum fault_flag, include/linux/mm_types.h; before 5.16 in include/linux/mm.h */
enum {
	FAULT_WRITE = 0x1,
	FAULT_TRIED = 0x20,
	FAULT_USER = 0x40,
	FAULT_REMOTE = 0x80,
	FAULT_INSTRUCTION = 0x100,
};

struct vm_fault {
	COMMON();
	hex64_t address DOC("address that has no page yet, or no page that may be written");
	bool major DOC("it had to wait, like for a disk: counted as ru_majflt of getrusage, otherwise as ru_minflt");
	bool failed AT_RETURN DOC("there is no page to be had: getrusage does not count it");
	bool write DOC("by a write");
	bool exec DOC("by the execution of an instruction");
	bool user VERBOSE DOC("by the program itself, and not by the kernel, like for the buffer of a read");
	bool pin DOC("by no access: the kernel looks up the page, like to register memory with a device");
	bool remote DOC("the address belongs to another process, like one that is debugged");
	enum vm_fault_result result FLAGS AT_RETURN VERBOSE DOC("what the kernel reports of the fault");
	__u32 tries USUAL(1) DOC("how often the kernel tried: while it waits, it lets go of the lock of the process's memory");
	char file[32] DETAIL DOC(FILE_NAME "; empty if there is none");
	hex32_t dev VERBOSE DOC("device number of the file's system, major << 20 | minor; absent if there is no file");
	__u64 inode VERBOSE DOC("inode number of the file; absent if there is none");
	ns_t latency DOC("time in the fault, in all tries");
	struct {
		HAS_PAD;
		__u32 dev : 1;
		__u32 inode : 1;
	} has HAS_ALIGN;
} DOC("a page fault ends (handle_mm_fault); faults outside of all mappings are not seen");
EVENT(vm_fault)
OF_CALL(vm_fault)

/* Stays until the next fault of the thread if the kernel tries again, as it need not do so in a thread that is killed. */
struct faulting {
	__u64 at; /* ns */
	__u64 address;
	__u64 inode;
	__u32 dev;
	__u32 flags;
	__u32 tries;
	bool pin;
	bool again;
	bool of_file;
	char file[32];
};
SLOTTED(vm_fault_calls, thread, struct faulting, 16384)

static __always_inline void keep_file(struct faulting *fault, struct file *file)
{
	fault->of_file = file != 0;
	if (WANTED(vm_fault, file))
		READ_STRING(fault->file, name_of(file));
	if (WANTED(vm_fault, inode))
		fault->inode = number_of(inode_of(file));
	if (WANTED(vm_fault, dev))
		fault->dev = dev_of(inode_of(file));
}

static __always_inline int fault_enter(void *ctx, __u64 vma, __u64 address, __u64 flags, __u64 regs, __u64 unused)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct faulting *fault;

	if (!vm_fault_entry)
		return 0;
	fault = vm_fault_calls_of(thread);
	if (fault && !fault->again)
		vm_fault_count(UNENDED);
	if (!fault || !fault->again || fault->address != address) {
		if (!fault)
			fault = vm_fault_calls_begin(thread);
		if (!fault) {
			vm_fault_count(INFLIGHT_FULL);
			return 0;
		}
		fault->tries = 0;
		fault->at = bpf_ktime_get_ns();
	}
	fault->address = address;
	fault->flags = flags;
	fault->pin = !regs;
	fault->again = false;
	fault->tries++;
	if (WANTED(vm_fault, file) || WANTED(vm_fault, inode) || WANTED(vm_fault, dev))
		keep_file(fault, BPF_CORE_READ((struct vm_area_struct *)vma, vm_file));
	return 0;
}

static __always_inline void vm_fault_capture(struct vm_fault *e, struct faulting *fault, __u32 result, enum stage stage)
{
	CAPTURE_COMMON(vm_fault, e, stage);
	if (WANT(vm_fault, failed, stage))
		e->failed = (result & FAULT_FAILED) != 0;
	if (WANT(vm_fault, result, stage))
		e->result = result & FAULT_CODES;
	if (!vm_fault_entry)
		return;
	if (WANT(vm_fault, address, stage))
		e->address = fault->address;
	/* mm_account_fault, mm/memory.c */
	if (WANT(vm_fault, major, stage))
		e->major = (result & vm_fault_result__MAJOR) || (fault->flags & FAULT_TRIED);
	if (WANT(vm_fault, write, stage))
		e->write = (fault->flags & FAULT_WRITE) != 0;
	if (WANT(vm_fault, exec, stage))
		e->exec = (fault->flags & FAULT_INSTRUCTION) != 0;
	if (WANT(vm_fault, user, stage))
		e->user = (fault->flags & FAULT_USER) != 0;
	if (WANT(vm_fault, pin, stage))
		e->pin = fault->pin;
	if (WANT(vm_fault, remote, stage))
		e->remote = (fault->flags & FAULT_REMOTE) != 0;
	if (WANT(vm_fault, tries, stage))
		e->tries = fault->tries;
	if (WANT(vm_fault, file, stage))
		__builtin_memcpy(e->file, fault->file, sizeof(e->file));
	if (WANT(vm_fault, dev, stage) && fault->of_file)
		SET(e, dev, fault->dev);
	if (WANT(vm_fault, inode, stage) && fault->of_file)
		SET(e, inode, fault->inode);
	if (WANT(vm_fault, latency, stage))
		e->latency = bpf_ktime_get_ns() - fault->at;
}

static __always_inline int fault_leave(void *ctx, __s64 ret)
{
	struct faulting *fault = vm_fault_entry ? vm_fault_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct vm_fault e;

	if (ret & FAULT_RETRY) {
		if (vm_fault_entry && fault)
			fault->again = true;
		return 0;
	}
	if (vm_fault_unseen(fault))
		return 0;
	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(vm_fault, ctx, &e, fault, (__u32)ret);
	if (vm_fault_entry)
		vm_fault_calls_end(fault);
	return 0;
}

ON_CALL5(vm_fault, handle_mm_fault, 4, fault_enter, fault_leave)

enum vm_map_op {
	vm_map_op__mmap,
	vm_map_op__munmap,
	vm_map_op__brk,
	vm_map_op__mremap,
};

enum vm_kind {
	vm_kind__private_anon,
	vm_kind__shared_anon,
	vm_kind__private_file,
	vm_kind__shared_file,
	vm_kind__heap,
	vm_kind__stack,
};
enum {
	KINDS = vm_kind__stack + 1,
	VM_MAYSHARE = 0x80, /* include/linux/mm.h */
};

/* PROT_*, include/uapi/asm-generic/mman-common.h */
enum vm_prot {
	vm_prot__READ = 0x1,
	vm_prot__WRITE = 0x2,
	vm_prot__EXEC = 0x4,
	vm_prot__SEM = 0x8,
	vm_prot__GROWSDOWN = 0x1000000,
	vm_prot__GROWSUP = 0x2000000,
};

/* MAP_* of the same file and of mman.h; and MREMAP_*, include/uapi/linux/mman.h, 28 bits higher, where no MAP_* is. */
enum vm_map_flags {
	vm_map_flags__SHARED = 0x1,
	vm_map_flags__PRIVATE = 0x2,
	vm_map_flags__DROPPABLE = 0x8,
	vm_map_flags__FIXED = 0x10,
	vm_map_flags__ANONYMOUS = 0x20,
	vm_map_flags__32BIT = 0x40,
	vm_map_flags__GROWSDOWN = 0x100,
	vm_map_flags__DENYWRITE = 0x800,
	vm_map_flags__EXECUTABLE = 0x1000,
	vm_map_flags__LOCKED = 0x2000,
	vm_map_flags__NORESERVE = 0x4000,
	vm_map_flags__POPULATE = 0x8000,
	vm_map_flags__NONBLOCK = 0x10000,
	vm_map_flags__STACK = 0x20000,
	vm_map_flags__HUGETLB = 0x40000,
	vm_map_flags__SYNC = 0x80000,
	vm_map_flags__FIXED_NOREPLACE = 0x100000,
	vm_map_flags__REMAP_MAYMOVE = 0x10000000,
	vm_map_flags__REMAP_FIXED = 0x20000000,
	vm_map_flags__REMAP_DONTUNMAP = 0x40000000,
};
enum {
	MAP_TYPE = 0xf,
	MAP_SHARED_VALIDATE = 0x3,
	MREMAP_SHIFT = 28,
	ENOMEM = 12,
};

/* What a call changes of one kind. Another mapping may be there before, so that there may be several of them. */
#define CHANGED NEEDS(vm_unmapped) NEEDS(vm_resized) VERBOSE

struct vm_map {
	COMMON();
	enum vm_map_op op DOC("what the process asks for; mmap is also what the kernel maps for it, like a program and its libraries");
	hex64_t address VERBOSE DOC("where the mapping is then; what was asked for if that failed");
	bytes_t length DOC("length that was asked for; absent for brk");
	change_t delta NEEDS(vm_unmapped) DOC("by how much the thread made the process's mappings grow: length, less what was mapped there before");
	enum vm_kind kind NEEDS(vm_unmapped) NEEDS(vm_resized) DOC("what is mapped or unmapped; absent for munmap of several kinds or of nothing");
	enum vm_prot prot FLAGS DOC("what it may be used for; only of mmap");
	enum vm_map_flags flags FLAGS VERBOSE DOC("MAP_* of mmap, and MREMAP_* of mremap");
	char file[32] DETAIL DOC(FILE_NAME "; empty if there is none");
	hex32_t dev VERBOSE DOC("device number of the file's system, major << 20 | minor; absent if there is no file");
	__u64 inode VERBOSE DOC("inode number of the file; absent if there is none");
	errno_t ret DOC("0, or -errno on failure; for brk -ENOMEM if the heap does not end where the process asks for");
	ns_t latency DOC("time in the call, also for the lock of the process's memory");
	bytes_t total DOC("all that the process has mapped then: VmSize of /proc/PID/status");
	struct {
		change_t private_anon CHANGED DOC("of it: of memory of its own, without a file; also [vdso] and the like");
		change_t shared_anon CHANGED DOC("of it: of shared memory without a file, also of shmget");
		change_t private_file CHANGED DOC("of it: of files, whose changes are not written to them");
		change_t shared_file CHANGED DOC("of it: of files, whose changes are written to them");
		change_t heap CHANGED DOC("of it: of what brk sizes: [heap] of /proc/PID/maps");
		change_t stack CHANGED DOC("of it: of the stack of the first thread: [stack] of /proc/PID/maps");
	} grown;
	struct {
		HAS_PAD;
		__u32 length : 1;
		__u32 kind : 1;
		__u32 prot : 1;
		__u32 flags : 1;
		__u32 dev : 1;
		__u32 inode : 1;
	} has HAS_ALIGN;
} DOC("a process maps or unmaps memory (vm_mmap_pgoff, __vm_munmap, and the system calls brk and mremap)");
EVENT(vm_map)
OF_CALL(vm_map)

struct mapping {
	__u64 at; /* ns */
	struct file *file;
	__u64 address;
	__u64 length;
	__u64 before; /* where the heap ended; length that mremap changes */
	__u64 target; /* of mremap to a fixed address */
	__s64 delta;
	__s64 grown[KINDS];
	__u32 op, prot, flags;
	__u32 of; /* kind of what mremap changes */
	__u32 kind; /* of what was mapped or unmapped last */
	__u32 kinds; /* a bit for each kind of it */
};
SLOTTED(vm_map_calls, thread, struct mapping, 16384)

static __always_inline struct mm_struct *current_mm(void)
{
	return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), mm);
}

static __always_inline struct mapping *map_begin(enum vm_map_op op, __u64 address, __u64 length)
{
	struct mapping *call;

	BEGIN_BY_THREAD(vm_map, vm_map_calls, call);
	if (!call)
		return 0;
	call->op = op;
	call->address = address;
	call->length = length;
	call->delta = 0;
	call->of = KINDS;
	call->kinds = 0;
	__builtin_memset(call->grown, 0, sizeof(call->grown));
	call->at = bpf_ktime_get_ns();
	return call;
}

/* The smallest multiple of the size of a page from n on. */
static __always_inline __u64 page_aligned(__u64 n)
{
	return (n + page_size - 1) & -page_size;
}

static __always_inline enum vm_kind kind_asked_for(struct mapping *call)
{
	bool shared = call->flags & vm_map_flags__SHARED; /* and MAP_SHARED_VALIDATE */

	if (!call->file || (call->flags & vm_map_flags__ANONYMOUS)) /* large pages without a file have one in the kernel */
		return shared ? vm_kind__shared_anon : vm_kind__private_anon;
	return shared ? vm_kind__shared_file : vm_kind__private_file;
}

/* The first eight bytes of a name, as a number of a little-endian machine. */
#define BEGINNING(s) \
	((__u64)(s)[0] | (__u64)(s)[1] << 8 | (__u64)(s)[2] << 16 | (__u64)(s)[3] << 24 | (__u64)(s)[4] << 32 | (__u64)(s)[5] << 40 | \
	 (__u64)(s)[6] << 48 | (__u64)(s)[7] << 56)

/* The kernel's own file of a mapping that has none for the process. */
static __always_inline bool is_nameless(struct file *file)
{
	__u64 name = 0;

	if (BPF_CORE_READ(file, f_path.dentry, d_hash.pprev))
		return false;
	bpf_probe_read_kernel(&name, sizeof(name), name_of(file));
	return name == BEGINNING("dev/zero") || name == BEGINNING("anon_hugepage") || (__u32)name == (__u32)BEGINNING("SYSV0000");
}

/* As /proc/PID/maps shows it: show_map_vma, fs/proc/task_mmu.c. */
static __always_inline enum vm_kind kind_of(struct vm_area_struct *area)
{
	struct mm_struct *mm = BPF_CORE_READ(area, vm_mm);
	struct file *file = BPF_CORE_READ(area, vm_file);
	bool shared = BPF_CORE_READ(area, vm_flags) & VM_MAYSHARE;
	__u64 start = BPF_CORE_READ(area, vm_start), end = BPF_CORE_READ(area, vm_end);

	if (file && !is_nameless(file))
		return shared ? vm_kind__shared_file : vm_kind__private_file;
	if (file || shared)
		return shared ? vm_kind__shared_anon : vm_kind__private_anon;
	if (start < BPF_CORE_READ(mm, brk) && end > BPF_CORE_READ(mm, start_brk))
		return vm_kind__heap;
	if (start <= BPF_CORE_READ(mm, start_stack) && end >= BPF_CORE_READ(mm, start_stack))
		return vm_kind__stack;
	return vm_kind__private_anon;
}

/* A call has mapped or unmapped something. Its kind is unknown where the kernel lacks a function of vm_resized. */
static __always_inline void changed(struct mapping *call, __u32 kind, __s64 by)
{
	call->delta += by;
	if (kind >= KINDS)
		return;
	call->grown[kind] += by;
	call->kind = kind;
	call->kinds |= 1 << kind;
}

static __always_inline void capture_mmap(struct vm_map *e, struct mapping *call, enum stage stage)
{
	bool of_file = call->file && !(call->flags & vm_map_flags__ANONYMOUS);

	if (WANT(vm_map, prot, stage))
		SET(e, prot, call->prot);
	if (WANT(vm_map, file, stage) && of_file)
		READ_STRING(e->file, name_of(call->file));
	if (WANT(vm_map, dev, stage) && of_file)
		SET(e, dev, dev_of(inode_of(call->file)));
	if (WANT(vm_map, inode, stage) && of_file)
		SET(e, inode, number_of(inode_of(call->file)));
}

#define CAPTURE_GROWN(of_kind) \
	if (WANT(vm_map, grown.of_kind, stage)) \
		e->grown.of_kind = call->grown[vm_kind__##of_kind]

static __always_inline void vm_map_capture(struct vm_map *e, struct mapping *call, __s64 error, enum stage stage)
{
	CAPTURE_COMMON(vm_map, e, stage);
	if (!vm_map_entry)
		return;
	if (WANT(vm_map, op, stage))
		e->op = call->op;
	if (WANT(vm_map, address, stage))
		e->address = call->address;
	if (WANT(vm_map, length, stage) && call->op != vm_map_op__brk)
		SET(e, length, call->length);
	if (WANT(vm_map, delta, stage))
		e->delta = call->delta;
	if (WANT(vm_map, kind, stage) && call->op == vm_map_op__mmap)
		SET(e, kind, kind_asked_for(call));
	else if (WANT(vm_map, kind, stage) && call->kinds && !(call->kinds & (call->kinds - 1)))
		SET(e, kind, call->kind);
	if (WANT(vm_map, flags, stage) && (call->op == vm_map_op__mmap || call->op == vm_map_op__mremap))
		SET(e, flags, (call->flags & MAP_TYPE) == MAP_SHARED_VALIDATE ? call->flags & ~vm_map_flags__PRIVATE : call->flags);
	if (WANT(vm_map, file, stage))
		__builtin_memset(e->file, 0, sizeof(e->file));
	if (call->op == vm_map_op__mmap)
		capture_mmap(e, call, stage);
	if (WANT(vm_map, ret, stage))
		e->ret = error;
	if (WANT(vm_map, latency, stage))
		e->latency = bpf_ktime_get_ns() - call->at;
	if (WANT(vm_map, total, stage))
		e->total = BPF_CORE_READ(current_mm(), total_vm) * page_size;
	CAPTURE_GROWN(private_anon);
	CAPTURE_GROWN(shared_anon);
	CAPTURE_GROWN(private_file);
	CAPTURE_GROWN(shared_file);
	CAPTURE_GROWN(heap);
	CAPTURE_GROWN(stack);
}

static __always_inline int map_end(void *ctx, struct mapping *call, __s64 error)
{
	struct vm_map e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(vm_map, ctx, &e, call, error);
	if (vm_map_entry)
		vm_map_calls_end(call);
	return 0;
}

static __always_inline struct mapping *map_call(void)
{
	return vm_map_entry ? vm_map_calls_of(bpf_get_current_pid_tgid()) : 0;
}

static __always_inline bool is_error(__s64 ret)
{
	return (__u64)ret >= (__u64)-4095;
}

static __always_inline int mmap_enter(void *ctx, __u64 file, __u64 address, __u64 length, __u64 prot, __u64 flags)
{
	struct mapping *call;

	if (!vm_map_entry)
		return 0;
	call = map_begin(vm_map_op__mmap, address, length);
	if (!call)
		return 0;
	call->file = (void *)file;
	call->prot = prot;
	call->flags = flags;
	return 0;
}

static __always_inline int mmap_leave(void *ctx, __s64 ret)
{
	struct mapping *call = map_call();

	if (vm_map_unseen(call))
		return 0;
	if (vm_map_entry && !is_error(ret)) {
		call->address = ret;
		changed(call, kind_asked_for(call), page_aligned(call->length));
	}
	return map_end(ctx, call, is_error(ret) ? ret : 0);
}

ON_CALL5(vm_map, vm_mmap_pgoff, 6, mmap_enter, mmap_leave)

static __always_inline int munmap_enter(void *ctx, __u64 address, __u64 length, __u64 unused)
{
	if (vm_map_entry)
		map_begin(vm_map_op__munmap, address, length);
	return 0;
}

static __always_inline int munmap_leave(void *ctx, __s64 ret)
{
	struct mapping *call = map_call();

	return vm_map_unseen(call) ? 0 : map_end(ctx, call, (__s32)ret);
}

ON_CALL(vm_map, __vm_munmap, 3, munmap_enter, munmap_leave)

/* System calls that no other function stands for. */
static __always_inline int brk_enter(void *ctx, struct kprobe_regs *regs)
{
	struct mapping *call = map_begin(vm_map_op__brk, ARG(false, COMPAT(false, regs), regs, 0), 0);

	if (call)
		call->before = BPF_CORE_READ(current_mm(), brk);
	return 0;
}

/* A process that asks for less than the heap has, like 0, wants to know where it ends. */
static __always_inline int brk_leave(void *ctx, __s64 ret)
{
	struct mapping *call = map_call();
	bool failed = false;

	if (vm_map_unseen(call))
		return 0;
	if (vm_map_entry) {
		failed = call->address > (__u64)ret;
		if ((__u64)ret >= call->before)
			changed(call, vm_kind__heap, page_aligned(ret) - page_aligned(call->before));
		call->address = ret;
	}
	return map_end(ctx, call, failed ? -ENOMEM : 0);
}

ON_SYSCALL(vm_map, brk, brk_enter, brk_leave)

static __always_inline int mremap_enter(void *ctx, struct kprobe_regs *regs)
{
	bool compat = COMPAT(false, regs);
	struct mapping *call = map_begin(vm_map_op__mremap, ARG(false, compat, regs, 0), ARG(false, compat, regs, 2));

	if (!call)
		return 0;
	call->before = ARG(false, compat, regs, 1);
	call->flags = ARG(false, compat, regs, 3) << MREMAP_SHIFT;
	call->target = ARG(false, compat, regs, 4);
	return 0;
}

/* What moves is no longer where the heap or the stack is. */
static __always_inline __u32 kind_moved(struct mapping *call)
{
	return call->of == vm_kind__heap || call->of == vm_kind__stack ? vm_kind__private_anon : call->of;
}

/* What moves is mapped anew, before the old mapping goes; so is a second mapping of the same memory, where the old length is 0. */
static __always_inline int mremap_leave(void *ctx, __s64 ret)
{
	struct mapping *call = map_call();

	if (vm_map_unseen(call))
		return 0;
	if (vm_map_entry && !is_error(ret)) {
		__u64 before = page_aligned(call->before), now = page_aligned(call->length);

		if ((__u64)ret != call->address)
			changed(call, kind_moved(call), now);
		else if (now > before)
			changed(call, call->of, now - before);
		call->address = ret;
	}
	return map_end(ctx, call, is_error(ret) ? ret : 0);
}

ON_SYSCALL(vm_map, mremap, mremap_enter, mremap_leave)

/*
 * What a call unmaps: the kernel frees each mapping, or part of one, that lies in the range to unmap. Mappings outside of it are freed as they
 * become part of a neighbour. The difference of the process's total before and after would include what its other threads do meanwhile.
 */
static __always_inline bool lies_in(__u64 start, __u64 end, __u64 address, __u64 length)
{
	return start >= address && end <= address + page_aligned(length);
}

static __always_inline bool unmaps(struct mapping *call, __u64 start, __u64 end)
{
	switch (call->op) {
	case vm_map_op__brk:
		return start >= page_aligned(call->address) && end <= page_aligned(call->before);
	case vm_map_op__mmap:
		return call->flags & vm_map_flags__FIXED && lies_in(start, end, call->address, call->length);
	case vm_map_op__mremap:
		return lies_in(start, end, call->address, call->before) ||
		       (call->flags & vm_map_flags__REMAP_FIXED && lies_in(start, end, call->target, call->length));
	}
	return lies_in(start, end, call->address, call->length);
}

static __always_inline int freed(void *ctx, __u64 vma, __u64 unused1, __u64 unused2)
{
	struct mapping *call = vm_map_calls_of(bpf_get_current_pid_tgid());
	struct vm_area_struct *area = (void *)vma;
	__u64 start, end;

	if (!call)
		return 0;
	start = BPF_CORE_READ(area, vm_start);
	end = BPF_CORE_READ(area, vm_end);
	if (unmaps(call, start, end))
		changed(call, call->op == vm_map_op__brk ? vm_kind__heap : kind_of(area), start - end);
	return 0;
}

ON_ENTER(vm_unmapped, vm_area_free, 1, freed)

/* The mapping that mremap changes: the kernel copies it to where it moves to, or adjusts it. */
static __always_inline int resized(struct vm_area_struct *area)
{
	struct mapping *call = vm_map_calls_of(bpf_get_current_pid_tgid());

	if (call && call->op == vm_map_op__mremap && BPF_CORE_READ(area, vm_start) <= call->address && call->address < BPF_CORE_READ(area, vm_end))
		call->of = kind_of(area);
	return 0;
}

static __always_inline int copied(void *ctx, __u64 at, __u64 unused1, __u64 unused2)
{
	struct vm_area_struct *area = 0;

	bpf_probe_read_kernel(&area, sizeof(area), (void *)at);
	return resized(area);
}

static __always_inline int adjusted(void *ctx, __u64 vma, __u64 unused1, __u64 unused2)
{
	return resized((void *)vma);
}

/* Some verifiers let nobody load an argument that points to a pointer (seen on 6.12), so it is read from where the trampoline has it. */
SEC("fentry/copy_vma")
int fentry_vm_resized__copy_vma(__u64 *ctx)
{
	__u64 at = 0;

	bpf_probe_read_kernel(&at, sizeof(at), ctx);
	return copied(ctx, at, 0, 0);
}

SEC("kprobe/copy_vma")
int kprobe_vm_resized__copy_vma(struct kprobe_regs *ctx)
{
	return copied(ctx, KPROBE_ARG0(ctx), 0, 0);
}

ON_ENTER_OR_MORE(vm_resized, vma_adjust_trans_huge, 1, adjusted)

struct vm_stack {
	COMMON();
	enum vm_kind kind DOC("stack, or private_anon for what was mapped with MAP_GROWSDOWN");
	change_t delta DOC("by how much it grew; 0 if another thread was faster");
	bytes_t total DOC("all that the process has mapped then: VmSize of /proc/PID/status");
} DOC("a stack grows as it is used, or as a program starts (expand_stack, expand_stack_locked)");
EVENT(vm_stack)
OF_CALL(vm_stack)

struct growing {
	struct vm_area_struct *area;
	__u64 start;
};
SLOTTED(vm_stack_calls, thread, struct growing, 16384)

static __always_inline int stack_enter(void *ctx, __u64 vma, __u64 address, __u64 unused)
{
	struct vm_area_struct *area = (void *)vma;
	struct growing *call;

	if (!vm_stack_entry)
		return 0;
	BEGIN_BY_THREAD(vm_stack, vm_stack_calls, call);
	if (!call)
		return 0;
	call->area = area;
	call->start = BPF_CORE_READ(area, vm_start);
	return 0;
}

static __always_inline void vm_stack_capture(struct vm_stack *e, struct growing *call, enum stage stage)
{
	struct vm_area_struct *area;

	CAPTURE_COMMON(vm_stack, e, stage);
	if (!vm_stack_entry)
		return;
	area = call->area;
	if (WANT(vm_stack, kind, stage))
		// execve sets start_stack after it has made the stack grow.
		e->kind = BPF_CORE_READ(current_mm(), start_stack) ? kind_of(area) : vm_kind__stack;
	if (WANT(vm_stack, delta, stage))
		e->delta = call->start - BPF_CORE_READ(area, vm_start);
	if (WANT(vm_stack, total, stage))
		e->total = BPF_CORE_READ(current_mm(), total_vm) * page_size;
}

static __always_inline int stack_leave(void *ctx, __s64 ret)
{
	struct growing *call = vm_stack_entry ? vm_stack_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct vm_stack e;

	if (vm_stack_unseen(call))
		return 0;
	if (!(__s32)ret)
		EMIT(vm_stack, ctx, &e, call);
	if (vm_stack_entry)
		vm_stack_calls_end(call);
	return 0;
}

/* Before 6.5 expand_stack takes the mapping, and since then expand_stack_locked does. What expand_stack returns since then is no result. */
ON_ENTER(vm_stack, grow, 2, stack_enter)
ON_RETURN(vm_stack, grow, 2, int, stack_leave)

/* MM_*PAGES, MM_SWAPENTS: include/linux/mm_types_task.h */
enum vm_rss_part {
	vm_rss_part__file,
	vm_rss_part__anon,
	vm_rss_part__swap,
	vm_rss_part__shmem,
};

struct tracefs_vm_rss {
	__u32 mm_id;
	__u32 curr;
	__s32 member;
	__s64 size;
} FTRACE_EVENT;

struct vm_rss {
	COMMON();
	enum vm_rss_part part DOC("which part of the memory");
	bytes_t size DOC("how much the process then has of it: RssAnon, RssFile, RssShmem or VmSwap of /proc/PID/status, except for what its threads have not added up");
	hex32_t mm VERBOSE DOC("number of the process's memory, another one in each run of the kernel; threads share it");
	struct {
		HAS_PAD;
		TASK_HAS();
	} has HAS_ALIGN;
} DOC("memory of a process comes or goes (ftrace event rss_stat); pid, comm and so on are absent if another process takes it, like to reclaim it");
EVENT(vm_rss)

static __always_inline void vm_rss_capture(struct vm_rss *e, struct tracefs_vm_rss *raw, enum stage stage)
{
	__u32 own = 0, part = 0;
	__s64 size = 0;

	CAPTURE_TIME(vm_rss, e, stage);
	if (GET(&own, raw, curr) && own)
		CAPTURE_CURRENT(vm_rss, e, stage);
	if (WANT(vm_rss, part, stage) && GET(&part, raw, member))
		e->part = part;
	/* A counter may be below 0 for a moment. */
	if (WANT(vm_rss, size, stage) && GET(&size, raw, size))
		e->size = size > 0 ? size : 0;
	if (WANT(vm_rss, mm, stage))
		GET(&e->mm, raw, mm_id);
}

/*
 * The event that the kernel formats for ftrace has the sum of the counters of all CPUs. An argument has it only before 6.2, and from there
 * on a program cannot add them up.
 */
SEC("tracepoint/kmem/rss_stat")
int tracepoint_vm_rss(struct tracefs_vm_rss *ctx)
{
	struct vm_rss e;

	__builtin_memset(&e.has, 0, sizeof(e.has));
	EMIT(vm_rss, ctx, &e, ctx);
	return 0;
}

/* Made in user space. */
struct vm_size {
	COMMON();
	enum vm_kind kind DOC("what is mapped");
	bytes_t size DOC("how much the process has mapped of it: the sum of the lines of /proc/PID/maps, 0 if the process has ended");
	change_t delta DOC("by how much it has grown since the reading before; absent at the first reading of all");
	ns_t period DOC("time from the reading before to this one; absent at the first reading of the process");
	struct {
		HAS_PAD;
		__u32 tid : 1;
		__u32 uid : 1;
		__u32 cgroup : 1;
		__u32 cpu : 1;
		__u32 delta : 1;
		__u32 period : 1;
	} has HAS_ALIGN;
} DOC("what a process has mapped has changed since the reading before, or is there at the first one (/proc/PID/maps); read every 10 s, or every second as vm:size:1s");
EVENT(vm_size)
static __always_inline void vm_size_capture(struct vm_size *e, enum stage stage) {}
MADE(vm_size)

struct vm_exit {
	COMMON();
	bytes_t total DOC("all that was mapped at last");
	bytes_t peak DOC("the most that was mapped: VmPeak of /proc/PID/status");
	ns_t latency DOC("time to unmap and free all of it");
} DOC("the memory of a process ends, with its last thread or with execve (exit_mmap); the task is that which gives it up last, mostly its own");
EVENT(vm_exit)
OF_CALL(vm_exit)

struct exiting {
	__u64 at; /* ns */
	__u64 total, peak; /* pages */
};
SLOTTED(vm_exit_calls, thread, struct exiting, 16384)

static __always_inline int exit_enter(void *ctx, __u64 memory, __u64 unused1, __u64 unused2)
{
	struct mm_struct *mm = (void *)memory;
	struct exiting *exiting;

	if (!vm_exit_entry)
		return 0;
	BEGIN_BY_THREAD(vm_exit, vm_exit_calls, exiting);
	if (!exiting)
		return 0;
	exiting->total = BPF_CORE_READ(mm, total_vm);
	exiting->peak = BPF_CORE_READ(mm, hiwater_vm);
	exiting->at = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void vm_exit_capture(struct vm_exit *e, struct exiting *exiting, enum stage stage)
{
	CAPTURE_COMMON(vm_exit, e, stage);
	if (!vm_exit_entry)
		return;
	if (WANT(vm_exit, total, stage))
		e->total = exiting->total * page_size;
	/* The kernel notes the most before something is unmapped. */
	if (WANT(vm_exit, peak, stage))
		e->peak = (exiting->peak > exiting->total ? exiting->peak : exiting->total) * page_size;
	if (WANT(vm_exit, latency, stage))
		e->latency = bpf_ktime_get_ns() - exiting->at;
}

static __always_inline int exit_leave(void *ctx, __s64 ret)
{
	struct exiting *exiting = vm_exit_entry ? vm_exit_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct vm_exit e;

	if (vm_exit_unseen(exiting))
		return 0;
	EMIT(vm_exit, ctx, &e, exiting);
	if (vm_exit_entry)
		vm_exit_calls_end(exiting);
	return 0;
}

ON_CALL(vm_exit, exit_mmap, 1, exit_enter, exit_leave)
