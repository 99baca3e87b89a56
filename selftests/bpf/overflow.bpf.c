// SPDX-License-Identifier: GPL-2.0
/*
 * Takes a branch snapshot near which a counter overflows. Runs by
 * BPF_PROG_TEST_RUN.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* The event that overflows, in the place of the CPU that it counts on. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} events SEC(".maps");

struct record records[MAX_RECORDS];

/* What the helper returned. */
__s64 taken;

/* The counter right before the snapshot and right after it. */
__u64 before;
__u64 after;

void bpf_local_irq_save(unsigned long *flags) __ksym;
void bpf_local_irq_restore(unsigned long *flags) __ksym;

static void snapshot(void)
{
	before = bpf_perf_event_read(&events, BPF_F_CURRENT_CPU);
	taken = bpf_get_branch_snapshot(records, sizeof(records), 0);
	after = bpf_perf_event_read(&events, BPF_F_CURRENT_CPU);
}

SEC("raw_tp")
int take(void *ctx)
{
	snapshot();
	return 0;
}

/* A counter that overflows before the snapshot is not handled until after it. */
SEC("raw_tp")
int take_without_interrupts(void *ctx)
{
	unsigned long flags;

	bpf_local_irq_save(&flags);
	snapshot();
	bpf_local_irq_restore(&flags);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
