//! Instructions of x86-64 as text, in the syntax that gas and objdump have: AT&T's.

use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter as _, GasFormatter, Instruction, Mnemonic,
    OpKind,
};

use crate::InstructionSet;
use crate::path::{self, Code, PathBranch};

/// The most bytes that an instruction has.
const LONGEST: usize = *InstructionSet::X86.lengths().end() as usize;

/// The bytes of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct X86Bytes {
    /// The bytes, and zeros behind them.
    bytes: [u8; LONGEST],
    length: u8,
}

impl X86Bytes {
    /// The instruction at `address` in `code`, which is looked up in words at multiples of 4.
    pub(super) fn fetch(code: &impl Code, address: u64) -> Option<Self> {
        let byte = |offset| {
            let address = address.checked_add(offset)?;
            let word = code.fetch(address & !3)?;
            Some(word.to_le_bytes()[(address % 4) as usize])
        };
        Self::first((0..LONGEST as u64).map_while(byte))
    }

    /// The instruction that `code` begins with; `None` if it is none, or cut.
    pub(super) fn first(code: impl Iterator<Item = u8>) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        let mut there = 0;
        for (to, byte) in bytes.iter_mut().zip(code) {
            *to = byte;
            there += 1;
        }
        let instruction = decoded(&bytes[..there], 0);
        if instruction.is_invalid() {
            return None;
        }
        bytes[instruction.len()..].fill(0);
        Some(Self {
            bytes,
            length: u8::try_from(instruction.len()).ok()?,
        })
    }

    /// The bytes of the instruction, in the order of their addresses.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }

    /// The target of a branch at `address` that encodes it.
    pub(super) fn target(&self, address: u64) -> Option<u64> {
        target(&decoded(self.as_slice(), address))
    }

    /// Whether the instruction at `from` can have branched to `to`, which is 0 where that is not
    /// known. If not, an interrupt came before it, or the kernel has changed its code since.
    pub(super) fn leads(&self, from: u64, to: u64) -> bool {
        let instruction = decoded(self.as_slice(), from);
        instruction.flow_control() != FlowControl::Next
            && (to == 0 || target(&instruction).is_none_or(|target| target == to))
    }

    /// Whether the next instruction may be executed after this one, without a branch.
    pub(super) fn goes_on(&self) -> bool {
        let instruction = decoded(self.as_slice(), 0);
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                true
            }
            // Those to a hypervisor return without a record.
            FlowControl::Call => instruction.mnemonic() != Mnemonic::Call,
            _ => false,
        }
    }

    /// The text of the instruction at `address`. `name` is asked for the name of the target of a
    /// branch that encodes it.
    pub(super) fn text(&self, address: u64, name: &mut dyn FnMut(u64) -> Option<String>) -> String {
        let instruction = decoded(self.as_slice(), address);
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_rip_relative_addresses(true);
        let mut text = String::new();
        match target(&instruction).and_then(name) {
            Some(name) => {
                formatter.format_mnemonic(&instruction, &mut text);
                text.push(' ');
                text.push_str(&name);
            }
            None => formatter.format(&instruction, &mut text),
        }
        text
    }
}

fn decoded(bytes: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode()
}

fn target(instruction: &Instruction) -> Option<u64> {
    let is_near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    is_near.then(|| instruction.near_branch_target())
}

