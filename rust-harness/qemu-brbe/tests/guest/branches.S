/*
 * A guest without an operating system: each case records something and prints
 * the records, newest first. It starts at EL1, or at EL2 with
 * virtualization=on: there it makes itself a VHE host, so that the _EL1 names
 * below reach EL2's registers and the same code runs. The labels in capitals
 * are the addresses that branches.rs expects to see.
 */
#include "registers.inc"

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	mrs	x0, CurrentEL
	cmp	x0, #(2 << 2)
	b.ne	1f
	mov	x0, #(1 << 34)		// HCR_EL2.E2H
	orr	x0, x0, #(1 << 27)	// HCR_EL2.TGE
	msr	hcr_el2, x0
	isb
1:	adr	x0, vectors
	msr	vbar_el1, x0
	mov	x0, #(3 << 20)		// no trap of floating point: unused, but defined
	msr	cpacr_el1, x0
	isb

	print_string "= id"
	mrs	x0, id_aa64dfr0_el1
	ubfx	x0, x0, #52, #4
	bl	print_value
	mrs	x1, id_aa64dfr0_el1
	ubfx	x1, x1, #52, #4
	cbz	x1, no_brbe
	mrs	x0, BRBIDR0_EL1
	bl	print_value

	/* RES0 bits of the registers that can be written. */
	print_string "= masks"
	mov	x0, #PAUSED		// record nothing while every bit is set
	msr	BRBFCR_EL1, x0
	mov	x1, #-1
	msr	BRBCR_EL1, x1
	mrs	x0, BRBCR_EL1
	msr	BRBCR_EL1, xzr
	bl	print_value
	mov	x1, #-1
	msr	BRBFCR_EL1, x1
	mrs	x0, BRBFCR_EL1
	bl	print_value
	mov	x1, #-1
	msr	BRBINFINJ_EL1, x1
	mrs	x0, BRBINFINJ_EL1
	bl	print_value

	/* Every kind of branch, with BRB IALL before it. */
	begin "branches", EXBRE, ALL_TYPES
B_SRC:	b	B_TGT
	nop
B_TGT:
BL_SRC:	bl	FUNCTION
BL_NEXT:
	adr	x9, BR_TGT
BR_SRC:	br	x9
	nop
BR_TGT:	adr	x9, FUNCTION
BLR_SRC: blr	x9
BLR_NEXT:
	cmp	xzr, xzr
BEQ_SRC: b.eq	BEQ_TGT
	nop
BEQ_TGT: b.ne	no_brbe			// not taken
	mov	x9, #4
	cbz	x9, no_brbe		// not taken
CBNZ_SRC: cbnz	w9, CBNZ_TGT
	nop
CBNZ_TGT: tbnz	x9, #1, no_brbe		// not taken
TBNZ_SRC: tbnz	x9, #2, TBNZ_TGT
	nop
TBNZ_TGT:
	end

	/* To the next instruction: only a taken branch is one. */
	begin "next", EXBRE, ALL_TYPES
	cmp	xzr, xzr
	mov	x9, #1
	b.ne	1f
1:	cbz	x9, 2f
2:	tbz	x9, #0, NEXT_SRC
NEXT_SRC: b	NEXT_TGT
NEXT_TGT: b.eq	NEXT_TGT2
NEXT_TGT2: cbnz	x9, NEXT_TGT3
NEXT_TGT3:
	end

	/* At the end of a page, and over a page without a branch. */
	b	pages
	.balign	4096
	.skip	4096 - 4
PAGE_SRC: b	PAGE_TGT
PAGE_TGT:
	.rept	1030
	nop
	.endr
LONG_SRC: b	LONG_TGT
	nop
LONG_TGT: b	pages_done
pages:	begin "pages", EXBRE, ALL_TYPES
PAGES_SRC: b	PAGE_SRC
pages_done:
	end

	begin "conditional", EXBRE, CONDDIR
	b	1f
1:	mov	x9, #3
LOOP:	sub	x9, x9, #1
LOOP_SRC: cbnz	x9, LOOP
	bl	FUNCTION
	end

	begin "but-conditional", EXBRE, CONDDIR | ENI
	mov	x9, #3
2:	sub	x9, x9, #1
	cbnz	x9, 2b
NOTCOND_SRC: b	NOTCOND_TGT
NOTCOND_TGT:
	end

	/* Pointer authentication with the keys in use. */
	mrs	x0, sctlr_el1
	orr	x0, x0, #(1 << 31)	// EnIA
	msr	sctlr_el1, x0
	isb
	begin "authenticated", EXBRE, ALL_TYPES
	adr	x9, AUTH
	paciza	x9
