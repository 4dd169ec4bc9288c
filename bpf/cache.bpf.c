//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The page cache (mm/filemap.c). What is read past it (O_DIRECT, DAX) is not seen, and files in memory (tmpfs) have functions of their own.
 */
#include "file.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kiocb {
	struct file *ki_filp;
	__s64 ki_pos;
};
struct readahead_control {
	struct file *file;
	struct address_space *mapping;
	unsigned long _index;
	__u32 _nr_pages;
};
struct vm_area_struct {
	struct file *vm_file;
};
struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
};
struct folio {
	struct address_space *mapping;
	unsigned long index;
	__u32 _nr_pages;
};
struct folio___before_6_14 {
	__u32 _folio_nr_pages;
};
struct page { /* before 5.16; a larger unit has its size in its second page */
	struct address_space *mapping;
	unsigned long index;
	__u32 compound_nr;
};
#pragma clang attribute pop

enum pageflags {
	PG_head,
};

static __always_inline struct address_space *mapping_of(void *folio)
{
	struct folio *now = folio;
	struct page *page = folio;

	return bpf_core_type_exists(struct folio) ? BPF_CORE_READ(now, mapping) : BPF_CORE_READ(page, mapping);
}

static __always_inline struct address_space *mapping_of_file(struct file *file)
{
	return BPF_CORE_READ(file, f_mapping);
}

static __always_inline struct inode *host_of(void *folio)
{
	struct address_space *mapping = mapping_of(folio);

	return BPF_CORE_READ(mapping, host);
}

static __always_inline __u64 index_of(void *folio)
{
	struct folio *now = folio;
	struct page *page = folio;

	return bpf_core_type_exists(struct folio) ? BPF_CORE_READ(now, index) : BPF_CORE_READ(page, index);
}

/* The flags are the first word of a folio and of a page. */
static __always_inline bool is_large(void *folio)
{
	__u64 flags = 0;

	bpf_probe_read_kernel(&flags, sizeof(flags), folio);
	return flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1;
}

static __always_inline __u32 pages_of(void *folio)
{
	struct folio *now = folio;
	struct folio___before_6_14 *before = folio;
	struct page *second = folio + bpf_core_type_size(struct page);

	if (!is_large(folio))
		return 1;
	if (bpf_core_field_exists(now->_nr_pages))
		return BPF_CORE_READ(now, _nr_pages);
	if (bpf_core_field_exists(before->_folio_nr_pages))
		return BPF_CORE_READ(before, _folio_nr_pages);
	return BPF_CORE_READ(second, compound_nr);
}

struct cache_read {
	COMMON();
	char file[32] DOC(FILE_NAME);
	INODE_FIELDS;
	__u64 offset DOC("where in the file the read begins");
	bytes_t bytes DOC("data that was read; 0 at the end of the file and on failure");
	__u32 misses NEEDS(cache_missed) DOC("how often the page cache did not have what comes next: 0 is a hit, also of pages that are read ahead and still on their way");
	bytes_t added NEEDS(cache_added) DETAIL DOC("what the thread put into the page cache in the call: what was missing, and what is read ahead");
	errno_t ret AT_RETURN VERBOSE DOC("result: bytes, or -errno on failure; -EAGAIN of a read that must not wait");
	ns_t latency DOC("time in the call");
} DOC("data of a file was read through the page cache (filemap_read, generic_file_buffered_read before 5.12, filemap_splice_read)");
EVENT(cache_read)
OF_CALL(cache_read)

struct reading {
	__u64 at; /* ns */
	struct file *file;
	struct address_space *mapping;
	__u64 offset;
	__u64 before; /* bytes that the same system call has read past the page cache */
	__u64 added; /* pages */
	__u32 misses;
};
SLOTTED(cache_read_calls, thread, struct reading, 16384)

