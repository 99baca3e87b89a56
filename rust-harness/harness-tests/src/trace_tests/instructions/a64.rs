//! A64 instructions, by LLVM's disassembler.

use std::collections::{BTreeSet, HashMap};
use std::process::Command;

use anyhow::Result;

use super::{DISASSEMBLER, number};
use crate::trace_tests::answer;

/// The bytes of the pages that `ADRP` counts.
const PAGE: u64 = 4096;

/// LLVM's mnemonics of the instructions that are a `SYS` (Arm ARM, C6.2, "SYS").
const OF_SYS: [&str; 8] = ["at", "brb", "cfp", "dc", "dvp", "ic", "sys", "tlbi"];

/// Whether the texts of the instruction `word` at `address` are the same: this project's and LLVM's.
pub(super) fn is_same(word: u32, ours: &str, llvms: &str, address: u64) -> bool {
    let (ours, theirs) = (Plain::ours(ours), Plain::llvms(llvms, address));
    match &*ours.mnemonic {
        ".inst" => llvms.is_empty(),
        "sys" => {
            ours.operands == SystemFields::of(word).of_sys() && OF_SYS.contains(&&*theirs.mnemonic)
        }
        _ => ours.is(&theirs, word),
    }
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

    /// Whether it is what LLVM has for `word`. LLVM has more names of system registers.
    fn is(&self, llvm: &Self, word: u32) -> bool {
        let register = ["mrs", "msr"]
            .contains(&&*self.mnemonic)
            .then(|| SystemFields::of(word).register());
        let known = |a: &String, b: &String| {
            let bits = |text: &str| text.parse::<i64>().ok();
            // Moved into 32 bits, a number may have a sign.
            let same = bits(a)
                .zip(bits(b))
                .is_some_and(|(a, b)| a == b || (a as u32 == b as u32 && self.mnemonic == "mov"));
            a == b || same || register.as_ref() == Some(a)
        };
        let operands = self.operands.iter().zip(&llvm.operands);
        self.mnemonic == llvm.mnemonic
            && self.operands.len() == llvm.operands.len()
            && operands.into_iter().all(|(a, b)| known(a, b))
    }
}

/// The fields of a system instruction (Arm ARM, C4.1, "System instructions").
#[derive(Clone, Copy)]
struct SystemFields {
    op0: u32,
    op1: u32,
    crn: u32,
    crm: u32,
    op2: u32,
    rt: u32,
}

impl SystemFields {
    fn of(word: u32) -> Self {
        Self {
            op0: word >> 19 & 3,
            op1: word >> 16 & 7,
            crn: word >> 12 & 0xf,
            crm: word >> 8 & 0xf,
            op2: word >> 5 & 7,
            rt: word & 0x1f,
        }
    }

    /// The register of an `MRS` or `MSR`, by its encoding.
    fn register(self) -> String {
        let Self {
            op0,
            op1,
            crn,
            crm,
            op2,
            ..
        } = self;
        format!("s{op0}_{op1}_c{crn}_c{crm}_{op2}")
    }

    /// The operands of a `SYS`.
    fn of_sys(self) -> [String; 5] {
        let general = match self.rt {
            31 => "xzr".to_owned(),
            number => format!("x{number}"),
        };
        let [crn, crm] = [self.crn, self.crm].map(|number| format!("c{number}"));
        let [op1, op2] = [self.op1, self.op2].map(|number| number.to_string());
        [op1, crn, crm, op2, general]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any instruction that is none of the system's.
    const OTHER: u32 = 0xd65f_03c0;

    #[test]
    fn disassemblers_write_numbers_and_targets_in_their_ways() {
        let same = |ours, llvms| is_same(OTHER, ours, llvms, 0x1000);
        for (ours, llvms) in [
            ("lsr w8, w19, #0xd", "lsr\tw8, w19, #13"),
            ("mov w9, #0xef000000", "mov\tw9, #-285212672"),
            ("b.ne 0x1010", "b.ne\t#16"),
            ("tbz w3, #0x3, 0xff0", "tbz\tw3, #3, #-16"),
            ("adrp x0, 0x3000", "adrp\tx0, #8192"),
            ("ldrb w0, [x20, w22, sxtw #0]", "ldrb\tw0, [x20, w22, sxtw]"),
            ("stp x29, x30, [sp, #-0x40]!", "stp\tx29, x30, [sp, #-64]!"),
        ] {
            assert!(same(ours, llvms), "{ours} and {llvms}");
        }
        for (ours, llvms) in [
            ("lsr w8, w19, #0xd", "lsr\tw8, w19, #12"),
            ("b.ne 0x1010", "b.ne\t#12"),
            ("b.ne 0x1010", "b.eq\t#16"),
            ("add x23, x28, w2, lsl #4", "add\tx23, x28, w2, uxtw #4"),
            ("sub x9, x10, w9", "sub\tx9, x10, w9, uxtw"),
        ] {
            assert!(!same(ours, llvms), "{ours} and {llvms}");
        }
    }

    #[test]
    fn what_only_llvm_names_is_compared_with_the_encoding() {
        for (word, ours, llvms) in [
            (
                0xd538_f200,
                "mrs x0, s3_0_c15_c2_0",
                "mrs\tx0, S3_0_C15_C2_0",
            ),
            (0xd518_4035, "msr s3_0_c4_c0_1, x21", "msr\tELR_EL1, x21"),
            (0xd509_729f, "sys #0x1, c7, c2, #0x4, xzr", "brb\tiall"),
            (OTHER, ".inst 0x00000001", ""),
        ] {
            assert!(is_same(word, ours, llvms, 0), "{ours} and {llvms}");
        }
        for (word, ours, llvms) in [
            (0xd518_4035, "msr s3_0_c4_c0_1, x5", "msr\tELR_EL1, x21"),
            (0xd518_4035, "msr s3_0_c4_c0_0, x21", "msr\tELR_EL1, x21"),
            (0xd509_729f, "sys #0x1, c7, c2, #0x5, xzr", "brb\tiall"),
            (0xd509_729f, "sys #0x1, c7, c2, #0x4, xzr", "ret"),
            (OTHER, ".inst 0xd65f03c0", "ret"),
        ] {
            assert!(!is_same(word, ours, llvms, 0), "{ours} and {llvms}");
        }
    }
}
