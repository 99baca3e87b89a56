// SPDX-License-Identifier: GPL-2.0
/*
 * How long a snapshot takes, by the kernel's clock and by the cycle counter, and snapshots of
 * what system calls did.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* The value of taken that asks for a snapshot: no helper returns it. */
#define WANTED (-0x7fffffffffffffffLL - 1)

/* The helper may write the first MAX_RECORDS; what follows shows if it does not stop. */
struct record buffer[MAX_RECORDS + 1];

/* What the helper returned. */
__s64 taken;
/* How long it took, reading both clocks included. */
__u64 nanoseconds;
__u64 cycles;

/* Of each CPU, an event that counts cycles. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} counters SEC(".maps");

/* The process whose system calls are of interest. */
const volatile __u32 target_pid;

/* Run by BPF_PROG_TEST_RUN. { size, whether there is a snapshot at all } */
SEC("raw_tp")
int time_snapshot(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 size = ctx->args[0];
	__u64 takes = ctx->args[1];
	struct bpf_perf_event_value before = {}, after = {};
	__u64 begin, end;

	if (size > MAX_RECORDS * sizeof(struct record))
		return 1;
	taken = 0;
	if (bpf_perf_event_read_value(&counters, BPF_F_CURRENT_CPU, &before, sizeof(before)))
		return 2;
	begin = bpf_ktime_get_ns();
	if (takes)
		taken = bpf_get_branch_snapshot(buffer, size, 0);
	end = bpf_ktime_get_ns();
	if (bpf_perf_event_read_value(&counters, BPF_F_CURRENT_CPU, &after, sizeof(after)))
		return 2;
	nanoseconds = end - begin;
	cycles = after.counter - before.counter;
	return 0;
}

/* The first call that returns while taken is WANTED. */
SEC("raw_tp/sys_exit")
int take_at_exit(void *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 != target_pid)
		return 0;
	if (taken != WANTED)
		return 0;
	taken = bpf_get_branch_snapshot(buffer, MAX_RECORDS * sizeof(struct record), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
