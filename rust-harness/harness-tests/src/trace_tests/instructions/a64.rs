//! A64 instructions, by LLVM's disassembler.

use std::collections::{BTreeSet, HashMap};
use std::process::Command;

use anyhow::Result;

use super::{DISASSEMBLER, number};
use crate::trace_tests::answer;

/// The bytes of the pages that `ADRP` counts.
const PAGE: u64 = 4096;

/// Whether the texts of the instruction at `address` are the same: this project's and LLVM's.
pub(super) fn is_same(ours: &str, llvms: &str, address: u64) -> bool {
    Plain::ours(ours).is(&Plain::llvms(llvms, address))
}

/// The text of each word that is an instruction, by LLVM's disassembler.
pub(super) fn disassembled(words: &BTreeSet<u32>) -> Result<HashMap<u32, String>> {
    let bytes = |word: &u32| {
        word.to_le_bytes()
            .map(|byte| format!("{byte:#04x}"))
            .join(" ")
    };
    let list: String = words.iter().map(|word| bytes(word) + "\n").collect();
    let mut command = Command::new(DISASSEMBLER);
    command.args([
        "--disassemble",
        "--triple=aarch64",
        "--mattr=+all",
        "--show-encoding",
    ]);
    let text = answer(&mut command, list)?;
    // `	ret	// encoding: [0xc0,0x03,0x5f,0xd6]`
    let parse = |line: &str| {
        let (text, encoding) = line.rsplit_once("// encoding: [")?;
        let bytes = encoding.strip_suffix(']')?.split(',');
        let bytes = bytes.map(|byte| u8::from_str_radix(byte.strip_prefix("0x")?, 16).ok());
        let bytes: Option<Vec<_>> = bytes.collect();
        Some((
            u32::from_le_bytes(bytes?.try_into().ok()?),
            text.trim().to_owned(),
        ))
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// An instruction without what two disassemblers write differently: a mnemonic, and its operands
/// one by one, numbers in decimal.
#[derive(Debug, PartialEq, Eq)]
struct Plain {
    mnemonic: String,
    operands: Vec<String>,
}

impl Plain {
    /// Of this project's text.
    fn ours(text: &str) -> Self {
        Self::new(text, |operand| operand)
    }

    /// Of LLVM's text of the instruction at `address`. It writes how far away a target is.
    fn llvms(text: &str, address: u64) -> Self {
        let text = text.split("//").next().unwrap_or_default();
        let mnemonic = text.split_whitespace().next().unwrap_or_default();
        let last = text.rsplit(',').next().unwrap_or_default();
        let is_branch = mnemonic.starts_with("b.")
            || ["b", "bl", "cbz", "cbnz", "tbz", "tbnz"].contains(&mnemonic);
        let is_load = mnemonic.starts_with("ldr") && !text.contains('[');
        let base = match mnemonic {
            "adrp" => Some(address & !(PAGE - 1)),
            "adr" => Some(address),
            _ if is_branch || is_load => Some(address),
            _ => None,
        };
        let last = last.rsplit(['\t', ' ']).next().unwrap_or_default();
        let offset = number(last).filter(|_| base.is_some());
        let target = base
            .zip(offset)
            .map(|(base, offset)| base.wrapping_add(offset.cast_unsigned()));
        Self::new(text, |operand| match target {
            Some(target) if operand == last => target.to_string(),
            _ => operand,
        })
    }

    fn new(text: &str, place: impl Fn(String) -> String) -> Self {
        let text = text.replace(['{', '}', '[', ']', '!'], " ");
        let mut parts = text.split([' ', ',', '\t']).filter(|part| !part.is_empty());
        let mnemonic = parts.next().unwrap_or_default().to_owned();
        let operand = |part: &str| {
            let placed = place(part.to_owned());
            number(&placed).map_or(placed.to_lowercase(), |number| number.to_string())
        };
        let mut operands: Vec<_> = parts.map(operand).collect();
        // `[x0, #0]` is `[x0]`, and `sxtw #0` is `sxtw`.
        if operands.last().is_some_and(|last| last == "0") && operands.len() > 2 {
            operands.pop();
        }
        Self { mnemonic, operands }
    }

    /// Whether it is what LLVM has, which has names for system registers and their instructions.
    fn is(&self, llvm: &Self) -> bool {
        let known = |a: &String, b: &String| {
            let bits = |text: &str| text.parse::<i64>().ok();
            // Moved into 32 bits, a number may have a sign.
            let same = bits(a)
                .zip(bits(b))
                .is_some_and(|(a, b)| a == b || (a as u32 == b as u32 && self.mnemonic == "mov"));
            a == b || same || is_system_register(a)
        };
        let operands = self.operands.iter().zip(&llvm.operands);
        let is_named = ["sys", ".inst"].contains(&&*self.mnemonic);
        is_named
            || (self.mnemonic == llvm.mnemonic
                && self.operands.len() == llvm.operands.len()
                && operands.into_iter().all(|(a, b)| known(a, b)))
    }
}

/// Whether an operand is a system register by its encoding, as in `s3_0_c4_c1_0`.
fn is_system_register(operand: &str) -> bool {
    let fields = operand.split('_').collect::<Vec<_>>();
    let numbered = |field: &&str| field.trim_start_matches(['s', 'c']).parse::<u8>().is_ok();
    fields.len() == 5 && fields.iter().all(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disassemblers_write_numbers_and_targets_in_their_ways() {
        let same = |ours, llvms| is_same(ours, llvms, 0x1000);
        for (ours, llvms) in [
            ("lsr w8, w19, #0xd", "lsr\tw8, w19, #13"),
            ("mov w9, #0xef000000", "mov\tw9, #-285212672"),
            ("b.ne 0x1010", "b.ne\t#16"),
            ("tbz w3, #0x3, 0xff0", "tbz\tw3, #3, #-16"),
            ("adrp x0, 0x3000", "adrp\tx0, #8192"),
            ("ldrb w0, [x20, w22, sxtw #0]", "ldrb\tw0, [x20, w22, sxtw]"),
            ("mrs x0, s3_0_c15_c2_0", "mrs\tx0, S3_0_C15_C2_0"),
            ("msr s3_0_c4_c0_1, x21", "msr\tELR_EL1, x21"),
            ("stp x29, x30, [sp, #-0x40]!", "stp\tx29, x30, [sp, #-64]!"),
        ] {
            assert!(same(ours, llvms), "{ours} and {llvms}");
        }
        for (ours, llvms) in [
            ("lsr w8, w19, #0xd", "lsr\tw8, w19, #12"),
            ("b.ne 0x1010", "b.ne\t#12"),
            ("b.ne 0x1010", "b.eq\t#16"),
            ("msr s3_0_c4_c0_1, x5", "msr\tELR_EL1, x21"),
            ("add x23, x28, w2, lsl #4", "add\tx23, x28, w2, uxtw #4"),
            ("sub x9, x10, w9", "sub\tx9, x10, w9, uxtw"),
        ] {
            assert!(!same(ours, llvms), "{ours} and {llvms}");
        }
    }
}
