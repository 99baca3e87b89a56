//! Instructions of x86, by LLVM's disassembler.

use std::collections::{BTreeSet, HashMap};
use std::process::Command;

use anyhow::{Result, ensure};
use branch_records::instructions::X86Bytes;

use super::{DISASSEMBLER, number};
use crate::trace_tests::answer;

/// The letters at the end of a mnemonic that tell the size of operands. LLVM always writes them.
const SIZES: [&str; 4] = ["b", "w", "l", "q"];

/// The instructions that go on from byte to byte.
const STRINGS: [&str; 3] = ["movsb", "movsq", "stos"];

/// The text of each instruction, by LLVM's disassembler.
pub(super) fn disassembled(encodings: &BTreeSet<X86Bytes>) -> Result<HashMap<X86Bytes, String>> {
    if encodings.is_empty() {
        return Ok(HashMap::new());
    }
    // What is in brackets is one instruction.
    let list = |encoding: &X86Bytes| {
        let bytes = encoding.as_slice().iter();
        let bytes: Vec<_> = bytes.map(|byte| format!("{byte:#04x}")).collect();
        format!("[{}]\n", bytes.join(" "))
    };
    let list: String = encodings.iter().map(list).collect();
    let mut command = Command::new(DISASSEMBLER);
    command.args(["--disassemble", "--triple=x86_64"]);
    let text = answer(&mut command, list)?;
    // It writes this prefix on a line of its own.
    let text = text.replace("\tlock\n", "\tlock");
    let texts = text.lines().map(str::trim);
    let texts: Vec<_> = texts
        .filter(|line| !line.is_empty() && *line != ".text")
        .collect();
    ensure!(
        texts.len() == encodings.len(),
        "{DISASSEMBLER} has {} of {} instructions",
        texts.len(),
        encodings.len()
    );
    let texts = texts.into_iter().map(str::to_owned);
    Ok(encodings.iter().copied().zip(texts).collect())
}

/// Whether the texts of an instruction are the same: this project's and LLVM's. `next` is the
/// address behind the instruction: LLVM writes how far away from there a target is.
pub(super) fn is_same(ours: &str, llvms: &str, next: u64) -> bool {
    let (ours, llvms) = (Plain::new(ours), Plain::new(llvms));
    let is_branch = llvms.mnemonic.starts_with('j') || llvms.mnemonic.starts_with("call");
    let is_operand = |(a, b): (&String, &String)| {
        let (Some(a_number), Some(b_number)) = (number(a), number(b)) else {
            return a == b;
        };
        if is_branch && llvms.operands.len() == 1 {
            return a_number == b_number.wrapping_add(next.cast_signed());
        }
        // A number of fewer bits may be written with a sign, or without.
        let same_in = |bits: u32| {
            let signed = a_number << (64 - bits) >> (64 - bits);
            let unsigned = a_number & ((1 << bits) - 1);
            [a_number, b_number]
                .iter()
                .all(|it| [signed, unsigned].contains(it))
        };
        a_number == b_number || [8, 16, 32].into_iter().any(same_in)
    };
    ours.is_called(&llvms)
        && ours.prefix == llvms.prefix
        && ours.operands.len() == llvms.operands.len()
        && ours.operands.iter().zip(&llvms.operands).all(is_operand)
}

/// An instruction without what two disassemblers write differently.
#[derive(Debug)]
struct Plain {
    prefix: Option<String>,
    mnemonic: String,
    /// The parts of all operands: registers, numbers, parentheses and asterisks.
    operands: Vec<String>,
}

