//! The vCPU's local APIC: where the interrupt of an overflow goes (SDM, volume 3A,
//! "Advanced Programmable Interrupt Controller").

use qemu_plugin::registers::Buffer;

/// The physical address of the local APIC after a reset. Software does not move it.
const BASE: u64 = 0xfee0_0000;
/// The address of the interrupt command register, bits 31:0.
const COMMAND: u64 = BASE + 0x300;
/// The address of the entry for performance monitoring in the local vector table.
const PERFORMANCE: u64 = BASE + 0x340;

/// The bits of both registers that hold the vector and the delivery mode.
const WHAT: u32 = 0x7ff;
/// The bit of the entry that masks its interrupt.
const MASKED: u32 = 1 << 16;
/// `ASSERT` and `TO_SELF` are bits of the command: level assert, and to this CPU.
const ASSERT: u32 = 1 << 14;
const TO_SELF: u32 = 1 << 18;

/// Raises the interrupt that the entry for performance monitoring asks for, and masks the
/// entry, as hardware does.
pub(crate) fn raise_performance_interrupt(memory: &Buffer) {
    if let Some((command, entry)) = memory.read_physical(PERFORMANCE).and_then(raised) {
        memory.write_physical(PERFORMANCE, entry);
        memory.write_physical(COMMAND, command);
    }
}

/// The command that has the interrupt of `entry` delivered to this CPU, and what the
/// entry is then. `None` if the entry is masked.
fn raised(entry: u32) -> Option<(u32, u32)> {
    (entry & MASKED == 0).then_some((entry & WHAT | ASSERT | TO_SELF, entry | MASKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_says_what_is_raised() {
        // NMI, as Linux wants it.
        assert_eq!(raised(0x400), Some((0x4_4400, 0x1_0400)));
        // Vector 0xfe.
        assert_eq!(raised(0xfe), Some((0x4_40fe, 0x1_00fe)));
        assert_eq!(raised(0x1_0400), None);
    }
}
