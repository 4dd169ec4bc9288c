/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once
#define BPF_CORE_READ(...) 0
#define bpf_core_read(...) ((void)0)
