/*
 * EL3 (secure=on), and EL1 below it: who records where, by MDCR_EL3.SBRBE and
 * E3BREW, and who may look.
 */
#include "registers.inc"

#define SBRBE(n)  ((n) << 32)
#define E3BREW    (1 << 37)
#define E3BREC    (1 << 38)

/* As begin, with MDCR_EL3. */
.macro	begin_el3 name, mdcr, brbcr, brbfcr
	ldr	x0, =(\mdcr)
	msr	mdcr_el3, x0
	begin	"\name", (\brbcr), (\brbfcr)
.endm

/* EL1 takes a branch and calls EL3, with recording there allowed. */
.macro	round_trip name, mdcr
	begin_el3 "\name", (\mdcr), EXBRE | EXCEPTION | ERTN, ALL_TYPES
	adr	x9, EL1
	bl	at_el1
	end
.endm

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	adr	x0, vectors
	msr	vbar_el3, x0
	adr	x0, vectors_el1
	msr	vbar_el1, x0
	ldr	x0, =(1 << 0 | 1 << 8 | 1 << 10)	// SCR_EL3: NS, HCE, RW
	msr	scr_el3, x0
	isb

	begin_el3 "el3", SBRBE(3) | E3BREW, 0, ALL_TYPES
EL3_SRC: b	EL3_TGT
EL3_TGT:
	end
	/* Both bits are as neither. */
	begin_el3 "el3-both", SBRBE(3) | E3BREW | E3BREC, 0, ALL_TYPES
	b	1f
1:	end
	/* What allows recording below EL3 says nothing of EL3. */
	begin_el3 "el3-off", SBRBE(3), EXBRE, ALL_TYPES
	b	1f
1:	end

	/* MDCR_EL3 comes last, and alone makes BRBE record. */
	begin_el3 "el3-late", SBRBE(3), 0, ALL_TYPES
	ldr	x0, =(SBRBE(3) | E3BREW)
	msr	mdcr_el3, x0
	isb
LATE_SRC: b	LATE_TGT
LATE_TGT:
	end

	round_trip "round", SBRBE(3) | E3BREW
	round_trip "round-below", SBRBE(3)
	round_trip "round-prohibited", SBRBE(0)
	round_trip "round-secure-prohibited", SBRBE(1)
	round_trip "round-no-trap-bit", SBRBE(2)
	round_trip "round-el3", SBRBE(0) | E3BREW

	/*
	 * Accesses from EL1. Where the architecture has them trap to EL3 they are
	 * UNDEFINED here, and so end in EL1's own vector: 2.
	 */
	print_string "= accesses"
	.irp	value, 0, 1, 2, 3
	ldr	x0, =SBRBE(\value)
	msr	mdcr_el3, x0
	mov	x21, #0
	adr	x9, EL1_ACCESS
	bl	at_el1
	show	x21
	.endr
	b	finish

/* Runs x9 at EL1 until it makes an SMC; returns to x30. */
at_el1:	mov	x28, x30
	msr	elr_el3, x9
	mov	x0, #0x3c5		// EL1h, all masked
	msr	spsr_el3, x0
	isb
EL3_ERET: eret

EL1:	b	EL1_TGT
EL1_TGT: smc	#0
EL1_NEXT:
EL1_ACCESS: mrs	x0, BRBIDR0_EL1
	mov	x21, #1
	smc	#0

	.balign	0x800
vectors:
	.balign	0x400
	.skip	0x400
VECTOR_EL3:
	br	x28
	.balign	0x800
vectors_el1:
	.skip	0x200
	mov	x21, #2
	smc	#0
	.balign	0x800

#include "printing.inc"
