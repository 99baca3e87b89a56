// SPDX-License-Identifier: GPL-2.0
/*
 * Has a counter overflow while interrupts are disabled, and takes two snapshots before
 * anybody can handle that. Runs by BPF_PROG_TEST_RUN.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* Far more readings of the counter than a period takes. */
#define MAX_TURNS (1 << 18)

/* The event that overflows, in the place of the CPU that it counts on. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} events SEC(".maps");

/* What it counts until it overflows. User space says. */
__u64 period;

/* What it had counted when interrupts were disabled, and at the first snapshot. */
__s64 began;
__s64 ended;

struct record first[MAX_RECORDS];
struct record second[MAX_RECORDS];

/* What the helper returned. */
__s64 taken_first;
__s64 taken_second;

void bpf_local_irq_save(unsigned long *flags) __ksym;
void bpf_local_irq_restore(unsigned long *flags) __ksym;
int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

SEC("raw_tp")
int take_with_overflow_pending(void *ctx)
{
	unsigned long flags;
	int turn;

	bpf_local_irq_save(&flags);
	began = bpf_perf_event_read(&events, BPF_F_CURRENT_CPU);
	bpf_for(turn, 0, MAX_TURNS) {
		__u64 count = bpf_perf_event_read(&events, BPF_F_CURRENT_CPU);

		ended = count;
		/* An error is larger than any count. */
		if (count >= period)
			break;
	}
	taken_first = bpf_get_branch_snapshot(first, sizeof(first), 0);
	taken_second = bpf_get_branch_snapshot(second, sizeof(second), 0);
	bpf_local_irq_restore(&flags);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