static __always_inline int read_begin(struct file *file, __u64 offset, __u64 before)
{
	struct reading *reading;

	BEGIN_BY_THREAD(cache_read, cache_read_calls, reading);
	if (!reading)
		return 0;
	reading->file = file;
	reading->mapping = mapping_of_file(file);
	reading->offset = offset;
	reading->before = before;
	reading->misses = 0;
	reading->added = 0;
	reading->at = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void cache_read_capture(struct cache_read *e, struct reading *reading, __s64 ret, enum stage stage)
{
	CAPTURE_COMMON(cache_read, e, stage);
	if (WANT(cache_read, ret, stage))
		e->ret = ret;
	if (!cache_read_entry)
		return;
	if (WANT(cache_read, latency, stage))
		e->latency = bpf_ktime_get_ns() - reading->at;
	if (WANT(cache_read, file, stage))
		READ_STRING(e->file, name_of(reading->file));
	CAPTURE_INODE(cache_read, e, inode_of(reading->file), stage);
	if (WANT(cache_read, offset, stage))
		e->offset = reading->offset;
	if (WANT(cache_read, bytes, stage))
		e->bytes = ret > (__s64)reading->before ? ret - reading->before : 0;
	if (WANT(cache_read, misses, stage))
		e->misses = reading->misses;
	if (WANT(cache_read, added, stage))
		e->added = reading->added * page_size;
}

static __always_inline int read_leave(void *ctx, __s64 ret)
{
	struct reading *reading = cache_read_entry ? cache_read_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct cache_read e;

	if (cache_read_unseen(reading))
		return 0;
	EMIT(cache_read, ctx, &e, reading, ret);
	if (cache_read_entry)
		cache_read_calls_end(reading);
	return 0;
}

/* Arguments: struct kiocb *, struct iov_iter *, ssize_t already_read, which is part of the result. */
static __always_inline int read_enter(void *ctx, __u64 iocb, __u64 iter, __u64 before)
{
	struct kiocb *call = (void *)iocb;

	return cache_read_entry ? read_begin(BPF_CORE_READ(call, ki_filp), BPF_CORE_READ(call, ki_pos), before) : 0;
}

ON_CALL(cache_read, filemap_read, 3, read_enter, read_leave)
ON_CALL(cache_read, generic_file_buffered_read, 3, read_enter, read_leave)

/* Arguments: struct file *, loff_t *, struct pipe_inode_info *, size_t, unsigned int. Since 6.5; before, splice was a read. */
static __always_inline int splice_enter(void *ctx, __u64 file, __u64 position, __u64 pipe)
{
	__u64 offset = 0;

	if (!cache_read_entry)
		return 0;
	bpf_probe_read_kernel(&offset, sizeof(offset), (void *)position);
	return read_begin((void *)file, offset, 0);
}

ON_CALL(cache_read, filemap_splice_read, 5, splice_enter, read_leave)

/*
 * The read looks up a batch of pages, and calls this if the first of them is not there. Page faults call it, too, also where the read copies
 * to memory that is a file.
 */
static __always_inline int missed(void *ctx, __u64 ractl, __u64 unused1, __u64 unused2)
{
	struct reading *reading = cache_read_calls_of(bpf_get_current_pid_tgid());

	if (reading && BPF_CORE_READ((struct readahead_control *)ractl, mapping) == reading->mapping)
		reading->misses++;
	return 0;
}

ON_ENTER_OR_MORE(cache_missed, page_cache_sync_ra, 2, missed)

struct cache_fault {
	COMMON();
	char file[32] DOC(FILE_NAME);
	INODE_FIELDS;
	__u64 offset DOC("where in the file the page is");
	bool miss DOC("the page cache did not have the page: a major fault, unless a signal comes while the kernel waits for the page");
	bytes_t added NEEDS(cache_added) DETAIL DOC("what the thread put into the page cache in the look-up: the page, and what is read ahead");
	bool again DOC("the kernel waits, and looks the page up once more: another event");
	ns_t latency DOC("time in the look-up");
} DOC("a page fault looks up a page of a mapped file (filemap_fault); the kernel maps pages that are there around one without that");
EVENT(cache_fault)
OF_CALL(cache_fault)

struct looking {
	__u64 at; /* ns */
	struct file *file;
	struct address_space *mapping;
	__u64 index;
	__u64 added; /* pages */
};
SLOTTED(cache_fault_calls, thread, struct looking, 16384)

static __always_inline int fault_enter(void *ctx, __u64 fault, __u64 unused1, __u64 unused2)
{
	struct vm_fault *vmf = (void *)fault;
	struct looking *looking;

	if (!cache_fault_entry)
		return 0;
	BEGIN_BY_THREAD(cache_fault, cache_fault_calls, looking);
	if (!looking)
		return 0;
	looking->file = BPF_CORE_READ(vmf, vma, vm_file);
	looking->mapping = mapping_of_file(looking->file);
	looking->index = BPF_CORE_READ(vmf, pgoff);
	looking->added = 0;
	looking->at = bpf_ktime_get_ns();
	return 0;
}

/* enum vm_fault_reason, include/linux/mm_types.h */
enum {
	FAULT_MAJOR = 0x4,
	FAULT_RETRY = 0x400,
};

static __always_inline void cache_fault_capture(struct cache_fault *e, struct looking *looking, __u32 result, enum stage stage)
{
	CAPTURE_COMMON(cache_fault, e, stage);
	if (WANT(cache_fault, miss, stage))
		e->miss = (result & FAULT_MAJOR) != 0;
	if (WANT(cache_fault, again, stage))
		e->again = (result & FAULT_RETRY) != 0;
	if (!cache_fault_entry)
		return;
	if (WANT(cache_fault, file, stage))
		READ_STRING(e->file, name_of(looking->file));
	CAPTURE_INODE(cache_fault, e, inode_of(looking->file), stage);
	if (WANT(cache_fault, offset, stage))
		e->offset = looking->index * page_size;
	if (WANT(cache_fault, added, stage))
		e->added = looking->added * page_size;
	if (WANT(cache_fault, latency, stage))
		e->latency = bpf_ktime_get_ns() - looking->at;
}

static __always_inline int fault_leave(void *ctx, __s64 ret)
{
	struct looking *looking = cache_fault_entry ? cache_fault_calls_of(bpf_get_current_pid_tgid()) : 0;
	struct cache_fault e;

	if (cache_fault_unseen(looking))
		return 0;
	EMIT(cache_fault, ctx, &e, looking, (__u32)ret);
	if (cache_fault_entry)
		cache_fault_calls_end(looking);
	return 0;
}

ON_CALL(cache_fault, filemap_fault, 1, fault_enter, fault_leave)

/*
 * Pages that come into the page cache in a read or a fault: the pages of its file, as others are the file system's own. A read may fault, but not
 * in a page of its own file. Arguments: struct page * or, since 5.16, struct folio *.
 */
SEC("raw_tp/mm_filemap_add_to_page_cache")
int raw_tp_cache_added(__u64 *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct address_space *mapping = mapping_of((void *)ctx[0]);
	struct reading *reading = WANTED(cache_read, added) ? cache_read_calls_of(thread) : 0;
	struct looking *looking = WANTED(cache_fault, added) ? cache_fault_calls_of(thread) : 0;

	if (WANTED(cache_read, added) && reading && reading->mapping == mapping)
		reading->added += pages_of((void *)ctx[0]);
	if (WANTED(cache_fault, added) && looking && looking->mapping == mapping)
		looking->added += pages_of((void *)ctx[0]);
	return 0;
}

/* Pages that come, go and change: one event for each folio. */
#define PAGES_EVENT(X, doc) \
	struct X { \
		COMMON(); \
		INODE_FIELDS; \
		__u64 offset DOC("where in the file the pages are"); \
		bytes_t bytes DOC("their size"); \
	} DOC(doc); \
	EVENT(X) \
	static __always_inline void X##_capture(struct X *e, void *folio, enum stage stage) \
	{ \
		CAPTURE_COMMON(X, e, stage); \
		CAPTURE_INODE(X, e, host_of(folio), stage); \
		if (WANT(X, offset, stage)) \
			e->offset = index_of(folio) * page_size; \
		if (WANT(X, bytes, stage)) \
			e->bytes = (__u64)pages_of(folio) * page_size; \
	} \
	/* Their first argument is struct page * or, since 5.16, struct folio *. */ \
	SEC("raw_tp/" #X) \
	int raw_tp_##X(__u64 *ctx) \
	{ \
		struct X e; \
\
		EMIT(X, ctx, &e, (void *)ctx[0]); \
		return 0; \
	}

PAGES_EVENT(cache_add, "pages of a file come into the page cache (raw tracepoint mm_filemap_add_to_page_cache)")
PAGES_EVENT(cache_remove, "pages of a file leave the page cache: reclaimed, dropped, or the file is cut or deleted (raw tracepoint mm_filemap_delete_from_page_cache)")
PAGES_EVENT(cache_dirty, "pages of a file are changed, and must be written to the disk (raw tracepoint writeback_dirty_folio, writeback_dirty_page)")

struct cache_readahead {
	COMMON();
	char file[32] DETAIL DOC(FILE_NAME "; empty if the file system itself reads");
	INODE_FIELDS;
	__u64 offset DOC("where in the file the pages are");
	bytes_t bytes DOC("how much is read, of pages that are missing and ahead of them");
} DOC("the kernel asks a file system to read pages into the page cache (read_pages)");
EVENT(cache_readahead)

static __always_inline void cache_readahead_capture(struct cache_readahead *e, struct readahead_control *ahead, __u32 pages, enum stage stage)
{
	CAPTURE_COMMON(cache_readahead, e, stage);
	if (WANT(cache_readahead, file, stage))
		READ_STRING(e->file, name_of(BPF_CORE_READ(ahead, file)));
	CAPTURE_INODE(cache_readahead, e, BPF_CORE_READ(ahead, mapping, host), stage);
	if (WANT(cache_readahead, offset, stage))
		e->offset = BPF_CORE_READ(ahead, _index) * page_size;
	if (WANT(cache_readahead, bytes, stage))
		e->bytes = (__u64)pages * page_size;
}

/* Called also where no page is left to read. */
static __always_inline int ahead(void *ctx, __u64 control, __u64 unused1, __u64 unused2)
{
	struct readahead_control *ahead = (void *)control;
	__u32 pages = BPF_CORE_READ(ahead, _nr_pages);
	struct cache_readahead e;

	if (pages)
		EMIT(cache_readahead, ctx, &e, ahead, pages);
	return 0;
}

ON_ENTER_OR_MORE(cache_readahead, read_pages, 1, ahead)
