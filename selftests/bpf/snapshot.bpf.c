// SPDX-License-Identifier: GPL-2.0
/*
 * Takes a branch snapshot when array_map_alloc_check() has just refused a map.
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "record.h"

/* A power of two: user space checks that the machine has no more CPUs. */
#define MAX_CPUS 512

struct event {
	__s64 return_value;
	/* What the helper returned: bytes written, or a negative error. */
	__s64 taken;
	__u32 cpu;
	__u32 pid;
	struct record records[MAX_RECORDS];
};

/* The process whose map creation is of interest. */
const volatile __u32 target_pid;

/* Events that found no room in the ring buffer. */
__u64 dropped;

/*
 * One slot for each CPU and not a per-CPU map: an index into an array needs no
 * branch, and each branch before the snapshot costs a record. The slot is this
 * invocation's own although a task can be preempted here: migration is
 * disabled, and the trampoline does not enter a program that is active on this
 * CPU already.
 */
struct event slots[MAX_CPUS];

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

SEC("fexit/array_map_alloc_check")
int BPF_PROG(on_alloc_check, union bpf_attr *attr, int ret)
{
	/* No branch either: every JIT with a snapshot inlines this. */
	__u32 cpu = bpf_get_smp_processor_id() & (MAX_CPUS - 1);
	struct event *event = &slots[cpu];

	/*
	 * Before anything is decided: a helper call, a comparison, all that
	 * could branch would push out the oldest record.
	 */
	event->taken = bpf_get_branch_snapshot(event->records,
					       sizeof(event->records), 0);
	event->pid = bpf_get_current_pid_tgid() >> 32;
	if (ret != -EINVAL || event->pid != target_pid)
		return 0;

	event->return_value = ret;
	event->cpu = cpu;
	if (bpf_ringbuf_output(&events, event, sizeof(*event), 0))
		__sync_fetch_and_add(&dropped, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
