// SPDX-License-Identifier: GPL-2.0
/*
 * Takes branch snapshots while another one reads the records. The outer one
 * runs by BPF_PROG_TEST_RUN.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* Inner snapshots whose result is kept. */
#define MAX_INNER 4

struct record outer[MAX_RECORDS];
struct record inner[MAX_RECORDS];

/* What the helper returned. */
__s64 taken_outer;
__s64 taken_inner[MAX_INNER];

/* Inner snapshots that were taken. */
__u32 calls;

SEC("raw_tp")
int take_outer(void *ctx)
{
	taken_outer = bpf_get_branch_snapshot(outer, sizeof(outer), 0);
	return 0;
}

/* Where user space says. */
SEC("kprobe")
int take_inner(void *ctx)
{
	__u32 call = calls++;
	__s64 taken = bpf_get_branch_snapshot(inner, sizeof(inner), 0);

	if (call < MAX_INNER)
		taken_inner[call] = taken;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
