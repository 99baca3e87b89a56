// SPDX-License-Identifier: GPL-2.0
/* Takes a branch snapshot when a module has filled BRBE with a record. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* The process that has the module do so. */
const volatile __u32 target_pid;

struct record records[MAX_RECORDS];

/* What the helper returned. */
__s64 taken;

SEC("fentry/brbe_injected")
int take(void *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 != target_pid)
		return 0;
	taken = bpf_get_branch_snapshot(records, sizeof(records), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
