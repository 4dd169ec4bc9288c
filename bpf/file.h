/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which file an event is about (include/linux/fs.h), and the size of pages. */
#pragma once
#include "trace.h"

/* Go sets it. */
const volatile __u8 page_shift SEC(".rodata");
#define page_size (1ULL << page_shift)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct super_block {
	__u32 s_dev;
	char s_id[32];
};
struct address_space;
struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};
struct address_space {
	struct inode *host;
};
struct qstr {
	const unsigned char *name;
};
struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};
struct dentry {
	struct hlist_bl_node d_hash;
	struct qstr d_name;
};
struct path {
	struct dentry *dentry;
};
struct file {
	struct path f_path;
	struct inode *f_inode;
	struct address_space *f_mapping;
};
#pragma clang attribute pop

#define FILE_NAME "name of the file, without its directory"

#define INODE_FIELDS \
	char disk[32] DOC("name of the file system: its disk, like nvme0n1p1, or its kind, like overlay; bdev for a disk without one"); \
	hex32_t dev VERBOSE DOC("device number of the file system, major << 20 | minor"); \
	__u64 inode VERBOSE DOC("inode number of the file")

static __always_inline __u32 dev_of(struct inode *inode)
{
	return BPF_CORE_READ(inode, i_sb, s_dev);
}

static __always_inline __u64 number_of(struct inode *inode)
{
	return BPF_CORE_READ(inode, i_ino);
}

static __always_inline struct inode *inode_of(struct file *file)
{
	return BPF_CORE_READ(file, f_inode);
}

static __always_inline const unsigned char *name_of(struct file *file)
{
	return BPF_CORE_READ(file, f_path.dentry, d_name.name);
}

/* Captures INODE_FIELDS of the event e. */
#define CAPTURE_INODE(X, e, inode_pointer, stage) \
	do { \
		struct inode *of = (inode_pointer); \
		if (WANT(X, disk, stage)) { \
			struct super_block *system = BPF_CORE_READ(of, i_sb); \
			READ_STRING((e)->disk, system->s_id); \
		} \
		if (WANT(X, dev, stage)) \
			(e)->dev = dev_of(of); \
		if (WANT(X, inode, stage)) \
			(e)->inode = number_of(of); \
	} while (0)
