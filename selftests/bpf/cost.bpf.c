// SPDX-License-Identifier: GPL-2.0
/*
 * Snapshots of as many records as user space wants there to be, for somebody who
 * counts the instructions of each. Run by BPF_PROG_TEST_RUN.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

struct record buffer[MAX_RECORDS];

/* What the helper returned: first of what there was, then after the turns. */
__s64 taken[2];

/* { turns }: each is one branch. */
SEC("raw_tp")
int take_after_turns(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 turns = ctx->args[0];
	__u64 turn;

	taken[0] = bpf_get_branch_snapshot(buffer, sizeof(buffer), 0);
	for (turn = 0; turn < 2 * MAX_RECORDS; turn++) {
		if (turn >= turns)
			break;
		barrier_var(turn);
	}
	taken[1] = bpf_get_branch_snapshot(buffer, sizeof(buffer), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
