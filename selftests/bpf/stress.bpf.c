// SPDX-License-Identifier: GPL-2.0
/*
 * Takes branch snapshots from programs of every sort, for user space to look at.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

/* Which program took it. */
enum sort {
	FENTRY,
	FEXIT,
	KPROBE,
	TRACEPOINT,
	RAW_TRACEPOINT,
	PERF_EVENT,
	NESTED,
	SORTS,
};

struct snapshot {
	/* What the helper returned. */
	__s64 taken;
	/* It may write all but the last. */
	struct record records[MAX_RECORDS + 1];
};

struct event {
	__u32 sort;
	__u32 cpu;
	/*
	 * One right after the other: what the first has read and left there is
	 * no path to what the second reads after it.
	 */
	struct snapshot first, second;
};

/* Those that found no room in the ring buffer, and so took no snapshots. */
__u64 full[SORTS];

/*
 * Tracepoints are hit so often that on a slow machine they would fill a ring buffer before anything
 * else is in it: they have one of their own.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} events SEC(".maps"), events_of_tracepoints SEC(".maps");

static __always_inline void fill(struct snapshot *snapshot)
{
	int i;

	for (i = 0; i <= MAX_RECORDS; i++) {
		snapshot->records[i].from = ~0ULL;
		snapshot->records[i].to = ~0ULL;
		snapshot->records[i].flags = ~0ULL;
		/* Else this is a memset(), which BPF has not got. */
		barrier();
	}
}

static __always_inline int take_into(void *ring, enum sort sort)
{
	struct event *event = bpf_ringbuf_reserve(ring, sizeof(*event), 0);
	const __u32 size = MAX_RECORDS * sizeof(struct record);

	if (!event) {
		__sync_fetch_and_add(&full[sort], 1);
		return 0;
	}
	fill(&event->first);
	fill(&event->second);
	event->sort = sort;
	event->cpu = bpf_get_smp_processor_id();
	event->first.taken = bpf_get_branch_snapshot(event->first.records, size, 0);
	event->second.taken = bpf_get_branch_snapshot(event->second.records, size, 0);
	/* User space looks anyway: no wakeup from wherever this is. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int take(enum sort sort)
{
	return take_into(&events, sort);
}

SEC("fentry/vfs_write")
int on_entry(void *ctx)
{
	return take(FENTRY);
}

SEC("fexit/vfs_write")
int on_exit(void *ctx)
{
	return take(FEXIT);
}

SEC("kprobe/vfs_read")
int on_probe(void *ctx)
{
	return take(KPROBE);
}

SEC("tp/sched/sched_switch")
int on_switch(void *ctx)
{
	return take_into(&events_of_tracepoints, TRACEPOINT);
}

SEC("raw_tp/sys_exit")
int on_return(void *ctx)
{
	return take_into(&events_of_tracepoints, RAW_TRACEPOINT);
}

SEC("perf_event")
int on_overflow(void *ctx)
{
	take(PERF_EVENT);
	/* Otherwise no sample is written (bpf_overflow_handler()). */
	return 1;
}

/* In the middle of another snapshot, where user space says. */
SEC("kprobe")
int on_read(void *ctx)
{
	return take(NESTED);
}

char LICENSE[] SEC("license") = "GPL";
