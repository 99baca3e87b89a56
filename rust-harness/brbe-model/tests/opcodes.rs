//! Tests which words are branches, by a table of the encodings of the Arm ARM (chapters
//! C4 and C6) that is as plain as they are: bits that are fixed, and their values.

use brbe_model::{BranchKind, Decoded, decode};
use proptest::prelude::*;
use proptest::sample::select;

/// What a word is, as far as the table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Branch(BranchKind),
    ExceptionReturn,
}

use BranchKind::{Conditional, Direct, DirectCall, Indirect, IndirectCall, Return};
use Kind::{Branch, ExceptionReturn};

const TABLE: [(u32, u32, Kind); 21] = [
    (0xfc00_0000, 0x1400_0000, Branch(Direct)),       // B
    (0xfc00_0000, 0x9400_0000, Branch(DirectCall)),   // BL
    (0xff00_0000, 0x5400_0000, Branch(Conditional)),  // B.cond, BC.cond
    (0x7e00_0000, 0x3400_0000, Branch(Conditional)),  // CBZ, CBNZ
    (0x7e00_0000, 0x3600_0000, Branch(Conditional)),  // TBZ, TBNZ
    (0x7f00_c000, 0x7400_0000, Branch(Conditional)),  // CB<cc> (register)
    (0xff00_8000, 0x7400_8000, Branch(Conditional)),  // CBB<cc>, CBH<cc>
    (0x7f00_4000, 0x7500_0000, Branch(Conditional)),  // CB<cc> (immediate)
    (0xffff_fc1f, 0xd61f_0000, Branch(Indirect)),     // BR
    (0xffff_f81f, 0xd61f_081f, Branch(Indirect)),     // BRAAZ, BRABZ
    (0xffff_f800, 0xd71f_0800, Branch(Indirect)),     // BRAA, BRAB
    (0xffff_fc1f, 0xd63f_0000, Branch(IndirectCall)), // BLR
    (0xffff_f81f, 0xd63f_081f, Branch(IndirectCall)), // BLRAAZ, BLRABZ
    (0xffff_f800, 0xd73f_0800, Branch(IndirectCall)), // BLRAA, BLRAB
    (0xffff_fc1f, 0xd65f_0000, Branch(Return)),       // RET
    (0xffff_fbff, 0xd65f_0bff, Branch(Return)),       // RETAA, RETAB
    (0xffff_fbe0, 0xd65f_0be0, Branch(Return)),       // RETAASPPCR, RETABSPPCR
    (0xffe0_001f, 0x5500_001f, Branch(Return)),       // RETAASPPC
    (0xffe0_001f, 0x5520_001f, Branch(Return)),       // RETABSPPC
    (0xffff_ffff, 0xd69f_03e0, ExceptionReturn),      // ERET
    (0xffff_fbff, 0xd69f_0bff, ExceptionReturn),      // ERETAA, ERETAB
];

fn by_table(word: u32) -> Option<Kind> {
    // FEAT_CMPBR has no comparisons 4 and 5.
    let compares = word & 0x7e00_0000 == 0x7400_0000;
    if compares && matches!(word >> 21 & 7, 4 | 5) {
        return None;
    }
    let row = TABLE.iter().find(|(mask, value, _)| word & mask == *value);
    row.map(|(.., kind)| *kind)
}

fn by_model(word: u32) -> Option<Kind> {
    decode(word).map(|decoded| match decoded {
        Decoded::Direct { kind, .. } | Decoded::Indirect(kind) => Branch(kind),
        Decoded::ExceptionReturn => ExceptionReturn,
    })
}

/// Any word, or a word that differs from a branch in a few bits at the most.
fn words() -> impl Strategy<Value = u32> {
    let near = (
        select(&TABLE[..]),
        any::<u32>(),
        0..4_usize,
        any::<[u32; 3]>(),
    )
        .prop_map(|((mask, value, _), free, flips, places)| {
            let word = value | free & !mask;
            places[..flips]
                .iter()
                .fold(word, |word, place| word ^ 1 << (place % 32))
        });
    prop_oneof![1 => any::<u32>(), 9 => near]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_word_is_the_branch_that_the_table_says(word in words()) {
        prop_assert_eq!(by_model(word), by_table(word), "{:#010x}", word);
    }
}
