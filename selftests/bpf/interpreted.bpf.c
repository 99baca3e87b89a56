// SPDX-License-Identifier: GPL-2.0
/*
 * Calls bpf_get_branch_snapshot() with arguments of user space's choice, as the
 * contract program does, and no other helper: what some JITs write into a program
 * requires a JIT, and this one has to do with the interpreter.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* The helper may write the first MAX_RECORDS; what follows shows if it does not stop. */
struct record buffer[MAX_RECORDS + 1];

/* What the helper returned. */
__s64 taken;

/* { size, flags } */
SEC("raw_tp")
int take(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 size = ctx->args[0];
	__u64 flags = ctx->args[1];

	if (size > MAX_RECORDS * sizeof(struct record))
		return 1;
	taken = bpf_get_branch_snapshot(buffer, size, flags);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
