/*
 * Each filter of BRBFCR_EL1 in both senses, over one branch of every kind. The
 * types say which were recorded; the order is that of the branches below.
 */
#include "registers.inc"

.macro	one_of_each
	b	.Lb\@
.Lb\@:	bl	.Lc\@
.Lc\@:	adr	x9, .Ld\@
	br	x9
.Ld\@:	adr	x9, .Le\@
	blr	x9
.Le\@:	adr	x30, .Lf\@
	ret
.Lf\@:	cbz	xzr, .Lg\@
.Lg\@:
.endm

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	.irp	bit, 17, 18, 19, 20, 21, 22
	begin "match-\bit", EXBRE, 1 << \bit
	one_of_each
	end
	begin "other-\bit", EXBRE, 1 << \bit | ENI
	one_of_each
	end
	.endr
	begin "all-match", EXBRE, ALL_TYPES
	one_of_each
	end
	begin "all-other", EXBRE, ENI
	one_of_each
	end
	begin "none-match", EXBRE, 0
	one_of_each
	end
	begin "none-other", EXBRE, ALL_TYPES | ENI
	one_of_each
	end
	begin "paused", EXBRE, ALL_TYPES | PAUSED
	one_of_each
	end
	begin "disabled", E0BRE, ALL_TYPES
	one_of_each
	end
	b	finish

#include "printing.inc"
