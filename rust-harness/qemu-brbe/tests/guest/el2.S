/*
 * EL2 that is no VHE host. With secure=on the program begins at EL3, and goes to EL2.
 */
#include "registers.inc"

	.section .text
	.global _start
_start:
	msr	mdcr_el2, xzr		// before anything that the plugin looks at
	adr	x0, stack_top
	mov	sp, x0
	mrs	x0, CurrentEL
	cmp	x0, #(3 << 2)
	b.ne	at_el2
	ldr	x0, =(1 << 0 | 1 << 8 | 1 << 10)	// SCR_EL3: NS, HCE, RW
	msr	scr_el3, x0
	ldr	x0, =(3 << 32)		// MDCR_EL3.SBRBE
	msr	mdcr_el3, x0
	adr	x0, at_el2
	msr	elr_el3, x0
	mov	x0, #0x3c9		// EL2h, all masked
	msr	spsr_el3, x0
	eret
at_el2:
	adr	x0, stack_top
	mov	sp, x0

	print_string "= brbcr_el2"
	mov	x0, #CC
	msr	BRBCR_EL2, x0
	mrs	x0, BRBCR_EL2
	bl	print_value
	b	finish

#include "printing.inc"
