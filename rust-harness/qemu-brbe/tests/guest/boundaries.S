/*
 * Exceptions between two instructions, at EL1: software steps, a branch to where there is
 * no landing pad, and Illegal Execution state. What is tried runs at x9, and the handler
 * ends it: it leaves ESR_EL1, ELR_EL1 and SPSR_EL1 in x18, x19 and x21.
 */
#include "registers.inc"

#define SPSR_IL   (1 << 20)
#define SPSR_SS   (1 << 21)
#define SPSR_USER 0x3c0			// EL0, all masked
#define SPSR_EL1H 0x1c5			// EL1, all masked but debug exceptions

/* Runs a step at EL0, and prints its records. */
.macro	step name, label
	begin	"\name", E0BRE | EXCEPTION | ERTN | CC, ALL_TYPES
	adr	x9, \label
	ldr	x8, =(SPSR_USER | SPSR_SS)
	bl	enter
	end
.endm

/*
 * Runs what is at label, and prints what ended it: how far behind the label, the class of
 * the exception, BTYPE, and whether the second instruction was executed.
 */
.macro	try name, spsr, label
	print_string "= \name"
	mov	x20, xzr
	adr	x9, \label
	ldr	x8, =(\spsr)
	bl	enter
	adr	x9, \label
	sub	x0, x19, x9
	bl	print_value
	lsr	x0, x18, #26
	bl	print_value
	ubfx	x0, x21, #10, #2
	bl	print_value
	show	x20
.endm

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	adr	x0, vectors
	msr	vbar_el1, x0
	msr	oslar_el1, xzr
	mov	x0, #(1 << 0 | 1 << 13)	// MDSCR_EL1: SS, KDE
	msr	mdscr_el1, x0
	isb

	/* The step ends at what the branch leads to. */
	step	"step-branch", STEP_SRC
	/* The SVC is the step. Its handler returns to where the next exception is due. */
	step	"step-call", STEP_CALL

	/* Instructions that QEMU does not execute are steps all the same. */
	try	"step-wait", SPSR_USER | SPSR_SS, WAIT
	try	"step-access", SPSR_EL1H | SPSR_SS, ACCESS
	try	"step-id", SPSR_EL1H | SPSR_SS, ID
	msr	mdscr_el1, xzr
	isb
	/* In Illegal Execution state they are not executed. */
	try	"illegal-wait", SPSR_EL1H | SPSR_IL, WAIT
	try	"illegal-access", SPSR_EL1H | SPSR_IL, ACCESS
	try	"illegal-id", SPSR_EL1H | SPSR_IL, ID
	/* After them the branch before is forgotten. */
	try	"branch-wait", SPSR_EL1H, BRANCH_WAIT
	try	"branch-access", SPSR_EL1H, BRANCH_ACCESS

	/* From here on the memory is guarded: an indirect branch needs a landing pad. */
	adr	x0, level1
	msr	ttbr0_el1, x0
	mov	x0, #0xff		// normal memory
	msr	mair_el1, x0
	ldr	x0, =(25 | 1 << 23 | 1 << 32)	// TCR_EL1: T0SZ, EPD1, IPS
	msr	tcr_el1, x0
	isb
	mrs	x0, sctlr_el1
	orr	x0, x0, #1		// M
	msr	sctlr_el1, x0
	isb
	begin	"no-landing-pad", EXBRE | EXCEPTION | CC, ALL_TYPES
	adr	x9, PAD_TGT
	adr	x28, PAD_NEXT
PAD_SRC: br	x9
PAD_NEXT:
	mrs	x0, sctlr_el1
	bic	x0, x0, #1
	msr	sctlr_el1, x0
	isb
	end
	b	finish

PAD_TGT: ret

/* Runs x9 as SPSR x8 says, until an exception. */
enter:	mov	x28, x30
	msr	elr_el1, x9
	msr	spsr_el1, x8
	isb
	eret

STEP_SRC: b	STEP_TGT
	nop
STEP_TGT: ret

STEP_CALL: svc	#0
STEP_CALL_NEXT: ret

WAIT:	wfe
	mov	x20, #1
	brk	#0
ACCESS:	mrs	x0, BRBCR_EL1
	mov	x20, #1
	brk	#0
ID:	mrs	x0, id_aa64dfr0_el1
	mov	x20, #1
	brk	#0

BRANCH_WAIT: adr x10, 1f
	br	x10
1:	wfe
	brk	#0
BRANCH_ACCESS: adr x10, 1f
	br	x10
1:	mrs	x0, BRBCR_EL1
	brk	#0

/* Ends what was entered, without a branch before BRBE is paused. */
.macro	leave
	mrs	x18, esr_el1
	mrs	x19, elr_el1
	mrs	x21, spsr_el1
	ldr	x0, =PAUSED
	msr	BRBFCR_EL1, x0
	ret	x28
.endm

	.balign	0x800
vectors:
	.skip	0x200
VECTOR_SAME:
	leave
	.balign	0x400
	mrs	x16, esr_el1
	ubfx	x17, x16, #26, #6
	cmp	x17, #0x15		// SVC
	b.ne	1f
	eret
1:	leave
	.balign	0x800

	/* The gigabyte that the program is in: a block, guarded, and accessed. */
	.balign	4096
level1:	.quad	0, 0x40000000 | 1 << 50 | 3 << 8 | 1 << 10 | 1
	.skip	510 * 8

#include "printing.inc"
