/* SPDX-License-Identifier: GPL-2.0 */
#ifndef RECORD_H
#define RECORD_H

#include <linux/types.h>

/* The most records that any hardware keeps and this code asks for. */
#define MAX_RECORDS 64

/*
 * struct perf_branch_entry, whose bit fields user space takes apart: the
 * programs only carry them.
 */
struct record {
	__u64 from;
	__u64 to;
	__u64 flags;
};

#endif /* RECORD_H */
