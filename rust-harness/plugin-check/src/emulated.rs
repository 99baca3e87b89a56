//! The instructions that the plugin executes in QEMU's place.

/// An instruction that the plugin executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// An access to BRBE: registers S2_1_C8_Cm_n, S2_\<n\>_C9_Cm_n and the
    /// instructions `SYS #1, C7, C2, #4` and `#5`.
    Brbe,
    /// A read of an ID register, `MRS Xt, ID_AA64DFR0_EL1`.
    Id,
}

/// Which of the plugin's instructions `word` is. `None` if QEMU executes it.
pub const fn emulated(word: u32) -> Option<Emulated> {
    // The name of the register or of the instruction: the word without the direction and Rt.
    match (word >> 5) & 0x1_ffff {
        // 1101 0101 00L1 0 op1 CRn CRm op2: op0 is 2.
        name if word >> 22 == 0x354 && (name >> 14) & 3 == 2 => {
            let (op1, crn, crm) = ((name >> 11) & 7, (name >> 7) & 15, (name >> 3) & 15);
            match (op1, crn, crm) {
                (1, 8, _) if name & 3 != 3 => Some(Emulated::Brbe),
                (1, 9, 0..=1) if name & 7 <= 2 => Some(Emulated::Brbe),
                (1, 9, 2) | (4 | 5, 9, 0) if name & 7 == 0 => Some(Emulated::Brbe),
                _ => None,
            }
        }
        _ if word == 0xd509_729f || word == 0xd509_72bf => Some(Emulated::Brbe),
        _ if word & 0xffff_ffe0 == 0xd538_0500 => Some(Emulated::Id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plugin_executes() {
        for (word, expected) in [
            (0xd531_9000, Some(Emulated::Brbe)), // mrs x0, brbcr_el1
            (0xd511_9021, Some(Emulated::Brbe)), // msr brbfcr_el1, x1
            (0xd514_9001, Some(Emulated::Brbe)), // msr brbcr_el2, x1
            (0xd515_9001, Some(Emulated::Brbe)), // msr brbcr_el12, x1
            (0xd531_8f80, Some(Emulated::Brbe)), // mrs x0, brbinf31_el1
            (0xd531_8060, None),                 // no such register
            (0xd531_9200, Some(Emulated::Brbe)), // mrs x0, brbidr0_el1
            (0xd509_729f, Some(Emulated::Brbe)), // brb iall
            (0xd509_72bf, Some(Emulated::Brbe)), // brb inj
            (0xd538_0503, Some(Emulated::Id)),   // mrs x3, id_aa64dfr0_el1
            (0xd538_0520, None),                 // mrs x0, id_aa64dfr1_el1
            (0xd530_0240, None),                 // mrs x0, mdscr_el1
        ] {
            assert_eq!(emulated(word), expected, "{word:#010x}");
        }
    }
}
