// SPDX-License-Identifier: GPL-2.0
/*
 * Takes branch snapshots from programs of every sort, each for user space to
 * look at.
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

struct event {
	__u32 sort;
	__u32 cpu;
	/* What the helper returned. */
	__s64 taken;
	/* It may write all but the last. */
	struct record records[MAX_RECORDS + 1];
};

/* Those that found no room in the ring buffer, and so took no snapshot. */
__u64 full[SORTS];

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1024 * 1024);
} events SEC(".maps");

static __always_inline int take(enum sort sort)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	int i;

	if (!event) {
		__sync_fetch_and_add(&full[sort], 1);
		return 0;
	}
	for (i = 0; i <= MAX_RECORDS; i++) {
		event->records[i].from = ~0ULL;
		event->records[i].to = ~0ULL;
		event->records[i].flags = ~0ULL;
		/* Else this is a memset(), which BPF has not got. */
		barrier();
	}
	event->sort = sort;
	event->cpu = bpf_get_smp_processor_id();
	event->taken = bpf_get_branch_snapshot(event->records,
					       MAX_RECORDS * sizeof(struct record), 0);
	/* User space looks anyway: no wakeup from wherever this is. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
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
	return take(TRACEPOINT);
}

SEC("raw_tp/sys_exit")
int on_return(void *ctx)
{
	return take(RAW_TRACEPOINT);
}

SEC("perf_event")
int on_overflow(void *ctx)
{
	return take(PERF_EVENT);
}

/* While another snapshot reads the records. */
SEC("fentry/brbe_read_entries")
int on_read(void *ctx)
{
	return take(NESTED);
}

char LICENSE[] SEC("license") = "GPL";
