use super::*;

/// Tables D19-4 to D19-10, opcode by opcode. Words from `llvm-mc -mattr=+all`.
#[test]
fn opcodes_by_table() {
    let direct = |kind, offset| {
        Some(Decoded::Direct {
            kind,
            offset,
            condition: None,
        })
    };
    let indirect = |kind| Some(Decoded::Indirect(kind));
    for (word, expected) in [
        (0x1400_0002, direct(BranchKind::Direct, 8)),
        (0x17ff_ffff, direct(BranchKind::Direct, -4)),
        (0x97ff_fffe, direct(BranchKind::DirectCall, -8)),
        (0xd61f_03c0, indirect(BranchKind::Indirect)), // br x30
        (0xd71f_0801, indirect(BranchKind::Indirect)), // braa x0, x1
        (0xd61f_081f, indirect(BranchKind::Indirect)), // braaz x0
        (0xd71f_0c1f, indirect(BranchKind::Indirect)), // brab x0, sp
        (0xd61f_0c1f, indirect(BranchKind::Indirect)), // brabz x0
        (0xd63f_0020, indirect(BranchKind::IndirectCall)), // blr x1
        (0xd73f_0801, indirect(BranchKind::IndirectCall)), // blraa x0, x1
        (0xd63f_081f, indirect(BranchKind::IndirectCall)), // blraaz x0
        (0xd73f_0c01, indirect(BranchKind::IndirectCall)), // blrab x0, x1
        (0xd63f_0c1f, indirect(BranchKind::IndirectCall)), // blrabz x0
        (0xd65f_0000, indirect(BranchKind::Return)),   // ret x0
        (0xd65f_03c0, indirect(BranchKind::Return)),   // ret
        (0xd65f_0bff, indirect(BranchKind::Return)),   // retaa
        (0xd65f_0fff, indirect(BranchKind::Return)),   // retab
        (0x5500_005f, indirect(BranchKind::Return)),   // retaasppc .-8
        (0x5520_005f, indirect(BranchKind::Return)),   // retabsppc .-8
        (0xd65f_0be3, indirect(BranchKind::Return)),   // retaasppcr x3
        (0xd65f_0fe3, indirect(BranchKind::Return)),   // retabsppcr x3
        (0xd69f_03e0, Some(Decoded::ExceptionReturn)), // eret
        (0xd69f_0bff, Some(Decoded::ExceptionReturn)), // eretaa
        (0xd69f_0fff, Some(Decoded::ExceptionReturn)), // eretab
        (0xd6bf_03e0, None),                           // drps
        (0xd503_3fdf, None),                           // isb
        (0xd503_201f, None),                           // nop
        (0xd400_0001, None),                           // svc #0
        (0xd400_0002, None),                           // hvc #0
        (0xd400_0003, None),                           // smc #0
        (0xd420_0000, None),                           // brk #0
        (0x0000_0000, None),                           // udf #0
    ] {
        assert_eq!(decode(word), expected, "{word:#010x}");
    }
}

/// Each form of conditional branch, and how far it goes.
#[test]
fn conditional_branches_by_table() {
    for (word, distance) in [
        (0x5400_0040, 8),               // b.eq
        (0x5400_004e, 8),               // b.al: conditional all the same
        (0x5400_0051, 8),               // bc.ne
        (0x54ff_ffe0, -4),              // b.eq
        (0x3400_0040, 8),               // cbz w0
        (0xb5ff_ffc0, -8),              // cbnz x0
        (0xb740_0041, 8),               // tbnz x1, #40
        (0x3607_ffe0, -4),              // tbz w0, #0
        (0x7401_0040, 8),               // cbgt w0, w1
        (0xf403_0040 | 0x1ff << 5, -4), // cbgt x0, x3
        (0x75c0_0040, 8),               // cbeq w0, #0
    ] {
        let Some(Decoded::Direct { kind, offset, .. }) = decode(word) else {
            panic!("{word:#010x} is no direct branch");
        };
        assert_eq!(
            (kind, offset),
            (BranchKind::Conditional, distance),
            "{word:#010x}"
        );
    }
}

fn taken(word: u32, nzcv: u32, x: u64) -> bool {
    let Some(Decoded::Direct {
        kind: BranchKind::Conditional,
        condition,
        ..
    }) = decode(word)
    else {
        panic!("{word:#010x} is no conditional branch");
    };
    condition.is_some_and(|condition| condition.holds(nzcv, |_| x))
}