/// The addresses that instructions were executed at from the target of the record `older` up to the
/// branch of the record `newer`. If it has not `branched`, the range ends before its source. Where
/// the way is not known, the range has the branch alone.
pub(super) fn executed(older: Option<PathBranch>, newer: PathBranch, branched: bool) -> Range<u64> {
    if newer.from == 0 {
        return 0..0;
    }
    let start = path::straight_from(older, newer.from).unwrap_or(newer.from);
    start..newer.from.saturating_add(branched.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::BranchType;

    const AT: u64 = 0xffff_ffff_8100_0000;

    fn text(bytes: &[u8]) -> String {
        let first = X86Bytes::first(bytes.iter().copied()).unwrap();
        assert_eq!(first.as_slice(), bytes);
        first.text(AT, &mut |_| None)
    }

    #[test]
    fn texts_are_those_of_gas() {
        // Bytes from `llvm-mc`.
        for (bytes, expected) in [
            (&[0x48, 0x89, 0xe5][..], "mov %rsp,%rbp"),
            (&[0xe8, 0x00, 0x01, 0x00, 0x00], "call 0xffffffff81000105"),
            (&[0x74, 0x05], "je 0xffffffff81000007"),
            (&[0xf3, 0x0f, 0x1e, 0xfa], "endbr64"),
            (
                &[0x8b, 0x04, 0x85, 0x10, 0x00, 0x00, 0x00],
                "mov 0x10(,%rax,4),%eax",
            ),
            (
                &[0x65, 0x48, 0x8b, 0x05, 0xf0, 0xff, 0xff, 0xff],
                "mov %gs:-0x10(%rip),%rax",
            ),
            (&[0x81, 0x38, 0xef, 0xbe, 0, 0], "cmpl $0xbeef,(%rax)"),
            (&[0x83, 0xc4, 0xf8], "add $0xfffffff8,%esp"),
            (&[0xff, 0xd0], "call *%rax"),
            (&[0x0f, 0x05], "syscall"),
            (&[0xc3], "ret"),
            (&[0xc5, 0xf8, 0x28, 0xc1], "vmovaps %xmm1,%xmm0"),
        ] {
            assert_eq!(text(bytes), expected);
        }
    }

    #[test]
    fn the_target_of_a_branch_has_a_name() {
        let named = |bytes: &[u8]| {
            let first = X86Bytes::first(bytes.iter().copied()).unwrap();
            first.text(AT, &mut |target| {
                (target == AT + 7).then(|| "f+0x7".to_owned())
            })
        };
        assert_eq!(named(&[0x74, 0x05, 0x90]), "je f+0x7");
        assert_eq!(named(&[0x74, 0x06]), "je 0xffffffff81000008");
    }

    #[test]
    fn what_is_no_instruction_is_none() {
        for bytes in [&[][..], &[0x06], &[0xe8, 0x00], &[0x66; 16]] {
            assert_eq!(X86Bytes::first(bytes.iter().copied()), None, "{bytes:x?}");
        }
    }

    #[test]
    fn an_instruction_leads_to_its_target_and_nowhere_else() {
        let leads = |bytes: &[u8], to| {
            let first = X86Bytes::first(bytes.iter().copied()).unwrap();
            first.leads(AT, to)
        };
        assert!(leads(&[0x74, 0x05], AT + 7) && !leads(&[0x74, 0x05], AT + 8));
        assert!(leads(&[0xc3], 1) && leads(&[0xff, 0xd0], 1) && leads(&[0x0f, 0x0b], 1));
        assert!(!leads(&[0x90], AT + 1), "it is no branch");
        assert!(leads(&[0x74, 0x05], 0));
    }

    #[test]
    fn what_follows_a_jump_was_not_executed_after_it() {
        let goes_on = |bytes: &[u8]| X86Bytes::first(bytes.iter().copied()).unwrap().goes_on();
        // nop; je; vmcall.
        assert!(goes_on(&[0x90]) && goes_on(&[0x74, 0x05]) && goes_on(&[0x0f, 0x01, 0xc1]));
        // jmp; ret; sysretq; iretq; call; call *%rax; ud2; int3.
        for bytes in [
            &[0xeb, 0x05][..],
            &[0xc3],
            &[0x48, 0x0f, 0x07],
            &[0x48, 0xcf],
            &[0xe8, 0, 0, 0, 0],
            &[0xff, 0xd0],
            &[0x0f, 0x0b],
            &[0xcc],
        ] {
            assert!(!goes_on(bytes), "{bytes:x?}");
        }
    }

    #[test]
    fn the_way_ends_with_the_branch_or_before_what_was_interrupted() {
        let branch = |from, to| PathBranch {
            from,
            to,
            kind: BranchType::Unknown,
        };
        let way =
            |older, from, branched| executed(Some(branch(8, older)), branch(from, 0), branched);
        assert_eq!(way(0x1001, 0x1008, true), 0x1001..0x1009);
        assert_eq!(way(0x1001, 0x1008, false), 0x1001..0x1008);
        // Before the target, far behind it, or no way at all.
        assert_eq!(way(0x1001, 0x1000, true), 0x1000..0x1001);
        assert_eq!(way(0x1001, 0x9_0000, true), 0x9_0000..0x9_0001);
        assert_eq!(way(0, 0x1000, false), 0x1000..0x1000);
        assert_eq!(executed(None, branch(0x1000, 0), true), 0x1000..0x1001);
        assert_eq!(way(0x1001, 0, true), 0..0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Code may hold any bytes.
        #[test]
        fn every_instruction_has_a_text(bytes: [u8; 17]) {
            if let Some(first) = X86Bytes::first(bytes.into_iter()) {
                let text = first.text(AT, &mut |_| None);
                prop_assert!(bytes.starts_with(first.as_slice()));
                prop_assert!(!text.is_empty() && !text.contains('\n'), "{text}");
            }
        }
    }
}
