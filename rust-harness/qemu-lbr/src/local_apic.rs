//! The vCPU's local APIC: where the interrupt of an overflow goes (SDM, volume 3A,
//! "Advanced Programmable Interrupt Controller").

use qemu_plugin::registers::Buffer;

/// Where it is after a reset; nobody moves it.
const BASE: u64 = 0xfee0_0000;
/// The interrupt command register, bits 31:0.
const COMMAND: u64 = BASE + 0x300;
/// The entry for performance monitoring in the local vector table.
const PERFORMANCE: u64 = BASE + 0x340;

/// Of both: vector and delivery mode.
const WHAT: u32 = 0x7ff;
/// Of the entry.
const MASKED: u32 = 1 << 16;
/// Of the command: level assert, to this processor.
const ASSERT: u32 = 1 << 14;
const TO_SELF: u32 = 1 << 18;

/// Raises the interrupt that the entry asks for, and masks it, as hardware does.
pub(crate) fn raise_performance_interrupt(memory: &Buffer) {
    if let Some((command, entry)) = memory.read_physical(PERFORMANCE).and_then(raised) {
        memory.write_physical(PERFORMANCE, entry);
        memory.write_physical(COMMAND, command);
    }
}

/// The command that has the interrupt of `entry` delivered here, and what the entry is
/// then.
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
