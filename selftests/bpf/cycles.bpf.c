// SPDX-License-Identifier: GPL-2.0
/*
 * Long stretches of instructions without a branch, each ended by one that is taken, and a
 * snapshot of those branches. Run by BPF_PROG_TEST_RUN.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

struct record buffer[MAX_RECORDS];

/* What the helper returned. */
__s64 taken;

/*
 * The stretch ends with a branch that the verifier cannot know to be taken. Where it is entered
 * says how long it is: a BPF branch reaches 32,767 instructions.
 */
#define STRETCH(entered_late, early, late)					\
	asm volatile("r3 = 0\n"							\
		     "if %[later] != 0 goto 1f\n"				\
		     ".rept " #early "\n"					\
		     "r3 += %[one]\n"						\
		     ".endr\n"							\
		     "1:\n"							\
		     ".rept " #late "\n"					\
		     "r3 += %[one]\n"						\
		     ".endr\n"							\
		     "if %[one] != 0 goto 2f\n"					\
		     "r3 = 0\n"							\
		     "2:\n"							\
		     : : [one] "r"(one), [later] "r"(entered_late) : "r3")

/* { 1, whether to enter the last stretch late } */
SEC("raw_tp")
int after_stretches(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 one = ctx->args[0];
	__u64 late = ctx->args[1];

	STRETCH(late, 100, 300);
	STRETCH(late, 500, 513);
	STRETCH(late, 32700, 33300);
	taken = bpf_get_branch_snapshot(buffer, sizeof(buffer), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
