//! Memory copy and memory set instructions, which the decoder does not know (FEAT_MOPS; Arm ARM,
//! C4.1, "Memory Copy and Memory Set").

/// What a copy is told of the accesses: by `op2`, bits 15 to 12.
const OF_COPIES: [&str; 16] = [
    "", "wt", "rt", "t", "wn", "wtwn", "rtwn", "twn", "rn", "wtrn", "rtrn", "trn", "n", "wtn",
    "rtn", "tn",
];
/// What a set is told of the accesses: by bits 13 and 12.
const OF_SETS: [&str; 4] = ["", "t", "n", "tn"];
/// The three instructions that do the work one after the other: prologue, main part and epilogue.
const STAGES: [&str; 3] = ["p", "m", "e"];

/// The text of the instruction `word`, if it copies or sets memory.
pub(super) fn text(word: u32) -> Option<String> {
    if word & 0xfb20_0c00 != 0x1900_0400 {
        return None;
    }
    let field = |first: u32, bits: u32| (word >> first & ((1 << bits) - 1)) as usize;
    let is_second = field(26, 1) == 1;
    let [to, length, from] = [field(0, 5), field(5, 5), field(16, 5)];
    Some(match STAGES.get(field(22, 2)) {
        Some(stage) => {
            let name = if is_second { "cpy" } else { "cpyf" };
            let option = OF_COPIES[field(12, 4)];
            format!("{name}{stage}{option} [x{to}]!, [x{from}]!, x{length}!")
        }
        None => {
            let name = if is_second { "setg" } else { "set" };
            let (stage, option) = (STAGES.get(field(14, 2))?, OF_SETS[field(12, 2)]);
            let from = match from {
                31 => "xzr".to_owned(),
                number => format!("x{number}"),
            };
            format!("{name}{stage}{option} [x{to}]!, x{length}!, {from}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_sets_have_names() {
        // Words from `llvm-mc -mattr=+mops,+mte`.
        for (word, expected) in [
            (0x1901_2446, "cpyfprt [x6]!, [x1]!, x2!"),
            (0x1941_2446, "cpyfmrt [x6]!, [x1]!, x2!"),
            (0x1981_1446, "cpyfewt [x6]!, [x1]!, x2!"),
            (0x1903_04a7, "cpyfp [x7]!, [x3]!, x5!"),
            (0x1d83_f4a7, "cpyetn [x7]!, [x3]!, x5!"),
            (0x19c3_04a7, "setp [x7]!, x5!, x3"),
            (0x1dc3_b4a7, "setgetn [x7]!, x5!, x3"),
        ] {
            assert_eq!(text(word).as_deref(), Some(expected));
        }
        // ldr x0, [x1], ret and nop.
        for word in [0xf940_0020, 0xd65f_03c0, 0xd503_201f] {
            assert_eq!(text(word), None);
        }
    }
}
