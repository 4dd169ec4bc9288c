/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the probes and package trace/bpf. README.md in this folder shows how to add a probe.
 *
 * An event is a struct. It is the only declaration of what the event carries: Go reads its members from the BTF of the object,
 * the typedef of a member is its meaning and unit, an enum its names, DOC() its documentation.
 */
#pragma once

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Types with a meaning. A plain integer or bool has none. */
typedef __u64 ns_t;       /* duration in nanoseconds */
typedef __u64 bytes_t;    /* size in bytes */
typedef __s64 change_t;   /* change of a size in bytes */
typedef __s64 errno_t;    /* result: -errno on failure */
typedef __u64 cgroup_t;   /* id of a cgroup, printed as its path */
typedef __u8 gid_t16[16] __attribute__((aligned(8))); /* RDMA GID, network order */
typedef __u8 ip_t16[16] __attribute__((aligned(8))); /* IP address, network order; IPv4 as ::ffff:a.b.c.d */
typedef __u8 hex8_t;      /* printed in hexadecimal: flags, masks, raw codes, addresses */
typedef __u16 hex16_t;
typedef __u32 hex32_t;
typedef __u64 hex64_t;

#define DOC(text) __attribute__((btf_decl_tag("doc:" text)))

/* An enum whose values are bits; a field may have several of them. */
#define FLAGS __attribute__((btf_decl_tag("flags")))

/*
 * An enum whose values are class << 8 | code. names are the classes from 0 on, - for one without a name. They distinguish codes that
 * have no name.
 */
#define CLASSES(names) __attribute__((btf_decl_tag("classes:" names)))

/*
 * Which fields a line of text has. A field without a mark is always in it; a bool or FLAGS has DETAIL implicitly. -v, JSON and CSV
 * have all fields. A line should fit in 160 columns: who, which device, what, how much, how it ended and how long it took.
 *
 *     DETAIL          present unless it is 0
 *     USUAL(value)    present unless it has that value: the name of an enumerator, or a number
 *     INSTEAD(field)  present where that other field is absent
 *     VERBOSE         never: raw codes, addresses, what the rest of the line shows
 */
#define DETAIL __attribute__((btf_decl_tag("line:detail")))
#define USUAL(value) __attribute__((btf_decl_tag("line:usual:" #value)))
#define INSTEAD(field) __attribute__((btf_decl_tag("line:instead:" #field)))
#define VERBOSE __attribute__((btf_decl_tag("line:verbose")))

/* The stacks of an event are the stacks of the task that this argument of its raw tracepoint is, counted from 0. Only the kernel's are known. */
#define STACK_OF_ARGUMENT(n) __attribute__((btf_decl_tag("stack:" #n)))

/* The helper hook of the Go catalog that must be attached when this field is wanted. */
#define NEEDS(helper) __attribute__((btf_decl_tag("needs:" #helper)))

/* A field of the task that needs the kernel's types. On a kernel without BTF Go does not want it, and it is absent. */
#define OF_TASK __attribute__((btf_decl_tag("of:task")))

/* A field of an event OF_CALL that is known when the function returns, like the common fields. */
#define AT_RETURN __attribute__((btf_decl_tag("at:return")))

/*
 * Presence bits are in the second half of a stack slot of 8 bytes. In the first half they mislead the verifiers of 5.10 and 6.1:
 * these track the constant in the first byte, confuse a state without a bit with one that has it, and remove the branch for it. Then
 * a field was absent in every key that had a second field of the same byte.
 */
#define HAS_PAD __u32 : 32
#define HAS_ALIGN __attribute__((aligned(8)))

/* Which fields OF_TASK are present. */
struct of_task {
	__u32 ppid : 1;
	__u32 pgid : 1;
	__u32 pidns : 1;
	__u32 pcomm : 1;
};

/*
 * The fields of every event. `has`, in an event or in a nested struct, holds one bit for each sibling that may be absent, under
 * the sibling's name.
 */
#define COMMON(helper) \
	__u64 nsecs DOC("time of the event, ns since boot (CLOCK_BOOTTIME)"); \
	__u32 pid helper DOC("process id (thread group id)"); \
	__u32 tid helper VERBOSE DOC("thread id"); \
	__u32 uid helper VERBOSE DOC("user id"); \
	__u32 cpu VERBOSE DOC("CPU on which the event was seen"); \
	cgroup_t cgroup helper VERBOSE DOC("cgroup of the task: its path, or its id, the inode of its directory, if no path is visible"); \
	char comm[16] helper DOC("name of the thread"); \
	OF_TASK_FIELDS(helper)

/*
 * The common fields OF_TASK. Their presence bits are in the second half of a slot, see HAS_PAD. KEPT_OF_TASK declares the same
 * members for what is kept of a task until its event comes.
 */
#define OF_TASK_FIELDS(helper) \
	__u32 ppid helper OF_TASK VERBOSE DOC("process id of the parent; absent without BTF of the kernel"); \
	__u32 pgid helper OF_TASK VERBOSE DOC("process group id, 0 for kernel threads; absent without BTF of the kernel, and in a task that has ended"); \
	__u32 pidns helper OF_TASK VERBOSE \
		DOC("pid namespace: the number in /proc/PID/ns/pid; absent without BTF of the kernel, and in a task that has ended"); \
	struct of_task has_of_task; \
	char pcomm[16] helper OF_TASK VERBOSE DOC("name of the parent process; absent without BTF of the kernel")

#define KEPT_OF_TASK \
	__u32 ppid, pgid, pidns; \
	struct of_task has_of_task; \
	char pcomm[16]

/* The common fields that may be absent, in events that describe another task than the current one, or none. */
#define TASK_HAS() \
	__u32 pid : 1; \
	__u32 tid : 1; \
	__u32 uid : 1; \
	__u32 cgroup : 1; \
	__u32 comm : 1

