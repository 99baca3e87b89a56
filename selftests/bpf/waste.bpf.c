// SPDX-License-Identifier: GPL-2.0
/*
 * A snapshot by each sort of program, and nothing before it: what of a snapshot is
 * not the traced function's is what the kernel spends on running the program.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "record.h"

struct record records[MAX_RECORDS];

/* What the helper returned. */
__s64 taken;

#define TAKES_A_SNAPSHOT(name, section)						\
	SEC(section) int name(void *ctx)					\
	{									\
		taken = bpf_get_branch_snapshot(records, sizeof(records), 0);	\
		return 0;							\
	}

TAKES_A_SNAPSHOT(on_fentry, "fentry/bpf_fentry_test1")
TAKES_A_SNAPSHOT(on_fexit, "fexit/bpf_fentry_test1")
TAKES_A_SNAPSHOT(on_fmod_ret, "fmod_ret/bpf_modify_return_test")
TAKES_A_SNAPSHOT(on_kprobe, "kprobe/bpf_fentry_test1")
TAKES_A_SNAPSHOT(on_kretprobe, "kretprobe/bpf_fentry_test1")
TAKES_A_SNAPSHOT(on_kprobe_multi, "kprobe.multi/bpf_fentry_test1")
TAKES_A_SNAPSHOT(on_kretprobe_multi, "kretprobe.multi/bpf_fentry_test1")
TAKES_A_SNAPSHOT(on_tp_btf, "tp_btf/task_rename")
TAKES_A_SNAPSHOT(on_raw_tp, "raw_tp/task_rename")
TAKES_A_SNAPSHOT(on_tracepoint, "tp/task/task_rename")
TAKES_A_SNAPSHOT(on_uprobe, "uprobe")

/* Run by BPF_PROG_TEST_RUN, these have the kernel call the functions above. */
SEC("fentry/bpf_fentry_test1")
int call_function(void *ctx)
{
	return 0;
}

SEC("fmod_ret/bpf_modify_return_test")
int call_modified(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
