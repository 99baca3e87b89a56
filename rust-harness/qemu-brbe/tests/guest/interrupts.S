/*
 * Interrupts, from the virtual timer through a GICv3, at EL1. The handler takes no
 * branch: it skips as many bytes as x20 says and returns.
 */
#include "registers.inc"

#define GICD            0x08000000
#define GICR            0x080a0000
#define GICR_SGI        0x080b0000
#define ICC_IAR1_EL1    S3_0_C12_C12_0
#define ICC_EOIR1_EL1   S3_0_C12_C12_1
#define ICC_SRE_EL1     S3_0_C12_C12_5
#define ICC_IGRPEN1_EL1 S3_0_C12_C12_7
#define ICC_PMR_EL1     S3_0_C4_C6_0
#define TIMER           27

/* An interrupt after a moment. */
.macro	arm_timer
	mov	x0, #0x10000
	msr	cntv_tval_el0, x0
	mov	x0, #1
	msr	cntv_ctl_el0, x0
.endm

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	adr	x0, vectors
	msr	vbar_el1, x0
	mov	x0, #7
	msr	ICC_SRE_EL1, x0
	isb
	ldr	x1, =GICD
	mov	w0, #0x13		// both groups, affinity routing
	str	w0, [x1]
	ldr	x1, =GICR
	ldr	w0, [x1, #0x14]		// GICR_WAKER
	bic	w0, w0, #2
	str	w0, [x1, #0x14]
	ldr	x1, =GICR_SGI
	mov	w0, #-1
	str	w0, [x1, #0x80]		// GICR_IGROUPR0: group 1
	mov	w0, #(1 << TIMER)
	str	w0, [x1, #0x100]	// GICR_ISENABLER0
	mov	x0, #0xff
	msr	ICC_PMR_EL1, x0
	mov	x0, #1
	msr	ICC_IGRPEN1_EL1, x0
	isb

	/* A branch to itself, until the interrupt. */
	mov	x20, #4
	begin "self", EXBRE | EXCEPTION | ERTN, ALL_TYPES
	arm_timer
	msr	daifclr, #2
SELF:	b	SELF
SELF_NEXT:
	end
	msr	daifset, #2

	/* A conditional one. */
	begin "self-conditional", EXBRE | EXCEPTION | ERTN, ALL_TYPES
	mov	x9, #1
	arm_timer
	msr	daifclr, #2
SELF_COND: cbnz	x9, SELF_COND
SELF_COND_NEXT:
	end
	msr	daifset, #2

	mov	x20, #0
	/* Waiting is no branch, and what was waited for is taken where it is unmasked. */
	begin "unmasked", EXBRE | EXCEPTION | ERTN, ALL_TYPES
	arm_timer
	wfi
UNMASKED_SRC: b	UNMASKED
UNMASKED: msr	daifclr, #2
UNMASKED_NEXT: nop
	end
	msr	daifset, #2

	/* A call that an interrupt comes in the middle of. */
	bl	CALLED
RETURNED: b	finish

CALLED:	arm_timer
	wfi
	msr	daifclr, #2
INTERRUPTED: nop
	msr	daifset, #2
	ret

	.balign	0x800
vectors:
	.balign	0x80
	b	.
	.balign	0x80
	b	.
	.balign	0x200
	b	.
	.balign	0x80
VECTOR_IRQ:
	mrs	x16, ICC_IAR1_EL1
	msr	cntv_ctl_el0, xzr
	isb
	msr	ICC_EOIR1_EL1, x16
	mrs	x17, elr_el1
	add	x17, x17, x20
	msr	elr_el1, x17
IRQ_ERET: eret
	.balign	0x800

#include "printing.inc"
