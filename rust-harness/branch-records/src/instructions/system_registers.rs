//! Names of system registers.

/// The instruction `MRS` or `MSR` as text, if `word` is one (Arm ARM, C6.2, "MRS", "MSR (register)"
/// and "MSR (immediate)").
pub(super) fn text(word: u32) -> Option<String> {
    of_field(word).or_else(|| of_register(word))
}

/// An `MSR` of a number into a field of PSTATE.
fn of_field(word: u32) -> Option<String> {
    if word & 0xfff8_f01f != 0xd500_401f {
        return None;
    }
    let field = match (word >> 16 & 7, word >> 5 & 7) {
        (0, 3) => "uao",
        (0, 4) => "pan",
        (0, 5) => "spsel",
        (3, 1) => "ssbs",
        (3, 2) => "dit",
        (3, 4) => "tco",
        (3, 6) => "daifset",
        (3, 7) => "daifclr",
        _ => return None,
    };
    Some(format!("msr {field}, #{:#x}", word >> 8 & 0xf))
}

fn of_register(word: u32) -> Option<String> {
    if word & 0xffd0_0000 != 0xd510_0000 {
        return None;
    }
    let register = name(word);
    let general = match word & 0x1f {
        31 => "xzr".to_owned(),
        number => format!("x{number}"),
    };
    let reads = word & 1 << 21 != 0;
    Some(if reads {
        format!("mrs {general}, {register}")
    } else {
        format!("msr {register}, {general}")
    })
}

/// The name of the system register that `MRS` or `MSR` encodes; for a register that is not in
/// [`NAMES`], its encoding in the form that assemblers read.
fn name(word: u32) -> String {
    let field = |first: u32, bits: u32| word >> first & ((1 << bits) - 1);
    let [op0, op1, crn, crm, op2] = [
        2 + field(19, 1),
        field(16, 3),
        field(12, 4),
        field(8, 4),
        field(5, 3),
    ];
    // Thirty-two registers each, by number (Arm ARM, "BRBINF<n>_EL1").
    if (op0, op1, crn) == (2, 1, 8)
        && let Some(name) = ["brbinf", "brbsrc", "brbtgt"].get(op2 as usize & 3)
    {
        return format!("{name}{}_el1", crm | (op2 & 4) << 2);
    }
    let known = NAMES
        .iter()
        .find(|(fields, _)| *fields == [op0, op1, crn, crm, op2]);
    match known {
        Some((_, name)) => (*name).to_owned(),
        None => format!("s{op0}_{op1}_c{crn}_c{crm}_{op2}"),
    }
}

