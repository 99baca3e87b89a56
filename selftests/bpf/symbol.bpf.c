// SPDX-License-Identifier: GPL-2.0
/* Finds the address of a symbol of the kernel. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The symbol's name; the last byte is 0. */
char name[64];

__u64 address;

SEC("syscall")
int find(void *ctx)
{
	return bpf_kallsyms_lookup_name(name, sizeof(name), 0, &address);
}

char LICENSE[] SEC("license") = "GPL";
