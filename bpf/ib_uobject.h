/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way from a QP of the kernel to the program's. */
#pragma once

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ib_uobject {
	__u64 user_handle;
};
struct ib_qp {
	struct ib_uobject *uobject;
	__u32 qp_num;
};
#pragma clang attribute pop

/* The address of the program's struct ibv_qp; 0 for a QP of the kernel, and where the kernel does not describe its types. */
static __always_inline __u64 user_handle(__u64 qp)
{
	struct ib_uobject *object = GET_POINTER((struct ib_qp *)qp, uobject);
	__u64 handle = 0;

	GET(&handle, object, user_handle);
	return handle;
}
