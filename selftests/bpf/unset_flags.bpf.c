// SPDX-License-Identifier: GPL-2.0
/*
 * Calls bpf_get_branch_snapshot() with flags that are not set, which the verifier has to
 * refuse, and with flags of 32 bits.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

struct record buffer[MAX_RECORDS];

/* What the helper returned. */
__s64 taken;

/* Always 0. The compiler does not know it, and loads 32 bits. */
__u32 flags;

SEC("raw_tp")
int take_with_short_flags(void *ctx)
{
	taken = bpf_get_branch_snapshot(buffer, sizeof(buffer), flags);
	return 0;
}

/* Nothing but assembler leaves an argument unset. */
SEC("?raw_tp")
__attribute__((naked)) int take_with_unset_flags(void)
{
	asm volatile("r1 = r10\n"
		     "r1 += -%[size]\n"
		     "r2 = %[size]\n"
		     "call %[snapshot]\n"
		     "r0 = 0\n"
		     "exit"
		     :
		     : [size] "i"(sizeof(struct record)),
		       [snapshot] "i"(BPF_FUNC_get_branch_snapshot)
		     : "r0", "r1", "r2", "r3", "r4", "r5", "memory");
}

char LICENSE[] SEC("license") = "GPL";