/// ConditionHolds: each condition over all sixteen values of NZCV.
#[test]
fn b_cond_by_the_flags() {
    for flags in 0..16_u32 {
        let (n, z, c, v) = (
            flags & 8 != 0,
            flags & 4 != 0,
            flags & 2 != 0,
            flags & 1 != 0,
        );
        let expected = [
            z,
            !z,
            c,
            !c,
            n,
            !n,
            v,
            !v,
            c && !z,
            !c || z,
            n == v,
            n != v,
            !z && n == v,
            z || n != v,
            true,
            true,
        ];
        for (condition, expected) in (0..16).zip(expected) {
            assert_eq!(taken(0x5400_0040 | condition, flags << 28, 0), expected);
        }
    }
}

#[test]
fn compare_and_branch_on_zero_and_on_a_bit() {
    assert!(taken(0x3400_0040, 0, 1 << 32)); // cbz w0
    assert!(!taken(0xb400_0040, 0, 1 << 32)); // cbz x0
    assert!(taken(0xb500_0040, 0, 1 << 32)); // cbnz x0
    assert!(taken(0xb400_005f, 0, 1)); // cbz xzr
    assert!(taken(0x3718_0040, 0, 1 << 3)); // tbnz w0, #3
    assert!(taken(0xb618_0040, 0, 1 << 3)); // tbz x0, #35
    assert!(!taken(0xb618_0040, 0, 1 << 35));
}

#[test]
fn compare_and_branch_on_a_comparison() {
    let word = |top: u32, test: u32, low: u32| top << 24 | test << 21 | low | 2 << 5;
    let minus_one = u64::MAX;
    assert!(!taken(word(0xf5, 0, 0), 0, minus_one)); // cbgt x0, #0
    assert!(taken(word(0xf5, 1, 0), 0, minus_one)); // cblt x0, #0
    assert!(taken(word(0xf5, 2, 0), 0, minus_one)); // cbhi x0, #0
    assert!(taken(word(0x75, 6, 5 << 15), 0, 1 << 32 | 5)); // cbeq w0, #5
    assert!(taken(word(0x74, 6, 2 << 14 | 31 << 16), 0, 0x100)); // cbbeq w0, wzr
    assert!(!taken(word(0x74, 6, 3 << 14 | 31 << 16), 0, 0x100)); // cbheq w0, wzr
    assert!(taken(word(0x74, 7, 3 << 14 | 31 << 16), 0, 0x100)); // cbhne w0, wzr
    assert_eq!(decode(word(0xf4, 6, 2 << 14)), None);
    assert_eq!(decode(word(0x75, 4, 0)), None);
}

/// Each comparison of two values of each width that are below, the same and above, with either
/// sign: as the two numbers compare that the registers hold.
#[test]
fn comparisons_are_those_of_numbers() {
    for (width, forms) in [
        (8, 0x74_8000),
        (16, 0x74_c000),
        (32, 0x74_0000),
        (64, 0xf4_0000),
    ] {
        let word = |test: u32| (forms & 0xff_0000) << 8 | test << 21 | 1 << 16 | forms & 0xffff;
        let top = 1_u64 << (width - 1);
        let numbers = [0, 1, top - 1, top, top + 1, top + (top - 1)];
        // What is above the width is not looked at.
        let above = if width == 64 { 0 } else { 5 << width };
        for (left, right) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
            let signed = |number: u64| i128::from(number) - i128::from(number & top) * 2;
            for (test, expected) in [
                (0, signed(left) > signed(right)),
                (1, signed(left) >= signed(right)),
                (2, left > right),
                (3, left >= right),
                (6, left == right),
                (7, left != right),
            ] {
                let word = word(test) | 2 << 5;
                let Some(Decoded::Direct {
                    condition: Some(condition),
                    ..
                }) = decode(word)
                else {
                    panic!("{word:#010x} is no comparison");
                };
                let holds = condition.holds(0, |register| match register {
                    0 => left | above,
                    _ => right,
                });
                assert_eq!(holds, expected, "{word:#010x}: {left:#x}, {right:#x}");
            }
        }
    }
}

/// Each immediate of CB\<cc\>, against the numbers around it (LT and LO have no form with two
/// registers).
#[test]
fn comparisons_with_each_immediate() {
    for immediate in 0..64_u32 {
        let number = u64::from(immediate);
        for (x, is_below) in [
            (number, false),
            (number + 1, false),
            (number.wrapping_sub(1), number > 0),
        ] {
            let word = |test: u32| 0xf5 << 24 | test << 21 | immediate << 15 | 2 << 5;
            assert_eq!(taken(word(3), 0, x), is_below, "cblo {x:#x}, {immediate}");
            assert_eq!(
                taken(word(6), 0, x),
                x == number,
                "cbeq {x:#x}, {immediate}"
            );
            let is_less = x != number && x != number + 1;
            assert_eq!(taken(word(1), 0, x), is_less, "cblt {x:#x}, {immediate}");
        }
    }
}
