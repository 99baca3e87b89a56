// SPDX-License-Identifier: GPL-2.0
/*
 * Calls a function that can be traced with interrupts enabled, and masked in two ways,
 * when user space writes to a parameter. For the guest test "raw-section".
 */
#include <linux/btf.h>
#include <linux/irqflags.h>
#include <linux/lockdep.h>
#include <linux/module.h>
#include <linux/sysfs.h>

/* In the order of the names. */
enum section {
	SECTION_ENABLED,
	SECTION_MASKED,
	SECTION_RAW,
};

static const char *const names[] = {
	[SECTION_ENABLED] = "enabled",
	[SECTION_MASKED] = "masked",
	[SECTION_RAW] = "raw",
};

__bpf_hook_start();

/* What programs are attached to. */
noinline int brbe_section(int section)
{
	barrier();
	return section;
}

__bpf_hook_end();

static int enter(const char *name, const struct kernel_param *kp)
{
	int section = sysfs_match_string(names, name);
	unsigned long flags;

	switch (section) {
	case SECTION_ENABLED:
		brbe_section(section);
		return 0;
	case SECTION_MASKED:
		local_irq_save(flags);
		brbe_section(section);
		local_irq_restore(flags);
		return 0;
	case SECTION_RAW:
		/*
		 * Nobody is told of this, and lockdep would complain of the locks that
		 * are taken on the way into a program: not of this task.
		 */
		lockdep_off();
		raw_local_irq_save(flags);
		brbe_section(section);
		raw_local_irq_restore(flags);
		lockdep_on();
		return 0;
	default:
		return section;
	}
}

static const struct kernel_param_ops ops = {
	.set = enter,
};
module_param_cb(enter, &ops, NULL, 0200);

MODULE_DESCRIPTION("Sections in which interrupts are masked, or not");
MODULE_LICENSE("GPL");
