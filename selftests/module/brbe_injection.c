// SPDX-License-Identifier: GPL-2.0
/*
 * Fills BRBE with a record of user space's choice, and calls a function that can be
 * traced, when user space writes the record to a parameter: BRBINF, BRBSRC and BRBTGT,
 * in hexadecimal digits. For the guest test "unknown-level".
 */
#include <linux/btf.h>
#include <linux/kernel.h>
#include <linux/module.h>

#include <asm/barrier.h>
#include <asm/daifflags.h>
#include <asm/sysreg.h>

/* The most records that BRBE has. */
#define MAX_RECORDS 64

__bpf_hook_start();

/* What programs are attached to. */
noinline int brbe_injected(void)
{
	barrier();
	return 0;
}

__bpf_hook_end();

static int inject(const char *record, const struct kernel_param *kp)
{
	u64 brbinf, brbsrc, brbtgt, brbcr;
	unsigned long flags;

	if (sscanf(record, "%llx %llx %llx", &brbinf, &brbsrc, &brbtgt) != 3)
		return -EINVAL;

	/* No handler of an overflow changes BRBCR_EL1 meanwhile. */
	flags = local_daif_save();
	brbcr = read_sysreg_s(SYS_BRBCR_EL1);

	/* Where branches are recorded, it is open whether BRB INJ injects (Arm ARM, BRB INJ). */
	write_sysreg_s(0, SYS_BRBCR_EL1);
	isb();

	for (int i = 0; i < MAX_RECORDS; i++) {
		/* BRB INJ leaves these registers unknown. */
		write_sysreg_s(brbinf, SYS_BRBINFINJ_EL1);
		write_sysreg_s(brbsrc, SYS_BRBSRCINJ_EL1);
		write_sysreg_s(brbtgt, SYS_BRBTGTINJ_EL1);
		asm volatile(BRB_INJ_INSN);
	}
	isb();

	write_sysreg_s(brbcr, SYS_BRBCR_EL1);
	isb();
	local_daif_restore(flags);

	brbe_injected();
	return 0;
}

static const struct kernel_param_ops ops = {
	.set = inject,
};
module_param_cb(inject, &ops, NULL, 0200);

MODULE_DESCRIPTION("Records of user space's choice in BRBE");
MODULE_LICENSE("GPL");
