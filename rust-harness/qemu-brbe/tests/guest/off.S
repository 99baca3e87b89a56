/* Records branches until PSCI switches the machine off. */
#include "registers.inc"

#define SYSTEM_OFF 0x84000008

	.section .text
	.global _start
_start:
	adr	x0, stack_top
	mov	sp, x0
	begin	"off", EXBRE, ALL_TYPES
OFF_SRC: b	OFF_CALL
OFF_CALL: bl	OFF_FUNCTION
OFF_NEXT: ldr	x0, =SYSTEM_OFF
	hvc	#0
	b	.

OFF_FUNCTION: ret

#include "printing.inc"