/*
 * EVENT(X) declares what goes with struct X:
 *
 *     X_want    for each byte of struct X, when Go wants it captured: NEVER, BEFORE the filter (which reads it) or AFTER it. Go sets
 *               the values when it loads the program, and removes the code that captures unwanted fields.
 *     X_counted whether Go wants to know how many events passed and were rejected; a constant like X_want.
 *     X_filter  declared here, defined by Go when it loads the object: which clauses of the user's program want this event? Bit i
 *               stands for clause i; 0 means that no clause does.
 *     X_action  likewise: does what these clauses ask for. passed is the result of the filter.
 *     X_counts  counts what happened to the events, by enum counter.
 */
enum stage { NEVER, BEFORE, AFTER };

enum counter {
	PASSED,        /* a clause wants it; only if X_counted */
	REJECTED,      /* no clause wants it; only if X_counted */
	RING_FULL,     /* lost: the ring buffer had no room; counted by generated code */
	UNMATCHED,     /* the beginning was not seen; its fields are absent (COUNT_UNMATCHED) */
	INFLIGHT_FULL, /* no room to remember a beginning: its end will be unmatched or unseen */
	UNSEEN,        /* lost: the beginning was not seen, and the event means nothing without it */
	UNENDED,       /* lost: the end of a remembered beginning was not seen */
	CUT,           /* lost: the rest of a list that is longer than a program can read; counted once for each list */
	LATE,          /* lost: a reading, because the one before it took too long */
	COUNTERS,
};

struct counts {
	__u64 n[COUNTERS];
};

#define EVENT(X) \
	const volatile __u8 X##_want[sizeof(struct X)] SEC(".rodata"); \
	const volatile __u8 X##_counted SEC(".rodata"); \
	__u64 X##_filter(void *ctx, struct X *e); \
	int X##_action(void *ctx, struct X *e, __u64 passed); \
	struct { \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__uint(max_entries, 1); \
		__type(key, __u32); \
		__type(value, struct counts); \
	} X##_counts SEC(".maps"); \
	static __always_inline void X##_count(enum counter c) \
	{ \
		__u32 zero = 0; \
		struct counts *counts = bpf_map_lookup_elem(&X##_counts, &zero); \
		/* Atomic: an interrupt may run a program of the same event meanwhile. */ \
		if (counts) \
			__sync_fetch_and_add(&counts->n[c], 1); \
	}

/*
 * MADE(X) defines the program of an event that Go makes: nothing in the kernel knows it. Go runs the program with the address of an event that
 * it has filled, so that filter, maps and records treat it like any other. The arguments are that address; or 0, and enum counter for what is
 * lost.
 */
#define MADE(X) \
	SEC("raw_tp") \
	int raw_tp_##X(__u64 *ctx) \
	{ \
		struct X e; \
		if (!ctx[0]) { \
			X##_count(ctx[1] == LATE ? LATE : UNSEEN); \
			return 0; \
		} \
		if ((bpf_probe_read_user)(&e, sizeof(e), (void *)ctx[0])) /* user_memory.h does not count it */ \
			return 1; \
		EMIT(X, ctx, &e); \
		return 0; \
	}

#define WANT(X, field, stage) (X##_want[__builtin_offsetof(struct X, field)] == (stage))
#define WANTED(X, field) (X##_want[__builtin_offsetof(struct X, field)] != NEVER)

/*
 * Where the cgroup of a task is; Go sets this constant by what the host has mounted. On a pure v1 host every task is in the root of
 * v2. There the id is from a v1 hierarchy, and this is the number of its controller (enum cgroup_subsys_id), counted from 1.
 */
const volatile __u8 cgroup_controller SEC(".rodata");

enum {
	CGROUP_V2,
	CGROUP_UNKNOWN = 0xff, /* v1, but the kernel does not describe its types: the id is 0, which no cgroup has */
};

/*
 * ARGUMENTS(t) declares t_arguments: how many arguments the raw tracepoint or the function t has in the running kernel, as versions differ
 * in what they pass; 0 without BTF of the kernel. Go looks it up only where code that is wanted reads it.
 */
#define ARGUMENTS(tracepoint) const volatile __u8 tracepoint##_arguments SEC(".rodata")

/*
 * Argument i of a raw tracepoint, where ARGUMENTS decides which one is read. Otherwise clang reads from one address that it computes from
 * ctx, which the verifier refuses.
 */
#define ARGUMENT(ctx, i) \
	({ \
		__u64 argument; \
		asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(argument) : "r"(ctx), "i"(8 * (i))); \
		argument; \
	})

/*
 * The types on the way from a task to its common fields. The names of these views have a suffix of their own: types of the kernel are
 * read only if a program uses these fields, and task_struct takes longer than all others.
 */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node___way {
	__u64 id;
};
struct cgroup___way {
	struct kernfs_node___way *kn;
};
struct cgroup_subsys_state___way {
	struct cgroup___way *cgroup;
};
struct css_set___way {
	struct cgroup_subsys_state___way *subsys[1];
};
struct ns_common___way {
	__u32 inum;
};
struct pid_namespace___way {
	struct ns_common___way ns;
};
struct upid___way {
	__s32 nr;
	struct pid_namespace___way *ns;
};
struct pid___way {
	__u32 level;
	struct upid___way numbers[1];
};
struct signal_struct___way {
	struct pid___way *pids[3];
};
struct sched_info___way {
	unsigned long pcount;
	__u64 run_delay;
};
struct task_struct___way {
	__s32 tgid;
	struct task_struct___way *real_parent;
	struct task_struct___way *group_leader;
	struct pid___way *thread_pid;
	char comm[16];
	struct signal_struct___way *signal;
	struct css_set___way *cgroups;
	struct sched_info___way sched_info;
	unsigned long nvcsw, nivcsw;
	unsigned long min_flt, maj_flt;
};
#pragma clang attribute pop

