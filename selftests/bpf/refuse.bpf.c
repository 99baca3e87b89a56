// SPDX-License-Identifier: GPL-2.0
/*
 * A program that refuses what it is given, for a tracer to show why, and one that does something
 * else on CPU 0 than on others.
 */
#include <asm-generic/errno-base.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#define MIN_LENGTH 32
#define MAX_PRIORITY 7

/* Keeps the checks apart: each is a branch of its own. */
#define barrier() asm volatile("" ::: "memory")

static __noinline int check_packet(struct __sk_buff *skb)
{
	if (skb->len < MIN_LENGTH)
		return -EINVAL;
	barrier();
	if (skb->mark == 0)
		return -EPERM;
	barrier();
	if (skb->priority > MAX_PRIORITY)
		return -ERANGE;
	return 0;
}

SEC("tc")
int refuse_packet(struct __sk_buff *skb)
{
	return check_packet(skb) ? TC_ACT_SHOT : TC_ACT_OK;
}

unsigned int on_cpu_0, elsewhere;

static __noinline int count_packet(struct __sk_buff *skb)
{
	if (bpf_get_smp_processor_id() == 0) {
		barrier();
		on_cpu_0++;
	} else {
		barrier();
		elsewhere++;
	}
	return skb->len;
}

SEC("tc")
int count_packets(struct __sk_buff *skb)
{
	return count_packet(skb) ? TC_ACT_OK : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
