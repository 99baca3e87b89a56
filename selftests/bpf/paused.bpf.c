// SPDX-License-Identifier: GPL-2.0
/*
 * Programs for a trampoline that pauses the branch records first: they take no snapshot.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Turns of the loop in slow_fentry. */
const volatile __u32 turns = 1;

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
	bpf_loop(turns, turn, NULL, 0);
	return 0;
}

/* Run by BPF_PROG_TEST_RUN, it has the kernel call the function above. */
SEC("fentry/bpf_fentry_test1")
int call_function(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