BLRAAZ_SRC: blraaz x9
BLRAAZ_NEXT:
	end

	/* To the same Exception level and back. */
	begin "svc", EXBRE | EXCEPTION | ERTN, 0
	svc	#0
SVC_NEXT:
	end

	begin "svc-without-exception", EXBRE | ERTN, 0
	svc	#0
SVC2_NEXT:
	end

	begin "undefined", EXBRE | EXCEPTION, 0
	mov	x0, xzr
UNDEF_SRC: msr	BRBINF0_EL1, x0
BRK_SRC: brk	#1
	end

	/* An indirect branch to where nothing can be fetched: two records. */
	begin "abort", EXBRE | EXCEPTION, ALL_TYPES
	mov	x9, #2			// not aligned
	adr	x30, ABORT_NEXT
ABORT_SRC: br	x9
ABORT_NEXT:
	end

	/* EL0, by what may be recorded where. */
	begin "user-all", EXBRE | E0BRE | EXCEPTION | ERTN, ALL_TYPES
	adr	x9, USER_ALL
	bl	user
	end
	begin "user-only", E0BRE | EXCEPTION | ERTN, ALL_TYPES
	adr	x9, USER_ONLY
	bl	user
	end
	begin "kernel-only", EXBRE | EXCEPTION | ERTN, ENI | ALL_TYPES
	adr	x9, USER_KERNEL
	bl	user
	end
	begin "user-undefined", EXBRE, ENI | ALL_TYPES
	adr	x9, USER_UNDEF
	bl	user
	end

	/* AArch32 is a prohibited region, and none of its words means BRBE. */
	begin "aarch32", EXBRE | E0BRE | EXCEPTION | ERTN, 0
	adr	x9, A32
	mov	x8, #0x10		// SPSR_EL1.M: User mode
	bl	user_in
	end

	/* A return to AArch32 at EL1, which is illegal, goes on in AArch64. */
	begin "illegal", EXBRE | EXCEPTION | ERTN, 0
	adr	x9, ILLEGAL_TGT
	msr	elr_el1, x9
	mov	x8, #0x3d3		// SPSR_EL1.M: Supervisor mode
	msr	spsr_el1, x8
	isb
ILLEGAL_SRC: eret
	nop
ILLEGAL_TGT: nop
	end

	begin "hvc", EXBRE | EXCEPTION | ERTN, 0
	mov	x0, xzr			// no function of PSCI's
HVC_SRC: hvc	#0
HVC_NEXT: nop
	end

	/*
	 * QEMU leaves the block at the access to the device and comes back behind
	 * it, to where the branch leads too: that is not the branch yet.
	 */
	begin "device", EXBRE, ALL_TYPES
	ldr	x10, =UART_FLAGS
	mov	x9, #3
DEVICE_SRC: b	DEVICE
DEVICE:	ldr	w0, [x10]
DEVICE_LOOP: sub x9, x9, #1
DEVICE_BACK: cbnz x9, DEVICE_LOOP
	end

	begin "buffer", EXBRE, ALL_TYPES
	mov	x9, #1000
3:	sub	x9, x9, #1
	cbnz	x9, 3b
	end
	ldr	x0, =(PAUSED | BANK1)
	msr	BRBFCR_EL1, x0
	print_string "= bank1"
	bl	print_records
	print_string "= iall"
	BRB_IALL
	bl	print_records
	msr	BRBFCR_EL1, xzr
	bl	print_records

	print_string "= inject"
	ldr	x0, =0x1234
	msr	BRBSRCINJ_EL1, x0
	ldr	x0, =0x5678
	msr	BRBTGTINJ_EL1, x0
	ldr	x0, =((0x105 << 32) | (5 << 8) | (1 << 6) | 3)
	msr	BRBINFINJ_EL1, x0
	BRB_INJ
	mov	x0, #(0x23 << 8 | 2)	// source only
	msr	BRBINFINJ_EL1, x0
	BRB_INJ
	bl	print_records

	/* Counts of cycles: a cycle is an instruction. */
	begin "cycles", EXBRE | CC, ALL_TYPES
	b	4f
4:	nop
	nop
	b	5f
5:	.rept	600
	nop
	.endr
	b	6f
6:
	end

	/* A counter that has overflowed freezes, whatever clears PAUSED. */
	msr	BRBTS_EL1, xzr
	begin "freeze", EXBRE | FZP, ALL_TYPES
FREEZE_SRC: b	FREEZE_TGT
FREEZE_TGT: mov	x0, #1
	msr	pmovsset_el0, x0
	b	7f			// not recorded
