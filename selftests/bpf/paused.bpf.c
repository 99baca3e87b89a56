// SPDX-License-Identifier: GPL-2.0
/*
 * Programs for a trampoline that pauses the branch records first: they take no snapshot.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* Turns of the loop in slow_fentry. */
const volatile __u32 turns = 1;

/* Where the kernel's function begins that takes a snapshot. */
const volatile __u64 snapshot_function;

/* slow_fentry is in its loop. */
volatile __u32 in_loop;

/* Snapshots that interrupts of the loop took: without a record, */
__u32 without;
/* with the call of the snapshot as the newest of them, */
__u32 of_their_own;
/* and with those of whom they interrupt. */
__u32 of_another;

/* How often the inner program has run. */
__u32 inner_runs;

struct record taken[MAX_RECORDS];

/* What the helper returned to the program that took them last. */
__s64 returned;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} nothing SEC(".maps");

SEC("fentry/bpf_fentry_test1")
int idle_fentry(void *ctx)
{
	return 0;
}

SEC("fexit/bpf_fentry_test1")
int idle_fexit(void *ctx)
{
	return 0;
}

static int turn(__u32 index, void *unused)
{
	return 0;
}

/* So long that another task runs meanwhile. */
SEC("fentry/bpf_fentry_test1")
int slow_fentry(void *ctx)
{
	in_loop = 1;
	bpf_loop(turns, turn, NULL, 0);
	in_loop = 0;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int in_interrupt(void *ctx)
{
	if (!in_loop)
		return 0;
	if (bpf_get_branch_snapshot(taken, sizeof(taken), 0) <= 0)
		without++;
	else if (taken[0].to == snapshot_function)
		of_their_own++;
	else
		of_another++;
	return 0;
}

/* Soon after what the others leave, and without the flag. */
SEC("fexit/bpf_fentry_test1")
int take_at_exit(void *ctx)
{
	returned = bpf_get_branch_snapshot(taken, sizeof(taken), 0);
	return 0;
}

/* Leads to the next one, which is run inside it, before it takes its snapshot. */
SEC("fentry/bpf_fentry_test1")
int outer(void *ctx)
{
	__u32 key = 0;

	bpf_map_delete_elem(&nothing, &key);
	returned = bpf_get_branch_snapshot(taken, sizeof(taken), 0);
	return 0;
}

SEC("fentry/htab_map_delete_elem")
int inner(void *ctx)
{
	inner_runs++;
	return 0;
}

/* Run by BPF_PROG_TEST_RUN, it has the kernel call the function above. */
SEC("fentry/bpf_fentry_test1")
int call_function(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
