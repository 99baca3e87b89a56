/* SPDX-License-Identifier: GPL-2.0 */
/* Before drivers/perf/arm_pmuv3.c, where it is part of a module */
#include <linux/init.h>
#include <linux/module.h>
#include <linux/nmi.h>

int brbe_init(void);

/* It cannot be called after the boot, and no test has to do with it. */
#define lockup_detector_retry_init() do { } while (0)

/* The kernel does not look at what an initcall returns. */
#undef device_initcall
#define device_initcall(fn)						\
	static int __init both_init(void) { brbe_init(); return fn(); }	\
	module_init(both_init);						\
	MODULE_DESCRIPTION("PMUv3 and BRBE");				\
	MODULE_LICENSE("GPL");

/* Mutants whose code is the same differ in the name of their module, which is no difference. */
#undef KBUILD_MODNAME
#define KBUILD_MODNAME "arm_pmuv3"
