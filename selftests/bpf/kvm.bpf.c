// SPDX-License-Identifier: GPL-2.0
/*
 * Takes branch snapshots where KVM is about to run a guest, and where it has run
 * one.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

#define NOWHERE (-1)

struct record before[MAX_RECORDS];
struct record after[MAX_RECORDS];

/* What the helper returned. */
__s64 taken_before;
__s64 taken_after;

/* The CPU that runs a guest. */
int runs_on = NOWHERE;

SEC("raw_tp/kvm_entry")
int on_entry(void *ctx)
{
	taken_before = bpf_get_branch_snapshot(before, sizeof(before), 0);
	runs_on = bpf_get_smp_processor_id();
	return 0;
}

/*
 * Called right before the guest runs, and right after: the last snapshot stays. All
 * else that the host calls is further away from the guest than there are records.
 */
SEC("fentry/rcu_note_context_switch")
int on_note(void *ctx)
{
	if (runs_on != (int)bpf_get_smp_processor_id())
		return 0;
	taken_after = bpf_get_branch_snapshot(after, sizeof(after), 0);
	return 0;
}

/* The host's next step. */
SEC("fentry/kvm_vgic_sync_hwstate")
int on_exit(void *ctx)
{
	runs_on = NOWHERE;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
