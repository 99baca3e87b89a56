//! The type filters: each bit, in both senses.

use crate::run::*;

/// The kinds in the order of the guest's branches, with their filters' bits.
const KINDS: [(u64, u32); 6] = [
    (DIRECT, 17),
    (DIRECT_LINK, 21),
    (INDIRECT, 18),
    (INDIRECT_LINK, 20),
    (RETURN, 19),
    (CONDITIONAL, 22),
];

#[test]
fn each_filter_selects_its_kind_or_all_others() {
    let run = Run::new("filters.S", "", "");
    let types = |case: &str| -> Vec<u64> {
        let records = run.records(case);
        records.iter().rev().map(|r| r[0] >> 8 & 0x3f).collect()
    };
    let kinds = |wanted: &dyn Fn(u32) -> bool| -> Vec<u64> {
        let selected = KINDS.iter().filter(|(_, bit)| wanted(*bit));
        selected.map(|(kind, _)| *kind).collect()
    };
    for bit in 17..=22 {
        assert_eq!(types(&format!("match-{bit}")), kinds(&|b| b == bit));
        assert_eq!(types(&format!("other-{bit}")), kinds(&|b| b != bit));
    }
    for case in ["all-match", "all-other"] {
        assert_eq!(types(case), kinds(&|_| true), "{case}");
    }
    for case in ["none-match", "none-other", "paused", "disabled"] {
        assert_eq!(types(case), [], "{case}");
    }
}
