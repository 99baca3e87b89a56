//! A64 instructions as text.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand};

use super::{memory, system_registers};
use crate::path::{Flow, flow};

/// The bytes of the pages that `ADRP` counts.
const PAGE: u64 = 4096;

/// The text of the A64 instruction `word` at `address`. `name` is asked for the name of the
/// target of a branch that encodes it. A word that is no known instruction is shown as `.inst`.
pub(super) fn text(word: u32, address: u64, name: &mut dyn FnMut(u64) -> Option<String>) -> String {
    let branch = match flow(word) {
        Flow::Direct { offset, .. } => Some(address.wrapping_add_signed(offset)),
        _ => None,
    };
    let mut place = |target: u64| {
        let known = branch.and_then(|_| name(target));
        known.unwrap_or_else(|| format!("{target:#x}"))
    };
    if let Some(text) = memory::text(word) {
        return text;
    }
    let bytes = word.to_le_bytes();
    let mut reader = U8Reader::new(&bytes);
    let Ok(instruction) = InstDecoder::default().decode(&mut reader) else {
        // Branches of newer architectures.
        let target = branch.map(|target| format!("  // branch to {}", place(target)));
        return format!(".inst {word:#010x}{}", target.unwrap_or_default());
    };
    // The decoder takes register x21 of an `MSR` for x5.
    if let Some(text) = system_registers::text(word) {
        return text;
    }
    if let Some(name) = hint(word) {
        return name.to_owned();
    }
    let text = match unsigned_extension(word) {
        Some(extension) => extended(&instruction.to_string(), &extension),
        None => instruction.to_string(),
    };
    let offset = instruction
        .operands
        .iter()
        .find_map(|operand| match operand {
            Operand::PCOffset(offset) => Some(*offset),
            _ => None,
        });
    let Some(offset) = offset else {
        return text;
    };
    let from = match instruction.opcode {
        Opcode::ADRP => address & !(PAGE - 1),
        _ => address,
    };
    // The decoder writes the distance, as in `$+0x10`.
    match text.split_once('$') {
        Some((before, distance)) => {
            let rest = distance.find(',').map_or("", |end| &distance[end..]);
            format!("{before}{}{rest}", place(from.wrapping_add_signed(offset)))
        }
        None => text,
    }
}

/// The hints whose names the decoder does not know (Arm ARM, C6.2, "HINT").
fn hint(word: u32) -> Option<&'static str> {
    if word & 0xffff_f01f != 0xd503_201f {
        return None;
    }
    match word >> 5 & 0x7f {
        5 => Some("sevl"),
        6 => Some("dgh"),
        22 => Some("clrbhb"),
        32 => Some("bti"),
        34 => Some("bti c"),
        36 => Some("bti j"),
        38 => Some("bti jc"),
        _ => None,
    }
}

/// The extension of a word that is added to a register or subtracted from it, which the decoder
/// takes for a shift: `uxtw`, with the shift (Arm ARM, C6.2, "ADD (extended register)").
fn unsigned_extension(word: u32) -> Option<String> {
    let field = |first: u32, bits: u32| word >> first & ((1 << bits) - 1);
    let is_extended = word & 0x1fe0_0000 == 0x0b20_0000;
    let (is_64_bit, is_word) = (field(31, 1) == 1, field(13, 3) == 2);
    // Of 32 bits, it is a shift where the stack pointer is one of the registers.
    let with_stack = field(0, 5) == 31 && field(29, 1) == 0 || field(5, 5) == 31;
    (is_extended && is_word && (is_64_bit || !with_stack)).then(|| match field(10, 3) {
        0 => "uxtw".to_owned(),
        shift => format!("uxtw #{shift}"),
    })
}

/// `text` with `extension` in the place of the shift, if it has one, of its last register.
fn extended(text: &str, extension: &str) -> String {
    let registers = text.split_once(", lsl").map_or(text, |(before, _)| before);
    format!("{registers}, {extension}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(word: u32) -> String {
        text(word, 0xffff_8000_8000_1234, &mut |_| None)
    }

    #[test]
    fn targets_are_addresses_or_names() {
        let named = |word| {
            text(word, 0xffff_8000_8000_1234, &mut |target| {
                Some(format!("f+{:#x}", target & 0xfff))
            })
        };
        // Words from `llvm-mc`.
        for (word, expected) in [
            (0x5400_0041, "b.ne f+0x23c"),
            (0x3400_0040, "cbz w0, f+0x23c"),
            (0x3618_0083, "tbz w3, #0x3, f+0x244"),
            (0x97ff_ffff, "bl f+0x230"),
            (0x7401_0040, ".inst 0x74010040  // branch to f+0x23c"),
        ] {
            assert_eq!(named(word), expected);
        }
        for (word, expected) in [
            (0x1400_0001, "b 0xffff800080001238"),
            // adrp x0, one page on; adr x0, 4 bytes on; ldr x1, 8 bytes on.
            (0xb000_0000, "adrp x0, 0xffff800080002000"),
            (0x1000_0020, "adr x0, 0xffff800080001238"),
            (0x5800_0041, "ldr x1, 0xffff80008000123c"),
            (0xd503_201f, "nop"),
            (0xd65f_03c0, "ret"),
            (0x0000_0000, "udf #0x0"),
            (0xd503_20bf, "sevl"),
            (0xd503_20df, "dgh"),
            (0xd503_22df, "clrbhb"),
            (0xd503_241f, "bti"),
            (0xd503_245f, "bti c"),
            (0xd503_249f, "bti j"),
            (0xd503_24df, "bti jc"),
            (0xd503_233f, "paciasp"),
            (0x8b22_5397, "add x23, x28, w2, uxtw #4"),
            (0xcb29_4149, "sub x9, x10, w9, uxtw"),
            (0xeb2a_411f, "cmp x8, w10, uxtw"),
            (0x0b22_4fff, "add wsp, wsp, w2, lsl #3"),
            (0x0b22_4c1f, "add wsp, w0, w2, lsl #3"),
            (0x0b22_4c00, "add w0, w0, w2, uxtw #3"),
            (0x8b22_c800, "add x0, x0, w2, sxtw #2"),
        ] {
            assert_eq!(plain(word), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Code may hold any word.
        #[test]
        fn every_word_has_a_text(word: u32) {
            let text = plain(word);
            prop_assert!(!text.is_empty() && !text.contains(['$', '\n']), "{text}");
        }
    }
}