7:	mrs	x19, BRBFCR_EL1
	mrs	x20, BRBTS_EL1
	ldr	x0, =ALL_TYPES
	msr	BRBFCR_EL1, x0		// the flag is still set
	mrs	x21, BRBFCR_EL1
	mov	x0, #1
	msr	pmovsclr_el0, x0
	msr	BRBFCR_EL1, xzr
	mrs	x22, BRBFCR_EL1
	end
	show x19
	cmp	x20, xzr
	cset	x20, ne
	show x20
	show x21
	show x22

	/* The flag is cleared before another branch: it froze all the same. */
	begin "freeze-between", EXBRE | FZP, ALL_TYPES
	mov	x0, #1
	msr	pmovsset_el0, x0
	msr	pmovsclr_el0, x0
	mrs	x19, BRBFCR_EL1
	end
	show x19

	/* The cycle counter's flag does not freeze. */
	begin "no-freeze", EXBRE | FZP, ALL_TYPES
	mov	x0, #(1 << 31)
	msr	pmovsset_el0, x0
NOFREEZE_SRC: b	NOFREEZE_TGT
NOFREEZE_TGT: mrs x19, BRBFCR_EL1
	msr	pmovsclr_el0, x0
	end
	show x19

	/* Names of BRBCR: at EL1 those of EL2 are UNDEFINED. */
	print_string "= names"
	mov	x0, #EXBRE
	msr	BRBCR_EL1, x0
	mov	x0, #-1
	mrs	x0, BRBCR_EL2
	bl	print_value
	mov	x0, #-1
	mrs	x0, BRBCR_EL12
	bl	print_value
	mrs	x0, BRBCR_EL1
	bl	print_value

no_brbe:
	print_string "= none"
	mov	x0, #-1
	mrs	x0, BRBIDR0_EL1		// UNDEFINED where there is no BRBE
	bl	print_value
	b	finish

FUNCTION:
RET_SRC: ret

AUTH:	paciasp
RETAA_SRC: retaa

/* Runs x9 at EL0, as SPSR x8 says, until it makes an SVC; returns to x30. */
user:	mov	x8, xzr
user_in: mov	x28, x30
	msr	elr_el1, x9
	msr	spsr_el1, x8
	isb
USER_ERET: eret

USER_ALL: b	USER_ALL2
USER_ALL2: svc	#1
USER_ALL_NEXT:
USER_ONLY: bl	USER_ONLY2
USER_ONLY2: svc	#1
USER_ONLY_NEXT:
USER_KERNEL: b	USER_KERNEL2
USER_KERNEL2: svc #1
USER_KERNEL_NEXT:
USER_UNDEF: mrs	x0, BRBIDR0_EL1
	svc	#1
	/* The first three are not executed, for their condition (LE) is false. */
A32:	eret				// as a word of A64
	BRB_IALL
	mrs	x0, id_aa64dfr0_el1
	.inst	0xef000001		// svc #1

/*
 * SVC #0 and all else return behind the instruction, without a branch; SVC #1
 * ends what user() started; a branch to a bad address returns to x30. An instruction in
 * Illegal Execution state is executed again.
 */
.macro	vector
	.balign	0x80
	mrs	x16, esr_el1
	ubfx	x17, x16, #26, #6
	cmp	x17, #0x15		// SVC, of A64
	b.eq	handle_svc
	cmp	x17, #0x11		// and of A32
	b.eq	handle_svc
	cmp	x17, #0x16		// HVC
	b.eq	handle_svc
	cmp	x17, #0x22
	b.eq	handle_alignment
	cmp	x17, #0x0e
	b.eq	handle_illegal
	mrs	x17, elr_el1
	add	x17, x17, #4
	msr	elr_el1, x17
	eret
.endm

	.balign	0x800
vectors:
	vector
	vector
	vector
	vector
	.balign	0x80
VECTOR_SAME:
	vector
	vector
	vector
	vector
	.balign	0x80
VECTOR_LOWER:
	vector
	vector
	vector
	vector
	.balign	0x80
VECTOR_AARCH32:
	vector
	.balign	0x80

handle_svc:
	and	x16, x16, #0xffff
	cbnz	x16, 1f
HANDLER_ERET: eret
1:	ldr	x0, =PAUSED
	msr	BRBFCR_EL1, x0
	br	x28

handle_illegal:
	mrs	x17, spsr_el1
	bic	x17, x17, #(1 << 20)	// IL
	msr	spsr_el1, x17
HANDLER_ILLEGAL: eret

handle_alignment:
	msr	elr_el1, x30
	eret

#include "printing.inc"
