// SPDX-License-Identifier: GPL-2.0
/*
 * Two programs on one function, each of which takes a branch snapshot.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

#define PROGRAMS 2

struct record records[PROGRAMS][MAX_RECORDS];

/* What the helper returned. */
__s64 taken[PROGRAMS];

/* Which program ran as which: 1 is the first one. */
__u32 turn[PROGRAMS];
__u32 turns;

#define TAKES_A_SNAPSHOT(name, number)						\
	SEC("fexit/bpf_fentry_test1") int name(void *ctx)			\
	{									\
		taken[number] = bpf_get_branch_snapshot(records[number],	\
							sizeof(records[number]), 0); \
		turn[number] = ++turns;						\
		return 0;							\
	}

TAKES_A_SNAPSHOT(one, 0)
TAKES_A_SNAPSHOT(other, 1)

/* Run by BPF_PROG_TEST_RUN, this has the kernel call the function. */
SEC("fentry/bpf_fentry_test1")
int call_function(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