/// The registers that the kernel's paths read and write most, by op0, op1, CRn, CRm and op2 (Arm
/// ARM, D24.2).
const NAMES: [([u32; 5], &str); 64] = [
    ([2, 0, 0, 2, 2], "mdscr_el1"),
    ([2, 1, 9, 0, 0], "brbcr_el1"),
    ([2, 1, 9, 0, 1], "brbfcr_el1"),
    ([2, 1, 9, 0, 2], "brbts_el1"),
    ([2, 1, 9, 2, 0], "brbidr0_el1"),
    ([3, 0, 0, 0, 0], "midr_el1"),
    ([3, 0, 0, 0, 5], "mpidr_el1"),
    ([3, 0, 1, 0, 0], "sctlr_el1"),
    ([3, 0, 1, 0, 2], "cpacr_el1"),
    ([3, 0, 2, 0, 0], "ttbr0_el1"),
    ([3, 0, 2, 0, 1], "ttbr1_el1"),
    ([3, 0, 2, 0, 2], "tcr_el1"),
    ([3, 0, 2, 1, 0], "apiakeylo_el1"),
    ([3, 0, 2, 1, 1], "apiakeyhi_el1"),
    ([3, 0, 4, 0, 0], "spsr_el1"),
    ([3, 0, 4, 0, 1], "elr_el1"),
    ([3, 0, 4, 1, 0], "sp_el0"),
    ([3, 0, 4, 2, 0], "spsel"),
    ([3, 0, 4, 2, 2], "currentel"),
    ([3, 0, 4, 2, 3], "pan"),
    ([3, 0, 4, 6, 0], "icc_pmr_el1"),
    ([3, 0, 5, 2, 0], "esr_el1"),
    ([3, 0, 6, 0, 0], "far_el1"),
    ([3, 0, 7, 4, 0], "par_el1"),
    ([3, 0, 9, 14, 1], "pmintenset_el1"),
    ([3, 0, 9, 14, 2], "pmintenclr_el1"),
    ([3, 0, 12, 0, 0], "vbar_el1"),
    ([3, 0, 12, 1, 0], "isr_el1"),
    ([3, 0, 12, 11, 1], "icc_dir_el1"),
    ([3, 0, 12, 11, 3], "icc_rpr_el1"),
    ([3, 0, 12, 11, 5], "icc_sgi1r_el1"),
    ([3, 0, 12, 12, 0], "icc_iar1_el1"),
    ([3, 0, 12, 12, 1], "icc_eoir1_el1"),
    ([3, 0, 13, 0, 1], "contextidr_el1"),
    ([3, 0, 13, 0, 4], "tpidr_el1"),
    ([3, 0, 14, 1, 0], "cntkctl_el1"),
    ([3, 3, 0, 0, 1], "ctr_el0"),
    ([3, 3, 0, 0, 7], "dczid_el0"),
    ([3, 3, 2, 5, 1], "gcspr_el0"),
    ([3, 3, 4, 2, 0], "nzcv"),
    ([3, 3, 4, 2, 1], "daif"),
    ([3, 3, 4, 4, 0], "fpcr"),
    ([3, 3, 4, 4, 1], "fpsr"),
    ([3, 3, 9, 12, 0], "pmcr_el0"),
    ([3, 3, 9, 12, 1], "pmcntenset_el0"),
    ([3, 3, 9, 12, 2], "pmcntenclr_el0"),
    ([3, 3, 9, 12, 3], "pmovsclr_el0"),
    ([3, 3, 9, 12, 5], "pmselr_el0"),
    ([3, 3, 9, 13, 0], "pmccntr_el0"),
    ([3, 3, 9, 13, 1], "pmxevtyper_el0"),
    ([3, 3, 9, 13, 2], "pmxevcntr_el0"),
    ([3, 3, 9, 14, 0], "pmuserenr_el0"),
    ([3, 3, 9, 14, 3], "pmovsset_el0"),
    ([3, 3, 13, 0, 2], "tpidr_el0"),
    ([3, 3, 13, 0, 3], "tpidrro_el0"),
    ([3, 3, 14, 0, 0], "cntfrq_el0"),
    ([3, 3, 14, 0, 1], "cntpct_el0"),
    ([3, 3, 14, 0, 2], "cntvct_el0"),
    ([3, 3, 14, 0, 6], "cntvctss_el0"),
    ([3, 3, 14, 2, 1], "cntp_ctl_el0"),
    ([3, 3, 14, 2, 2], "cntp_cval_el0"),
    ([3, 3, 14, 3, 1], "cntv_ctl_el0"),
    ([3, 3, 14, 3, 2], "cntv_cval_el0"),
    ([3, 4, 13, 0, 2], "tpidr_el2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_names_where_they_are_known() {
        // Words from `llvm-mc -mattr=+brbe`.
        for (word, expected) in [
            (0xd538_4116, "mrs x22, sp_el0"),
            (0xd518_4035, "msr elr_el1, x21"),
            (0xd518_cc34, "msr icc_eoir1_el1, x20"),
            (0xd503_4fdf, "msr daifset, #0xf"),
            (0xd503_41df, "msr daifset, #0x1"),
            (0xd503_42ff, "msr daifclr, #0x2"),
            (0xd500_417f, "msr uao, #0x1"),
            (0xd500_419f, "msr pan, #0x1"),
            (0xd500_41bf, "msr spsel, #0x1"),
            (0xd503_413f, "msr ssbs, #0x1"),
            (0xd503_415f, "msr dit, #0x1"),
            (0xd503_419f, "msr tco, #0x1"),
            (0xd531_9025, "mrs x5, brbfcr_el1"),
            (0xd531_8f9f, "mrs xzr, brbinf31_el1"),
            (0xd531_8020, "mrs x0, brbsrc0_el1"),
            (0xd531_8f5f, "mrs xzr, brbtgt15_el1"),
            (0xd531_80c0, "mrs x0, brbtgt16_el1"),
            (0xd518_f200, "msr s3_0_c15_c2_0, x0"),
        ] {
            assert_eq!(text(word).as_deref(), Some(expected));
        }
        // sys #0x1, c7, c2, #0x4 (BRB IALL), and nop.
        assert_eq!(text(0xd509_729f), None);
        assert_eq!(text(0xd503_201f), None);
    }
}
