/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters of RDMA devices: files below /sys/class/infiniband. */
#include "counters.h"

/* Folders, in the order of probes/counter/rdma.go. */
enum rdma_source {
	rdma_source__HW_COUNTERS, /* the driver's: rdma statistic */
	rdma_source__COUNTERS,    /* of the InfiniBand specification */
};

struct rdma_counters {
	COMMON();
	char dev[64] DOC("RDMA device, like mlx5_0");
	__u32 port DOC("port of the device; absent if the counter is of the whole device");
	char name[48] DOC("name of the counter");
	COUNTER(": port_rcv_data and port_xmit_data of COUNTERS count words of 4 bytes");
	enum rdma_source source USUAL(HW_COUNTERS)
		DOC("folder of the counter in /sys/class/infiniband/DEV/ports/PORT. HW_COUNTERS: the driver's own, as rdma statistic shows it. COUNTERS: what the InfiniBand specification has");
	struct {
		HAS_PAD;
		COUNTER_HAS();
		__u32 port : 1;
	} has HAS_ALIGN;
} DOC("a counter of an RDMA device has changed since the reading before (rdma statistic, hw_counters); read once a second, or every 100 ms as rdma:counters:100ms");
COUNTERS_OF(rdma_counters)
