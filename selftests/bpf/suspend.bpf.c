// SPDX-License-Identifier: GPL-2.0
/*
 * Takes a branch snapshot as a CPU comes back from an idle state that is deeper than
 * WFI, before anything else runs on it: a switch of tasks would have perf start the PMU
 * again, whatever idling has left of it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* The state of the tracepoint as a CPU comes back (PWR_EVENT_EXIT) */
#define EXIT ((__u32)-1)

#define MAX_CPUS 64

struct {
	/* The idle state that the CPU has entered last */
	__u32 state;
	/* How many snapshots of the CPU had records, and how many had none */
	__u64 with;
	__u64 without;
} returns[MAX_CPUS];

SEC("raw_tp/cpu_idle")
int on_idle(struct bpf_raw_tracepoint_args *ctx)
{
	struct record newest;
	__u32 state = ctx->args[0];
	__u32 cpu = ctx->args[1];
	long size;

	if (cpu >= MAX_CPUS)
		return 0;
	if (state != EXIT) {
		returns[cpu].state = state;
		return 0;
	}
	if (!returns[cpu].state)
		return 0;
	size = bpf_get_branch_snapshot(&newest, sizeof(newest), 0);
	if (size > 0)
		returns[cpu].with++;
	else
		returns[cpu].without++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
