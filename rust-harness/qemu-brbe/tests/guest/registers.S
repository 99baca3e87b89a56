/*
 * Every register and instruction: what can be read, what can be written, what is
 * UNDEFINED; and what BRB INJ makes of what was written. The handler counts
 * exceptions in x22 and goes on behind the instruction.
 */
#include "registers.inc"

/* Prints how many of the instructions until then were UNDEFINED. */
.macro	count name
	print_string "= \name"
	mov	x22, xzr
.endm
.macro	counted
	show	x22
.endm

.macro	inject inf
	ldr	x0, =(\inf)
	msr	BRBINFINJ_EL1, x0
	BRB_INJ
.endm

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	adr	x0, vectors
	msr	vbar_el1, x0
	isb

	count "records-are-read"
	.set	n, 0
	.rept	32
	record_register 0, n, 0
	record_register 1, n, 0
	record_register 2, n, 0
	.set	n, n + 1
	.endr
	counted

	count "records-are-not-written"
	msr	S2_1_C8_C0_0, x0
	msr	S2_1_C8_C0_1, x0
	msr	S2_1_C8_C0_2, x0
	msr	S2_1_C8_C15_4, x0
	msr	S2_1_C8_C15_5, x0
	msr	S2_1_C8_C15_6, x0
	msr	BRBIDR0_EL1, x0
	counted

	count "no-such-register"
	mrs	x0, S2_1_C8_C0_3
	mrs	x0, S2_1_C8_C15_7
	mrs	x0, S2_1_C9_C0_3
	mrs	x0, S2_1_C9_C1_3
	mrs	x0, S2_1_C9_C2_1
	mrs	x0, S2_1_C9_C3_0
	counted

	/* All 64 bits of these are there. */
	print_string "= whole"
	mov	x1, #-1
	msr	BRBTS_EL1, x1
	mrs	x0, BRBTS_EL1
	bl	print_value
	mov	x1, #-1
	msr	BRBSRCINJ_EL1, x1
	mrs	x0, BRBSRCINJ_EL1
	bl	print_value
	mov	x1, #-1
	msr	BRBTGTINJ_EL1, x1
	mrs	x0, BRBTGTINJ_EL1
	bl	print_value

	/* Fields that VALID, CCU and TYPE make RES0. VALID of 0 is no record. */
	print_string "= injected"
	mov	x0, #0x1111
	msr	BRBSRCINJ_EL1, x0
	mov	x0, #0x2222
	msr	BRBTGTINJ_EL1, x0
	inject	0xfffffffffffffffc
	inject	0xfffffffffffffffd
	inject	0xfffffffffffffffe
	inject	0xffffffffffffffff
	inject	0x00003fff000008e3	// a conditional branch, CC, EL3, MPRED
	bl	print_records

	/* 40 of 64: the youngest is record 0, the 33rd is the first of bank 1. */
	print_string "= bank0"
	BRB_IALL
	mov	x0, #3
	msr	BRBINFINJ_EL1, x0
	mov	x9, #1
1:	msr	BRBSRCINJ_EL1, x9
	msr	BRBTGTINJ_EL1, x9
	BRB_INJ
	add	x9, x9, #1
	cmp	x9, #41
	b.ne	1b
	bl	print_records
	print_string "= bank1"
	ldr	x0, =BANK1
	msr	BRBFCR_EL1, x0
	isb
	bl	print_records
	msr	BRBFCR_EL1, xzr
	b	finish

	.balign	0x800
vectors:
	.skip	0x200
	add	x22, x22, #1
	mrs	x17, elr_el1
	add	x17, x17, #4
	msr	elr_el1, x17
	eret
	.balign	0x800

#include "printing.inc"
