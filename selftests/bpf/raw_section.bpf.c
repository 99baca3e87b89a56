// SPDX-License-Identifier: GPL-2.0
/*
 * Takes a branch snapshot in a function of a module, and counts what the kernel tells
 * its tracers of interrupts meanwhile.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* The process that has the function called. */
const volatile __u32 target_pid;

/* A snapshot is being taken by it, on this CPU. */
__u32 taking;
__u32 cpu;

/* How often it was told then that interrupts are disabled, and enabled. */
__u32 off;
__u32 on;

struct record records[MAX_RECORDS];

/* What the helper returned. */
__s64 taken;

SEC("fentry/brbe_section")
int take(void *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 != target_pid)
		return 0;
	cpu = bpf_get_smp_processor_id();
	taking = 1;
	taken = bpf_get_branch_snapshot(records, sizeof(records), 0);
	taking = 0;
	return 0;
}

static __always_inline int is_taking(void)
{
	return taking && bpf_get_smp_processor_id() == cpu;
}

SEC("raw_tp/irq_disable")
int count_off(void *ctx)
{
	if (is_taking())
		off++;
	return 0;
}

SEC("raw_tp/irq_enable")
int count_on(void *ctx)
{
	if (is_taking())
		on++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