impl Plain {
    fn new(text: &str) -> Self {
        let text = text.split('#').next().unwrap_or_default();
        let text = ["(", ")", "*"].iter().fold(text.to_owned(), |text, mark| {
            text.replace(mark, &format!(" {mark} "))
        });
        let parts = text
            .split([' ', ',', '\t', ':'])
            .filter(|part| !part.is_empty());
        let mut parts = parts.map(str::to_owned).peekable();
        let prefix = parts.next_if(|part| ["lock", "rep"].contains(&part.as_str()));
        let mut mnemonic = parts.next().unwrap_or_default();
        let mut operands: Vec<_> = parts.collect();
        match &*mnemonic {
            "xchg" if operands == ["%ax", "%ax"] => {
                mnemonic = "nop".to_owned();
                operands.clear();
            }
            "shl" | "shr" | "sar" if operands.first().is_some_and(|by| by == "$1") => {
                operands.remove(0);
            }
            // The segment of a string's target cannot be another one.
            _ if STRINGS.iter().any(|string| mnemonic.starts_with(string)) => {
                operands.retain(|operand| operand != "%es");
            }
            "imull" | "imulq" if operands.len() == 3 && operands[1] == operands[2] => {
                operands.pop();
            }
            _ => {}
        }
        Self {
            prefix,
            mnemonic,
            operands,
        }
    }

    /// Whether the mnemonic is LLVM's, which may tell the size of the operands.
    fn is_called(&self, llvm: &Self) -> bool {
        let rest = llvm.mnemonic.strip_prefix(&self.mnemonic);
        rest.is_some_and(|rest| rest.is_empty() || SIZES.contains(&rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disassemblers_write_sizes_numbers_and_targets_in_their_ways() {
        let same = |ours, llvms| is_same(ours, llvms, 0x1005);
        for (ours, llvms) in [
            ("mov %rsp,%rbp", "movq\t%rsp, %rbp"),
            ("mov 0x10(,%rax,4),%eax", "movl\t16(,%rax,4), %eax"),
            ("add $0xfffffff8,%esp", "addl\t$-8, %esp"),
            ("mov %gs:-0x10(%rip),%rax", "movq\t%gs:-16(%rip), %rax"),
            ("call 0x1105", "callq\t256"),
            ("je 0xff5", "je\t-16"),
            ("call *%rax", "callq\t*%rax"),
            ("lock xadd %ecx,(%rdi)", "lock\txaddl\t%ecx, (%rdi)"),
            ("rep stos %al,(%rdi)", "rep\t\tstosb\t%al, %es:(%rdi)"),
            ("callq *0x20(%rdi)", "callq\t*32(%rdi)"),
            ("shr $1,%esi", "shrl\t%esi"),
            (
                "imul $0x1258,%rdi",
                "imulq\t$4696, %rdi, %rdi  # imm = 0x1258",
            ),
            ("xchg %ax,%ax", "nop"),
            ("ret", "retq"),
        ] {
            assert!(same(ours, llvms), "{ours} and {llvms}");
        }
        for (ours, llvms) in [
            ("mov %rsp,%rbp", "movq\t%rbp, %rsp"),
            ("mov %rsp,%rbp", "movabsq\t%rsp, %rbp"),
            ("mov 0x10(,%rax,4),%eax", "movl\t16(,%rax,8), %eax"),
            ("mov 0x10(%rax,%rbx),%eax", "movl\t16(%rax), %eax"),
            ("mov 0x110(%rax),%eax", "movl\t16(%rax), %eax"),
            ("mov 0x10(%rax),%eax", "movl\t%es:16(%rax), %eax"),
            ("cmpl $0xbeef,(%rax)", "cmpl\t$239, (%rax)"),
            ("add $7,%esp", "addl\t$8, %esp"),
            ("stos %al,(%rdi)", "rep\t\tstosb\t%al, %es:(%rdi)"),
            ("callq *0x20(%rdi)", "callq\t*36(%rdi)"),
            ("shr $2,%esi", "shrl\t%esi"),
            ("call 0x1104", "callq\t256"),
            ("call 0x200001105", "callq\t256"),
        ] {
            assert!(!same(ours, llvms), "{ours} and {llvms}");
        }
    }
}
