/*
 * A second CPU, switched on, off and on again by PSCI: what its BRBE holds after
 * that. It writes what it finds to memory; the first CPU waits and prints.
 */
#include "registers.inc"

#define CPU_OFF       0x84000002
#define CPU_ON        0xc4000003
#define AFFINITY_INFO 0xc4000004

/*
 * Switches the second CPU on at \entry, and waits until it has been there and is
 * off again.
 */
.macro	run_second entry
	ldr	x0, =CPU_ON
	mov	x1, #1
	adr	x2, \entry
	mov	x3, xzr
	hvc	#0
	adr	x9, there
1:	ldr	x0, [x9]
	cbz	x0, 1b
	str	xzr, [x9]
1:	ldr	x0, =AFFINITY_INFO
	mov	x1, #1
	mov	x2, xzr
	hvc	#0
	cmp	x0, #1			// OFF
	b.ne	1b
.endm

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	run_second enable
	run_second look
	print_string "= second"
	adr	x19, found
	.irp	n, 0, 1, 2
	ldr	x20, [x19, #(8 * \n)]
	show	x20
	.endr
	b	finish

/* Records branches, and goes with recording enabled. */
enable:	BRB_IALL
	mov	x0, #EXBRE
	msr	BRBCR_EL1, x0
	ldr	x0, =ALL_TYPES
	msr	BRBFCR_EL1, x0
	isb
	b	1f
1:	mrs	x0, BRBCR_EL1
	adr	x1, found
	str	x0, [x1]
SECOND_LAST: b	off

look:	mrs	x0, BRBCR_EL1
	adr	x1, found
	str	x0, [x1, #8]
	mrs	x0, BRBSRC0_EL1
	str	x0, [x1, #16]
	b	off

off:	mov	x0, #1
	adr	x1, there
	str	x0, [x1]
	ldr	x0, =CPU_OFF
	hvc	#0
	b	.

	.balign	8
there:	.quad	0
found:	.quad	0, -1, 0

#include "printing.inc"