/* The id of a task's cgroup on a pure v1 host. */
static __always_inline __u64 v1_cgroup(struct task_struct___way *task)
{
	struct css_set___way *set;
	struct cgroup_subsys_state___way *state = 0;

	if (cgroup_controller == CGROUP_UNKNOWN)
		return 0;
	set = BPF_CORE_READ(task, cgroups);
	bpf_core_read(&state, sizeof(state), &set->subsys[0] + (cgroup_controller - 1));
	return BPF_CORE_READ(state, cgroup, kn, id);
}

/* The id of the current task's cgroup: the inode of its directory. */
static __always_inline __u64 current_cgroup(void)
{
	if (cgroup_controller == CGROUP_V2)
		return bpf_get_current_cgroup_id();
	return v1_cgroup((void *)bpf_get_current_task());
}

/*
 * Whether a field is present is computed without a branch where only its bit depends on that. The verifier follows each way of a branch to the
 * end, unless it comes to a place in a state in which it was there before. Bits of known value make states differ, and on 6.1 also
 * zeros on the stack, so ten such branches could take a thousand times the instructions. clang makes branches of comparisons, but not
 * of what it knows nothing about.
 */
#define NOT_A_BRANCH(bit) asm volatile("" : "+r"(bit))

/* 1 if a value is not 0. */
static __always_inline __u32 is_set(__u64 value)
{
	__u64 bit = (value | -value) >> 63;

	NOT_A_BRANCH(bit);
	return bit;
}

/* 1 if a helper has returned more than 0. */
static __always_inline __u32 is_positive(long result)
{
	__u64 bit = (__u64)-result >> 63;

	NOT_A_BRANCH(bit);
	return bit;
}

/* 1 if a helper has returned 0, and not a negative error. */
static __always_inline __u32 is_done(long result)
{
	__u64 failed = (__u64)result >> 63;

	NOT_A_BRANCH(failed);
	return failed ^ 1;
}

/* Clears an event that has many fields that may be absent. A read that fails writes zeros, and the verifier does not know that they are. */
#define CLEAR_UNKNOWN(e) bpf_probe_read_kernel(e, sizeof(*(e)), 0)

/* enum pid_type, include/linux/pid_types.h */
#define PIDTYPE_PGID 2

/* Follows a pointer, in one stack slot, as generated code shares the stack. NULL leads to NULL, and to zeros. */
#define GO_TO(at, type, member) bpf_core_read(&(at), sizeof(at), &((struct type##___way *)(at))->member)
#define READ_THERE(dst, at, type, member) bpf_core_read(dst, sizeof(*(dst)), &((struct type##___way *)(at))->member)

