/*
 * Exceptions between two instructions, at EL1: software steps of EL0, and a branch to
 * where there is no landing pad. EL0 has its step at x9, and the handler ends it.
 */
#include "registers.inc"

#define SPSR_SS (1 << 21)

/* Runs x9 at EL0, for one step if SPSR x8 says so, until a step exception. */
.macro	step name, brbcr, label
	begin	"\name", (\brbcr), ALL_TYPES
	adr	x9, \label
	bl	user
	end
.endm

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	adr	x0, vectors
	msr	vbar_el1, x0
	msr	oslar_el1, xzr
	mov	x0, #1			// MDSCR_EL1.SS
	msr	mdscr_el1, x0
	isb

	/* The step ends at what the branch leads to. */
	step	"step-branch", E0BRE | EXCEPTION | ERTN | CC, STEP_SRC
	/* The SVC is the step. Its handler returns to where the next exception is due. */
	step	"step-call", E0BRE | EXCEPTION | ERTN | CC, STEP_CALL

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
	adr	x30, PAD_NEXT
PAD_SRC: br	x9
PAD_NEXT:
	mrs	x0, sctlr_el1
	bic	x0, x0, #1
	msr	sctlr_el1, x0
	isb
	end
	b	finish

PAD_TGT: ret

user:	mov	x28, x30
	ldr	x8, =(0x3c0 | SPSR_SS)	// EL0, all masked
	msr	elr_el1, x9
	msr	spsr_el1, x8
	isb
USER_ERET: eret

STEP_SRC: b	STEP_TGT
	nop
STEP_TGT: ret

STEP_CALL: svc	#0
STEP_CALL_NEXT: ret

	.balign	0x800
vectors:
	.skip	0x200
VECTOR_SAME:				// of a Branch Target exception
	mrs	x16, spsr_el1
	bic	x16, x16, #(3 << 10)	// BTYPE
	msr	spsr_el1, x16
	msr	elr_el1, x30
	eret
	.balign	0x400
	mrs	x16, esr_el1
	ubfx	x17, x16, #26, #6
	cmp	x17, #0x15		// SVC
	b.ne	1f
	eret
1:	ldr	x0, =PAUSED
	msr	BRBFCR_EL1, x0
	mov	x30, x28
	ret
	.balign	0x800

	/* The gigabyte that the program is in: a block, guarded, and accessed. */
	.balign	4096
level1:	.quad	0, 0x40000000 | 1 << 50 | 3 << 8 | 1 << 10 | 1
	.skip	510 * 8

#include "printing.inc"
