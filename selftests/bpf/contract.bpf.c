// SPDX-License-Identifier: GPL-2.0
/*
 * Calls bpf_get_branch_snapshot() with arguments of user space's choice, on
 * memory that user space has prepared. Those of raw_tp run by BPF_PROG_TEST_RUN,
 * which passes the arguments as context.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* The helper may write the first MAX_RECORDS; what follows shows if it does not stop. */
struct record buffer[MAX_RECORDS + 1];

/* What the helper returned. */
__s64 taken;

/* The CPU that take_and_note_cpu ran on. */
__u32 cpu;

/* A second call right after the first, and what it returned. */
struct record buffer2[MAX_RECORDS];
__s64 taken2;

/* How long jiffies stood still, in turns of a loop. */
__s64 waited;

/* The thread whose system calls are of interest, the first of its process. */
const volatile __u32 target_pid;

/*
 * { size, flags }
 *
 * Calls no other helper: what a JIT writes into a program requires a JIT, and this one is
 * interpreted, too.
 */
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

/* { size } */
SEC("raw_tp")
int take_and_note_cpu(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 size = ctx->args[0];

	if (size > MAX_RECORDS * sizeof(struct record))
		return 1;
	taken = bpf_get_branch_snapshot(buffer, size, 0);
	cpu = bpf_get_smp_processor_id();
	return 0;
}

/* { size of the first, size of the second } */
SEC("raw_tp")
int take_twice(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 size = ctx->args[0];
	__u64 size2 = ctx->args[1];

	if (size > MAX_RECORDS * sizeof(struct record) ||
	    size2 > MAX_RECORDS * sizeof(struct record))
		return 1;
	taken = bpf_get_branch_snapshot(buffer, size, 0);
	taken2 = bpf_get_branch_snapshot(buffer2, size2, 0);
	return 0;
}

static int has_ticked(__u32 index, void *start)
{
	return bpf_jiffies64() != *(__u64 *)start;
}

/* { size, turns } */
SEC("raw_tp")
int take_and_wait(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 size = ctx->args[0];
	__u64 turns = ctx->args[1];
	__u64 start;

	if (size > MAX_RECORDS * sizeof(struct record))
		return 1;
	taken = bpf_get_branch_snapshot(buffer, size, 0);
	start = bpf_jiffies64();
	waited = bpf_loop(turns, has_ticked, &start, 0);
	return 0;
}

SEC("raw_tp/sys_enter")
int take_at_call(void *ctx)
{
	if ((__u32)bpf_get_current_pid_tgid() != target_pid)
		return 0;
	/* What follows would be too late: programs run at each call, take the first. */
	if (taken)
		return 0;
	taken = bpf_get_branch_snapshot(buffer, MAX_RECORDS * sizeof(struct record), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
