/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Before drivers/perf/arm_brbe.c, where it is part of a module. A module has one
 * initcall, that of the other driver: it calls this one.
 */
#include <linux/init.h>
#include <linux/module.h>

int brbe_init(void);

#undef core_initcall
#define core_initcall(fn) int __init brbe_init(void) { return fn(); }
