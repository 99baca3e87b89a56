// SPDX-License-Identifier: GPL-2.0
/*
 * What the driver of the PMU has read of the register BRBIDR0_EL1. User space cannot read
 * the register, and the kernel has no file for it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Those fields of the kernel's structures that are used; libbpf finds where they are. */
struct pmu {} __attribute__((preserve_access_index));

struct arm_pmu {
	struct pmu pmu;
	__u64 reg_brbidr;
} __attribute__((preserve_access_index));

struct perf_event {
	struct pmu *pmu;
} __attribute__((preserve_access_index));

/* The process that opens events. */
const volatile __u32 target_pid;

__u64 brbidr;
__u32 times;

/* The PMU is asked for each event that is opened. */
SEC("fentry/armpmu_event_init")
int BPF_PROG(on_event_init, struct perf_event *event)
{
	struct arm_pmu *arm_pmu;

	if (bpf_get_current_pid_tgid() >> 32 != target_pid)
		return 0;
	arm_pmu = (void *)event->pmu - bpf_core_field_offset(struct arm_pmu, pmu);
	if (bpf_core_read(&brbidr, sizeof(brbidr), &arm_pmu->reg_brbidr))
		return 0;
	times++;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