/* Reads from a task what wanted(field, ...) selects into s, which has the members of KEPT_OF_TASK: see COMMON. */
#define READ_OF_TASK(s, task, wanted, ...) \
	do { \
		void *at; \
		if (wanted(ppid, ##__VA_ARGS__)) { \
			at = (void *)(task); \
			GO_TO(at, task_struct, real_parent); \
			READ_THERE(&(s)->ppid, at, task_struct, tgid); \
			(s)->has_of_task.ppid = 1; \
		} \
		if (wanted(pgid, ##__VA_ARGS__)) { \
			at = (void *)(task); \
			GO_TO(at, task_struct, signal); \
			GO_TO(at, signal_struct, pids[PIDTYPE_PGID]); \
			READ_THERE(&(s)->pgid, at, pid, numbers[0].nr); \
			(s)->has_of_task.pgid = is_set((__u64)at); \
		} \
		if (wanted(pidns, ##__VA_ARGS__)) { \
			at = (void *)(task); \
			GO_TO(at, task_struct, thread_pid); \
			READ_THERE(&(s)->pidns, at, pid, level); \
			at = at ? &((struct pid___way *)at)->numbers[0] + (s)->pidns : 0; \
			GO_TO(at, upid, ns); \
			READ_THERE(&(s)->pidns, at, pid_namespace, ns.inum); \
			(s)->has_of_task.pidns = is_set((__u64)at); \
		} \
		if (wanted(pcomm, ##__VA_ARGS__)) { \
			at = (void *)(task); \
			GO_TO(at, task_struct, real_parent); \
			GO_TO(at, task_struct, group_leader); \
			READ_STRING((s)->pcomm, ((struct task_struct___way *)at)->comm); \
			(s)->has_of_task.pcomm = 1; \
		} \
	} while (0)

/* Whether wanted(field, ...) is true for any field OF_TASK. */
#define ANY_OF_TASK(wanted, ...) \
	(wanted(ppid, ##__VA_ARGS__) || wanted(pgid, ##__VA_ARGS__) || wanted(pidns, ##__VA_ARGS__) || wanted(pcomm, ##__VA_ARGS__))

#define WANT_FIELD(field, X, stage) WANT(X, field, stage)
#define WANTED_FIELD(field, X) WANTED(X, field)

#define CAPTURE_OF_TASK(X, e, task, stage) \
	do { \
		if (ANY_OF_TASK(WANT_FIELD, X, stage)) \
			READ_OF_TASK(e, task, WANT_FIELD, X, stage); \
	} while (0)

/* Captures the fields OF_TASK from what was kept. */
#define CAPTURE_KEPT_OF_TASK(X, e, kept, stage) \
	do { \
		if (WANT(X, ppid, stage)) \
			(e)->ppid = (kept)->ppid; \
		if (WANT(X, pgid, stage)) \
			(e)->pgid = (kept)->pgid; \
		if (WANT(X, pidns, stage)) \
			(e)->pidns = (kept)->pidns; \
		if (WANT(X, pcomm, stage)) \
			__builtin_memcpy((e)->pcomm, (kept)->pcomm, sizeof((e)->pcomm)); \
		if (ANY_OF_TASK(WANT_FIELD, X, stage)) \
			(e)->has_of_task = (kept)->has_of_task; \
	} while (0)

/* Captures the common fields from the current task. */
#define CAPTURE_COMMON(X, e, stage) \
	do { \
		CAPTURE_TIME(X, e, stage); \
		if (WANT(X, pid, stage)) \
			(e)->pid = bpf_get_current_pid_tgid() >> 32; \
		if (WANT(X, tid, stage)) \
			(e)->tid = (__u32)bpf_get_current_pid_tgid(); \
		if (WANT(X, uid, stage)) \
			(e)->uid = (__u32)bpf_get_current_uid_gid(); \
		if (WANT(X, cgroup, stage)) \
			(e)->cgroup = current_cgroup(); \
		if (WANT(X, comm, stage)) \
			READ_COMM((e)->comm); \
		CAPTURE_OF_TASK(X, e, bpf_get_current_task(), stage); \
	} while (0)

/* Likewise, where the fields may be absent. */
#define CAPTURE_CURRENT(X, e, stage) \
	do { \
		if (WANT(X, pid, stage)) \
			SET(e, pid, bpf_get_current_pid_tgid() >> 32); \
		if (WANT(X, tid, stage)) \
			SET(e, tid, (__u32)bpf_get_current_pid_tgid()); \
		if (WANT(X, uid, stage)) \
			SET(e, uid, (__u32)bpf_get_current_uid_gid()); \
		if (WANT(X, cgroup, stage)) \
			SET(e, cgroup, current_cgroup()); \
		if (WANT(X, comm, stage)) { \
			READ_COMM((e)->comm); \
			(e)->has.comm = 1; \
		} \
		CAPTURE_OF_TASK(X, e, bpf_get_current_task(), stage); \
	} while (0)

/* Reads the name of the current thread and pads it with NULs. On some kernels, like 6.1, the helper does not clear the bytes behind
 * the name. */
#define READ_COMM(array) \
	do { \
		__builtin_memset(array, 0, sizeof(array)); \
		bpf_get_current_comm(array, sizeof(array)); \
	} while (0)

/* Captures the common fields that do not depend on a task. No field OF_TASK is present yet. */
#define CAPTURE_TIME(X, e, stage) \
	do { \
		if (stage == BEFORE && ANY_OF_TASK(WANTED_FIELD, X)) \
			__builtin_memset(&(e)->has_of_task, 0, sizeof((e)->has_of_task)); \
		if (WANT(X, nsecs, stage)) \
			(e)->nsecs = bpf_ktime_get_boot_ns(); \
		if (WANT(X, cpu, stage)) \
			(e)->cpu = bpf_get_smp_processor_id(); \
	} while (0)

/*
 * What a thread has gone through in a call, beside the time: SPENT_FIELDS declares it in the event of the call's end. The thread's totals
 * are read at its beginning, into a struct spent, and at its end.
 */
struct spent {
	__u64 runq;
	__u32 faults, switches;
};

struct spent_bits {
	HAS_PAD;
	__u32 runq : 1;
	__u32 faults : 1;
	__u32 switches : 1;
} HAS_ALIGN;

#define SPENT_FIELDS(helper) \
	ns_t runq helper OF_TASK VERBOSE \
		DOC("time for which the thread was ready in the call and waited for a CPU; absent without BTF of the kernel, and where the kernel does not account for it"); \
	__u32 faults helper OF_TASK VERBOSE DOC("page faults of the thread in the call; absent without BTF of the kernel"); \
	__u32 switches helper OF_TASK VERBOSE \
		DOC("how often the thread was switched away from in the call, to wait or by force; absent without BTF of the kernel"); \
	struct spent_bits has_spent

#define ANY_SPENT(wanted, ...) (wanted(runq, ##__VA_ARGS__) || wanted(faults, ##__VA_ARGS__) || wanted(switches, ##__VA_ARGS__))

/* Totals of the current thread. */
#define TOTAL(member) \
	({ \
		__u64 total = 0; \
		if (bpf_core_field_exists(((struct task_struct___way *)0)->member)) \
			total = BPF_CORE_READ((struct task_struct___way *)bpf_get_current_task(), member); \
		total; \
	})
#define TOTAL_runq TOTAL(sched_info.run_delay)
#define TOTAL_faults (__u32)(TOTAL(min_flt) + TOTAL(maj_flt))
#define TOTAL_switches (__u32)(TOTAL(nvcsw) + TOTAL(nivcsw))

/* Whether the kernel accounts for what threads wait: then one that runs has been given a CPU. */
#define ACCOUNTS_FOR_runq is_set(TOTAL(sched_info.pcount))
#define ACCOUNTS_FOR_faults 1
#define ACCOUNTS_FOR_switches 1

#define BEGIN_TOTAL(X, s, field) \
	do { \
		if (WANTED(X, field)) \
			(s)->field = TOTAL_##field; \
	} while (0)

/* At the beginning of a call of event X; s is a struct spent. */
#define BEGIN_SPENT(X, s) \
	do { \
		BEGIN_TOTAL(X, s, runq); \
		BEGIN_TOTAL(X, s, faults); \
		BEGIN_TOTAL(X, s, switches); \
	} while (0)

#define CAPTURE_TOTAL(X, e, begin, field, stage) \
	do { \
		if (WANT(X, field, stage) && (begin)) { \
			(e)->field = TOTAL_##field - (begin)->field; \
			(e)->has_spent.field = ACCOUNTS_FOR_##field; \
		} \
	} while (0)

/* Captures what the thread has gone through since begin, a struct spent; none of it if that is NULL. */
#define CAPTURE_SPENT(X, e, begin, stage) \
	do { \
		if (stage == BEFORE && ANY_SPENT(WANTED_FIELD, X)) \
			__builtin_memset(&(e)->has_spent, 0, sizeof((e)->has_spent)); \
		CAPTURE_TOTAL(X, e, begin, runq, stage); \
		CAPTURE_TOTAL(X, e, begin, faults, stage); \
		CAPTURE_TOTAL(X, e, begin, switches, stage); \
	} while (0)

/* Sets a field that may be absent; s is the struct that holds the field and its `has`. */
#define SET(s, field, value) \
	do { \
		(s)->field = (value); \
		(s)->has.field = 1; \
	} while (0)

/*
 * Reads a member that this kernel may not describe, or may have in another width; false if the kernel does not describe it.
 * Out-of-tree modules often have no BTF: then these fields are absent, and arguments and results remain. The pointer is copied first:
 * inside the builtins, an access to a struct of our own would be relocated, too.
 */
#define GET(dst, p, member) \
	({ \
		typeof(p) base = (p); \
		bool exists = bpf_core_field_exists(base->member); \
		if (exists) \
			*(dst) = BPF_CORE_READ_BITFIELD_PROBED(base, member); \
		exists; \
	})

/* Reads a pointer member; NULL if this kernel does not describe it. */
#define GET_POINTER(p, member) \
	({ \
		typeof(p) base = (p); \
		bpf_core_field_exists(base->member) ? BPF_CORE_READ(base, member) : 0; \
	})

/*
 * Reads a string of the kernel into an array and pads it with NULs: generated code compares and copies the whole array. Returns the
 * length with the NUL, or a negative error.
 */
#define READ_STRING(array, source) \
	({ \
		__builtin_memset(array, 0, sizeof(array)); \
		bpf_probe_read_kernel_str(array, sizeof(array), source); \
	})

/* After a struct tracefs_X: the ftrace event of the hook X, see README.md. */
#define FTRACE_EVENT __attribute__((preserve_access_index))

/* Whether events are seen now. window.h has another answer. */
#define SEES true

/*
 * Filters the event e and acts on it. X_capture(X *e, ..., enum stage) captures what that stage wants. It is called twice, with a
 * constant stage, so that a rejected event costs only what the filter reads.
 */
#define EMIT(X, ctx, e, ...) \
	do { \
		__u64 passed; \
		if (!SEES) \
			break; \
		X##_capture(e, ##__VA_ARGS__, BEFORE); \
		passed = X##_filter(ctx, e); \
		if (X##_counted) \
			X##_count(passed ? PASSED : REJECTED); \
		if (passed) { \
			X##_capture(e, ##__VA_ARGS__, AFTER); \
			X##_action(ctx, e, passed); \
		} \
	} while (0)

/*
 * OF_CALL(X), after EVENT(X), is for the return of a function. A program at the entry keeps what is no longer available at the
 * return.
 *
 *     X_entry     whether Go wants any of that, see bpf/README.md; a constant like X_want. If not, the program at the entry has no
 *                 effect, Go does not attach it, and the return looks nothing up.
 *     X_unseen    whether what was kept is missing but wanted; counts that.
 *
 * OF_NESTED_CALL(X) is for functions that call each other: only what is kept shows that a call is part of another one.
 */
#define OF_CALL(X) \
	const volatile __u8 X##_entry SEC(".rodata"); \
	COUNT_UNSEEN(X)

#define OF_NESTED_CALL(X) \
	enum { X##_entry = true }; \
	COUNT_UNSEEN(X)

#define COUNT_UNSEEN(X) \
	static __always_inline bool X##_unseen(void *call) \
	{ \
		if (!X##_entry || call) \
			return false; \
		X##_count(UNSEEN); \
		return true; \
	}

/*
 * OF_BEGINNING(X), after EVENT(X), is for an event whose beginning is remembered by helpers (NEEDS). Fields of the beginning may be
 * absent.
 *
 *     X_begins           the first stage that wants one of these fields; a constant like X_want.
 *     COUNT_UNMATCHED    in X_capture, counts an event whose beginning was not seen: one that passed the filter, or, if the filter
 *                        uses fields of the beginning, one that the filter could not decide.
 */
#define OF_BEGINNING(X) const volatile __u8 X##_begins SEC(".rodata");

#define COUNT_UNMATCHED(X, beginning, stage) \
	do { \
		if (X##_begins == (stage) && !(beginning)) \
			X##_count(UNMATCHED); \
	} while (0)

/*
 * SEEDED(X), after EVENT(X), is for a probe whose events report that objects come and go. It also reports the objects that were there
 * before, and corrects what the kernel skips: Go makes the kernel walk over all its objects (seed.go), at the start and whenever
 * something points to a difference. Programs of another hook on that walk compare each object with what was reported. Meanwhile
 * objects come and go.
 *
 *     X_seeding    the state of the walk; Go sets it. Before SEEDING no program EMITs anything: the walk finds what happened until then.
 *     X_walk       the number of the walk; Go sets it.
 *     X_partial    some objects may not have been reported at the start; an unknown one that goes is one of them. Go sets it.
 *     X_known      the objects that were reported, by address: their events, and the walk that met them last.
 *     X_met        objects that a walk has met, or that went during it, before they were reported: their event may be on its way.
 *     X_told       how many objects are known, by class.
 *     X_gone       how many objects went during walks: the kernel may then have skipped one.
 *     X_unsure     how many unknown objects walks have met.
 *     X_corrected  how many events came late, by a comparison.
 *     X_full       there was no room for an object: what happens to it cannot be corrected.
 */
enum seeding {
	ATTACHING,
	SEEDING,  /* the first walk: the objects it meets were there before */
	WATCHING, /* no walk */
	CHECKING, /* a later walk */
};

enum { CLASSES = 16, WENT = 1U << 31 };

#define SEEDED(X, object) \
	volatile __u32 X##_seeding SEC(".data"); \
	volatile __u32 X##_walk SEC(".data"); \
	volatile __u32 X##_partial SEC(".data"); \
	volatile __u32 X##_told[CLASSES]; \
	volatile __u32 X##_gone; \
	volatile __u32 X##_unsure; \
	volatile __u32 X##_corrected; \
	volatile __u32 X##_full; \
	struct { \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, 1); /* Go sets the number */ \
		__type(key, __u64); \
		__type(value, object); \
	} X##_known SEC(".maps"); \
	struct { \
		__uint(type, BPF_MAP_TYPE_LRU_HASH); \
		__uint(max_entries, 16384); \
		__type(key, __u64); \
		__type(value, __u32); /* the walk, and whether it WENT in it */ \
	} X##_met SEC(".maps")

/*
 * SLOTTED(name, by, what, n) is for what is kept under a key from a beginning to an end, without a hash: by thread, or by request, which
 * --explain shows. It is a table of n slots, a power of 2. The key gives a bucket of SLOTS slots, and is in the one that it has.
 *
 *     name_of(key)       what is kept under the key; NULL if nothing is
 *     name_begin(key)    likewise, or if nothing is, room for it, with what another key left there; NULL if there is none
 *     name_end(kept)     it is no longer kept
 *
 * Only the owner of a key changes what is kept under it: the thread, or who has the request. Owners that look for room count themselves in a
 * slot, as there is no atomic operation with a result before 5.12: who is alone has it, and two that come at once both go on to the next.
 * A thread that dies in between keeps its slot.
 *
 * The key and the count are one number, which only atomic operations change. They need no barrier, also on arm64, where these operations are
 * none: all CPUs see the changes of one number in one order. With two numbers the next owner could see the count fall, write its key, and then
 * lose it to the 0 of the last owner.
 */
enum {
	SLOTS = 4,
	OWNERS = 255, /* the bits of the count */
};

/* The state of a slot with a key and no owner. A key is the number of a thread, or an address in the kernel: its upper 8 bits carry nothing. */
#define STATE_OF(key) (((key) + 1) << 8)

#define SLOTTED(name, by, what, n) \
	struct name##_bucket { \
		struct name##_slot { \
			__u64 state; /* the key, and how many owners there are, with those who try to be one; 0: nothing is kept */ \
			what kept; \
		} slot[SLOTS]; \
	}; \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(max_entries, (n) / SLOTS); \
		__type(key, __u32); \
		__type(value, struct name##_bucket); \
	} name SEC(".maps") __attribute__((btf_decl_tag("by:" #by))); \
\
	static __always_inline struct name##_bucket *name##_bucket_of(__u64 key) \
	{ \
		/* By Fibonacci hashing, as the threads of a program have neighbouring numbers. */ \
		__u32 bucket = (key * 0x9e3779b97f4a7c15ULL >> 32) * ((n) / SLOTS) >> 32; \
\
		return bpf_map_lookup_elem(&name, &bucket); \
	} \
\
	static __always_inline struct name##_slot *name##_slot_of(struct name##_bucket *bucket, int i) \
	{ \
		struct name##_slot *slot = &bucket->slot[i]; \
\
		asm volatile("" : "+r"(slot)); /* clang would compute all of them before, and put them on the stack */ \
		return slot; \
	} \
\
	static __always_inline what *name##_of(__u64 key) \
	{ \
		struct name##_bucket *bucket = name##_bucket_of(key); \
		__u64 state = STATE_OF(key); \
\
		_Pragma("clang loop unroll(full)") \
		for (int i = 0; bucket && i < SLOTS; i++) { \
			struct name##_slot *slot = name##_slot_of(bucket, i); \
\
			if (slot->state - state <= OWNERS) \
				return &slot->kept; \
		} \
		return 0; \
	} \
\
	/* Room for a key under which nothing is kept. */ \
	static __always_inline what *name##_room(__u64 key) \
	{ \
		struct name##_bucket *bucket = name##_bucket_of(key); \
\
		_Pragma("clang loop unroll(full)") \
		for (int i = 0; bucket && i < SLOTS; i++) { \
			struct name##_slot *slot = name##_slot_of(bucket, i); \
\
			if (slot->state) \
				continue; \
			__sync_fetch_and_add(&slot->state, 1); \
			if (*(volatile __u64 *)&slot->state == 1) { \
				__sync_fetch_and_add(&slot->state, STATE_OF(key)); \
				return &slot->kept; \
			} \
			__sync_fetch_and_add(&slot->state, -1); \
		} \
		return 0; \
	} \
\
	__attribute__((unused)) static __always_inline what *name##_begin(__u64 key) \
	{ \
		what *kept = name##_of(key); \
\
		return kept ? kept : name##_room(key); \
	} \
\
	static __always_inline void name##_end(what *kept) \
	{ \
		struct name##_slot *slot = (void *)kept - __builtin_offsetof(struct name##_slot, kept); \
\
		__sync_fetch_and_add(&slot->state, -(slot->state & ~(__u64)OWNERS) - 1); \
	}

/* Whether tables have no room, so that a test sees what happens then. Go sets it. */
const volatile __u8 tables_full SEC(".rodata");

/*
 * KEPT(name, by, what, n): SLOTTED, with the same functions, and a hash for what the table has no room for: with 3 of 4 slots taken, that is a
 * tenth. A key has something in one of the two.
 */
#define KEPT(name, by, what, n) \
	SLOTTED(name##_slots, by, what, n) \
\
	struct { \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, (n) / SLOTS); \
		__type(key, __u64); /* STATE_OF */ \
		__type(value, struct name##_slots_slot); /* without owners, which no slot of the table with a key has */ \
	} name SEC(".maps"); \
\
	volatile __u64 name##_overflowed SEC(".data"); /* how often the table had no room */ \
\
	static __always_inline what *name##_of(__u64 key) \
	{ \
		what *kept = tables_full ? 0 : name##_slots_of(key); \
		struct name##_slots_slot *slot; \
\
		if (kept || !name##_overflowed) \
			return kept; \
		key = STATE_OF(key); \
		slot = bpf_map_lookup_elem(&name, &key); \
		if (!slot) \
			return 0; \
		asm volatile("" : "+r"(slot)); /* clang would compute the address before, which the verifier refuses */ \
		return &slot->kept; \
	} \
\
	static __always_inline what *name##_room(__u64 key) \
	{ \
		what *kept = tables_full ? 0 : name##_slots_room(key); \
		struct name##_slots_bucket *any; \
		struct name##_slots_slot *slot; \
\
		if (kept) \
			return kept; \
		__sync_fetch_and_add(&name##_overflowed, 1); \
		any = name##_slots_bucket_of(key); \
		key = STATE_OF(key); \
		if (!any || bpf_map_update_elem(&name, &key, &any->slot[0], BPF_ANY)) \
			return 0; \
		slot = bpf_map_lookup_elem(&name, &key); \
		if (!slot) \
			return 0; \
		slot->state = key; \
		return &slot->kept; \
	} \
\
	__attribute__((unused)) static __always_inline what *name##_begin(__u64 key) \
	{ \
		what *kept = name##_of(key); \
\
		return kept ? kept : name##_room(key); \
	} \
\
	static __always_inline void name##_end(what *kept) \
	{ \
		struct name##_slots_slot *slot = (void *)kept - __builtin_offsetof(struct name##_slots_slot, kept); \
\
		if (slot->state & OWNERS) \
			name##_slots_end(kept); \
		else \
			bpf_map_delete_elem(&name, &slot->state); \
	}

/*
 * Begins a call of this thread in a table, and sets kept, to NULL if there is no room. If the thread has a call there already, the end of that
 * call was missed: kernels before 6.7 do not report the returns that a kretprobe misses.
 */
#define BEGIN_BY_THREAD(X, name, kept) \
	do { \
		__u64 thread = bpf_get_current_pid_tgid(); \
		kept = name##_of(thread); \
		if (kept) \
			X##_count(UNENDED); \
		else \
			kept = name##_room(thread); \
		if (!kept) \
			X##_count(INFLIGHT_FULL); \
	} while (0)

/* Likewise; keeps a copy of call. */
#define BEGIN_CALL(X, name, call) \
	do { \
		typeof(call) kept; \
		BEGIN_BY_THREAD(X, name, kept); \
		if (kept) \
			*kept = *(call); \
	} while (0)

/*
 * Arguments and result of a function by its calling convention, for kprobes. These views are our own: the registers of kernel entry
 * are ABI, so they need neither relocation nor BTF.
 */
#if defined(__TARGET_ARCH_x86)
struct kprobe_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip;
	unsigned short cs; /* with FRED (6.9), the rest of the slot is how the kernel was entered */
	unsigned long flags, sp, ss;
};
#define KPROBE_ARG0(ctx) ((ctx)->di)
#define KPROBE_ARG1(ctx) ((ctx)->si)
#define KPROBE_ARG2(ctx) ((ctx)->dx)
#define KPROBE_ARG3(ctx) ((ctx)->cx)
#define KPROBE_ARG4(ctx) ((ctx)->r8)
#define KPROBE_ARG5(ctx) ((ctx)->r9)
/* The seventh is above the return address, and only there at the entry. */
#define KPROBE_ARG6(ctx) \
	({ \
		__u64 arg = 0; \
		bpf_probe_read_kernel(&arg, sizeof(arg), (void *)((ctx)->sp + 8)); \
		arg; \
	})
#define KPROBE_RET(ctx) ((ctx)->ax)
#elif defined(__TARGET_ARCH_arm64)
struct kprobe_regs {
	__u64 regs[31], sp, pc, pstate, orig_x0;
	__s32 syscallno;
};
#define KPROBE_ARG0(ctx) ((ctx)->regs[0])
#define KPROBE_ARG1(ctx) ((ctx)->regs[1])
#define KPROBE_ARG2(ctx) ((ctx)->regs[2])
#define KPROBE_ARG3(ctx) ((ctx)->regs[3])
#define KPROBE_ARG4(ctx) ((ctx)->regs[4])
#define KPROBE_ARG5(ctx) ((ctx)->regs[5])
#define KPROBE_ARG6(ctx) ((ctx)->regs[6])
#define KPROBE_RET(ctx) ((ctx)->regs[0])
#else
#error "the target architecture is amd64 or arm64"
#endif

/*
 * Programs for one kernel function of n arguments under the name of a hook, in two variants that the Go catalog chooses from:
 * fentry/fexit, and kprobe/kretprobe. enter(ctx, a0, a1, a2) gets the first three arguments (0 where there are fewer), leave(ctx,
 * ret) the result. Under fexit the number of arguments determines where the result is, so Go compares it with the kernel's prototype
 * before it loads the program.
 */
#define ARG_OR_0(ctx, i, n) ((i) < (n) ? (ctx)[(i) < (n) ? (i) : 0] : 0)

#define ON_ENTER(hook, function, nargs, enter) ON_ENTER_TAGGED(hook, function, nargs, __attribute__((btf_decl_tag("args:" #nargs))), enter)

/* ON_ENTER for a function that has more arguments in some kernels. */
#define ON_ENTER_OR_MORE(hook, function, nargs, enter) ON_ENTER_TAGGED(hook, function, nargs, , enter)

#define ON_ENTER_TAGGED(hook, function, nargs, tag, enter) \
	SEC("fentry/" #function) tag \
	int fentry_##hook##__##function(__u64 *ctx) \
	{ \
		return enter(ctx, ARG_OR_0(ctx, 0, nargs), ARG_OR_0(ctx, 1, nargs), ARG_OR_0(ctx, 2, nargs)); \
	} \
	SEC("kprobe/" #function) \
	int kprobe_##hook##__##function(struct kprobe_regs *ctx) \
	{ \
		return enter(ctx, KPROBE_ARG0(ctx), KPROBE_ARG1(ctx), KPROBE_ARG2(ctx)); \
	}

#define ON_LEAVE(hook, function, nargs, leave) \
	SEC("fexit/" #function) __attribute__((btf_decl_tag("args:" #nargs))) \
	int fexit_##hook##__##function(__u64 *ctx) \
	{ \
		return leave(ctx, (__s64)ctx[nargs]); \
	} \
	SEC("kretprobe/" #function) \
	int kretprobe_##hook##__##function(struct kprobe_regs *ctx) \
	{ \
		return leave(ctx, (__s64)KPROBE_RET(ctx)); \
	}

#define ON_CALL(hook, function, nargs, enter, leave) \
	ON_ENTER(hook, function, nargs, enter) \
	ON_LEAVE(hook, function, nargs, leave)

/* ON_CALL for an enter function that gets the first five arguments. */
#define ON_CALL5(hook, function, nargs, enter, leave) \
	SEC("fentry/" #function) __attribute__((btf_decl_tag("args:" #nargs))) \
	int fentry_##hook##__##function(__u64 *ctx) \
	{ \
		return enter(ctx, ARG_OR_0(ctx, 0, nargs), ARG_OR_0(ctx, 1, nargs), ARG_OR_0(ctx, 2, nargs), ARG_OR_0(ctx, 3, nargs), \
			     ARG_OR_0(ctx, 4, nargs)); \
	} \
	SEC("kprobe/" #function) \
	int kprobe_##hook##__##function(struct kprobe_regs *ctx) \
	{ \
		return enter(ctx, KPROBE_ARG0(ctx), KPROBE_ARG1(ctx), KPROBE_ARG2(ctx), KPROBE_ARG3(ctx), KPROBE_ARG4(ctx)); \
	} \
	ON_LEAVE(hook, function, nargs, leave)

/*
 * For a function with n arguments or m, by the kernel. Go takes their number from its prototype: ARGUMENTS.
 */
#define ON_CALL_OF(hook, function, n, m, enter, leave) \
	ARGUMENTS(function); \
	SEC("fentry/" #function) __attribute__((btf_decl_tag("args:" #n " " #m))) \
	int fentry_##hook##__##function(__u64 *ctx) \
	{ \
		return enter(ctx, ARG_OR_0(ctx, 0, n), ARG_OR_0(ctx, 1, n), ARG_OR_0(ctx, 2, n)); \
	} \
	SEC("fexit/" #function) __attribute__((btf_decl_tag("args:" #n " " #m))) \
	int fexit_##hook##__##function(__u64 *ctx) \
	{ \
		__s64 ret; \
\
		/* One load would be of a changed context, which the kernel refuses. */ \
		if (function##_arguments == (n)) \
			LOAD_ARG(ret, ctx, n); \
		else \
			LOAD_ARG(ret, ctx, m); \
		return leave(ctx, ret); \
	} \
	BY_KPROBE(hook, function, enter, leave)

#define LOAD_ARG(to, ctx, i) asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(to) : "r"(ctx), "i"(8 * (i)))

#define BY_KPROBE(hook, function, enter, leave) \
	SEC("kprobe/" #function) \
	int kprobe_##hook##__##function(struct kprobe_regs *ctx) \
	{ \
		return enter(ctx, KPROBE_ARG0(ctx), KPROBE_ARG1(ctx), KPROBE_ARG2(ctx)); \
	} \
	SEC("kretprobe/" #function) \
	int kretprobe_##hook##__##function(struct kprobe_regs *ctx) \
	{ \
		return leave(ctx, (__s64)KPROBE_RET(ctx)); \
	}

/*
 * For a function whose programs read no result, and no arguments but the first n, so that a kernel may add some.
 */
#define ON_SPAN(hook, function, n, enter, leave) \
	SEC("fentry/" #function) \
	int fentry_##hook##__##function(__u64 *ctx) \
	{ \
		return enter(ctx, ARG_OR_0(ctx, 0, n), ARG_OR_0(ctx, 1, n), ARG_OR_0(ctx, 2, n)); \
	} \
	SEC("fexit/" #function) \
	int fexit_##hook##__##function(__u64 *ctx) \
	{ \
		return leave(ctx, 0); \
	} \
	BY_KPROBE(hook, function, enter, leave)

/*
 * For a function whose result has another type in other drivers. Its programs come in several shapes; the kernel's prototype decides
 * which one Go loads: `returns` is int, pointer or void. ON_RETURN_UNKNOWN is loaded, as a kprobe only, if there is no prototype.
 */
#define ON_RETURN(hook, function, nargs, returns, leave) \
	SEC("fexit/" #function) __attribute__((btf_decl_tag("args:" #nargs), btf_decl_tag("returns:" #returns))) \
	int fexit_##hook##__##function##__##returns(__u64 *ctx) \
	{ \
		return leave(ctx, (__s64)ctx[nargs]); \
	} \
	SEC("kretprobe/" #function) __attribute__((btf_decl_tag("returns:" #returns))) \
	int kretprobe_##hook##__##function##__##returns(struct kprobe_regs *ctx) \
	{ \
		return leave(ctx, (__s64)KPROBE_RET(ctx)); \
	}

#define ON_RETURN_UNKNOWN(hook, function, leave) \
	SEC("kretprobe/" #function) \
	int kretprobe_##hook##__##function(struct kprobe_regs *ctx) \
	{ \
		return leave(ctx, (__s64)KPROBE_RET(ctx)); \
	}

/* From linux/bpf.h and asm/errno.h (uapi): what this folder uses. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_MMAPABLE = 1 << 10,
	EEXIST = 17,
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";
