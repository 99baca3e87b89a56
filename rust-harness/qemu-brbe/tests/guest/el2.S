/*
 * EL2 that is no VHE host. With secure=on the program begins at EL3, and goes to EL2.
 */
#include "registers.inc"

#define CNTPOFF_EL2 S3_4_C14_C0_6
#define VNCR_EL2    S3_4_C2_C2_0

/* BRBCR_EL2.TS: the physical count with the offset. */
#define TS_OFFSET (2 << 5)

#define HCR_RW  (1 << 31)
#define HCR_NV  (1 << 42)
#define HCR_NV2 (1 << 45)

/* EL1, of which BRBCR_EL1 says what is recorded, executes what is at label until an HVC. */
.macro	below name, hcr, brbcr, label
	print_string "= \name"
	BRB_IALL
	ldr	x0, =(HCR_RW | \hcr)
	msr	hcr_el2, x0
	ldr	x0, =(\brbcr)
	msr	BRBCR_EL1, x0
	ldr	x0, =ALL_TYPES
	msr	BRBFCR_EL1, x0
	isb
	adr	x9, \label
	bl	at_el1
	msr	hcr_el2, xzr
	isb
	bl	print_records
.endm

	.section .text
	.global _start
_start:
	msr	mdcr_el2, xzr		// before anything that the plugin looks at
	adr	x0, stack_top
	mov	sp, x0
	mrs	x0, CurrentEL
	cmp	x0, #(3 << 2)
	b.ne	at_el2
	ldr	x0, =(1 << 0 | 1 << 8 | 1 << 10 | 1 << 28)	// SCR_EL3: NS, HCE, RW, ECVEn
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
	adr	x0, vectors
	msr	vbar_el2, x0
	isb

	print_string "= brbcr_el2"
	mov	x0, #CC
	msr	BRBCR_EL2, x0
	mrs	x0, BRBCR_EL2
	bl	print_value
	msr	BRBCR_EL2, xzr

	/* An EL2 register is memory to a hypervisor below this one. */
	adr	x0, vncr
	msr	VNCR_EL2, x0
	below	"stored-register", HCR_NV | HCR_NV2, EXBRE, STORE

	/* An exception from EL1 to EL1: SPSR_EL1 says it is from EL2. */
	adr	x0, vectors_el1
	msr	vbar_el1, x0
	below	"nested", HCR_NV, EXBRE | EXCEPTION, NESTED
	show	x20

	/* Time stamps without and with CNTPOFF_EL2, which CNTHCTL_EL2.ECV switches on. */
	print_string "= time"
	mov	x0, #(1 << 40)
	msr	CNTPOFF_EL2, x0
	.irp	ecv, 0, 1
	mov	x0, #(\ecv << 12)
	msr	cnthctl_el2, x0
	ldr	x0, =(EXBRE | FZP | TS_OFFSET)
	msr	BRBCR_EL2, x0
	msr	BRBFCR_EL1, xzr
	mov	x0, #1
	msr	pmovsset_el0, x0
	isb
	msr	pmovsclr_el0, x0
	mrs	x0, BRBTS_EL1
	bl	print_value
	msr	BRBCR_EL2, xzr
	.endr
	b	finish

STORE:	msr	hcr_el2, x0
STORE_SRC: b	STORE_TGT
STORE_TGT: hvc	#0

NESTED:	brk	#0

/* Runs x9 at EL1 until it makes an HVC; returns to x30. */
at_el1:	mov	x28, x30
	msr	elr_el2, x9
	mov	x0, #0x3c5		// EL1h, all masked
	msr	spsr_el2, x0
	isb
	eret

	.balign	0x800
vectors:
	.skip	0x400
	br	x28
	.balign	0x800
vectors_el1:
	.skip	0x200
VECTOR_SAME:
	mrs	x20, spsr_el1
	hvc	#0
	.balign	0x1000
vncr:	.skip	0x1000

#include "printing.inc"
