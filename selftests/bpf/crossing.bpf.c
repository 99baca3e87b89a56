// SPDX-License-Identifier: GPL-2.0
/*
 * Takes a branch snapshot where the kernel has asked its firmware for something.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

struct record records[MAX_RECORDS];

/* What the helper returned. */
__s64 taken;

SEC("fexit/psci_affinity_info")
int has_asked(void *ctx)
{
	taken = bpf_get_branch_snapshot(records, sizeof(records), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
