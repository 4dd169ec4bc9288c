//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters of network devices. */
#include "counters.h"

/* Whose counters they are, in the order of probes/counter/net.go. */
enum net_source {
	net_source__ETHTOOL, /* the driver's: ethtool -S */
	net_source__DEVICE,  /* of any device: ip -s link, /sys/class/net/DEV/statistics */
};

struct net_counters {
	COMMON();
	char dev[16] DOC("network device, like eth0");
	char name[40] DOC("name of the counter");
	COUNTER("");
	enum net_source source USUAL(ETHTOOL)
		DOC("ETHTOOL: the driver's own, as ethtool -S shows it. DEVICE: what any device has, as /sys/class/net/DEV/statistics shows it");
	struct {
		HAS_PAD;
		COUNTER_HAS();
	} has HAS_ALIGN;
} DOC("a counter of a network device has changed since the reading before (ethtool -S, ip -s link); read once a second, or every 100 ms as net:counters:100ms");
COUNTERS_OF(net_counters)
