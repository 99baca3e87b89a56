//! The instructions that were executed between branches, disassembled from the code as it was when
//! the records were taken.
//!
//! Captures hold the code of the kernel, of its modules and of BPF programs, and none of user
//! space.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use serde::{Serialize, Serializer};

use crate::InstructionSet;
use crate::capture::{Capture, Snapshot};
use crate::path::{self, Code as _, Flow, FlowKind, PathBranch, flow};
use crate::record::RawRecord;
use crate::symbol::{Resolve, Symbol, SymbolCache};

mod a64;
mod memory;
pub(crate) mod perf;
mod system_registers;
mod x86;

pub use x86::X86Bytes;

/// An instruction that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExecutedInstruction {
    /// The address of the instruction.
    #[serde(serialize_with = "crate::capture::hex::serialize")]
    pub address: u64,
    /// The encoding of the instruction.
    #[serde(serialize_with = "encoding")]
    pub encoding: Encoding,
    /// The instruction in the syntax of assemblers. The target of a branch is a symbol and an
    /// offset where it is known, else an address.
    pub text: Rc<str>,
    /// The symbol at the address, if some source of symbols knows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<Rc<Symbol>>,
    /// Whether instructions were executed right before that are not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub after_gap: bool,
}

/// The encoding of an instruction. Shown, it is hexadecimal: the word of an A64 instruction, and
/// the bytes of an instruction of x86 in the order of their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encoding {
    /// The encoding of an A64 instruction.
    A64(u32),
    /// The encoding of an instruction of x86.
    X86(X86Bytes),
}

impl Encoding {
    /// How many bytes the instruction has.
    pub fn length(&self) -> u64 {
        match self {
            Self::A64(_) => 4,
            Self::X86(bytes) => bytes.as_slice().len() as u64,
        }
    }

    /// The bytes of the instruction, in the order of their addresses.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::A64(word) => word.to_le_bytes().to_vec(),
            Self::X86(bytes) => bytes.as_slice().to_vec(),
        }
    }

    /// Whether the next instruction may be executed after this one, without a branch.
    pub fn goes_on(&self) -> bool {
        match self {
            Self::A64(word) => match flow(*word) {
                Flow::Direct { kind, .. } => kind == FlowKind::Conditional,
                Flow::Indirect { .. } | Flow::ExceptionReturn => false,
                Flow::Call | Flow::On => true,
            },
            Self::X86(bytes) => bytes.goes_on(),
        }
    }

    /// Whether the instruction encodes where it branches to.
    pub(crate) fn has_target(&self) -> bool {
        match self {
            Self::A64(word) => matches!(flow(*word), Flow::Direct { .. }),
            Self::X86(bytes) => bytes.target(0).is_some(),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A64(word) => write!(f, "{word:08x}"),
            Self::X86(bytes) => {
                let mut bytes = bytes.as_slice().iter();
                bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

fn encoding<S: Serializer>(encoding: &Encoding, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(encoding)
}

impl ExecutedInstruction {
    /// Whether a branch whose record's source is `from` was this instruction's. Where arm64 has
    /// recorded a system call, the source is behind its instruction.
    pub(crate) fn branches(&self, from: u64) -> bool {
        let is_behind = |word| self.address.wrapping_add(4) == from && flow(word) == Flow::Call;
        self.address == from || matches!(self.encoding, Encoding::A64(word) if is_behind(word))
    }
}

/// Disassembles the code of a capture.
pub(crate) struct Disassembler<'a, R: ?Sized> {
    capture: &'a Capture,
    symbols: SymbolCache<'a, R>,
    /// `None` for a machine whose instructions are not known.
    instructions: Option<InstructionSet>,
    /// The instructions so far, by their addresses: many snapshots share few. The code of a capture
    /// is of one time, and of the kernel.
    known: HashMap<u64, (Encoding, Rc<str>)>,
}

/// The most instructions of a snapshot. Those of newer branches are left out: 64 branches on a real
/// path have some hundreds.
const MAX_INSTRUCTIONS: usize = 1 << 16;

impl<'a, R: Resolve + ?Sized> Disassembler<'a, R> {
    pub(crate) fn new(capture: &'a Capture, symbols: &'a R) -> Self {
        Self {
            capture,
            symbols: SymbolCache::of(symbols),
            instructions: InstructionSet::of(&capture.kernel.machine),
            known: HashMap::new(),
        }
    }

    /// The instructions that were executed before each record of a snapshot, back to where the
    /// record before it led, the branch included. The oldest record comes first.
    pub(crate) fn of_snapshot(&mut self, snapshot: &Snapshot) -> Vec<Vec<ExecutedInstruction>> {
        let records = &snapshot.records;
        let oldest_first = records.iter().enumerate().rev();
        let mut left = MAX_INSTRUCTIONS;
        let block = |(index, newer): (usize, &RawRecord)| {
            let older = records.get(index + 1);
            let block = self.block(snapshot.pid, older, newer, left);
            left -= block.len();
            block
        };
        oldest_first.map(block).collect()
    }

    /// At most `most` of the instructions that were executed between two records, the branch of the
    /// newer one included.
    fn block(
        &mut self,
        pid: u32,
        older: Option<&RawRecord>,
        newer: &RawRecord,
        most: usize,
    ) -> Vec<ExecutedInstruction> {
        let Some(instructions) = self.instructions else {
            return Vec::new();
        };
        // Between two of the branches that were asked for, there may have been others.
        let older = older.filter(|_| self.capture.has_all_branches());
        let older = older.map(|older| PathBranch::from(*older));
        let newer = PathBranch::from(*newer);
        let way = match instructions {
            InstructionSet::A64 => path::executed(older, newer),
            InstructionSet::X86 => {
                let known = self.known(pid, newer.from);
                let branched = match known {
                    Some((Encoding::X86(bytes), _)) => bytes.leads(newer.from, newer.to),
                    _ => false,
                };
                x86::executed(older, newer, branched)
            }
        };
        // What was executed before the oldest branch, nobody expects to know.
        let mut next = older.map_or(way.start, |older| older.to);
        let mut at = way.start;
        let mut block = Vec::new();
        while way.contains(&at) && block.len() < most {
            let Some(instruction) = self.instruction(pid, at) else {
                at = match instructions {
                    InstructionSet::A64 => at.saturating_add(4),
                    // Where the next one begins is not known either. Where the branch is not
                    // known, the way ends before it.
                    InstructionSet::X86 => newer.from,
                };
                continue;
            };
            let behind = at.saturating_add(instruction.encoding.length());
            // The branch is where its record says, whatever the bytes before it seem to be.
            if at < newer.from && behind > newer.from {
                at = newer.from;
                continue;
            }
            let after_gap = next != at;
            (next, at) = if at < newer.from && !instruction.encoding.goes_on() {
                // What it led to was not recorded, or is user space.
                (0, newer.from)
            } else {
                (behind, behind)
            };
            block.push(ExecutedInstruction {
                after_gap,
                ..instruction
            });
        }
        block
    }

    /// The instruction at an address in the process `pid`, if the capture holds it.
    fn instruction(&mut self, pid: u32, address: u64) -> Option<ExecutedInstruction> {
        let (encoding, text) = self.known(pid, address)?;
        Some(ExecutedInstruction {
            address,
            encoding,
            text,
            symbol: self.symbols.resolve(pid, address),
            after_gap: false,
        })
    }

    /// The encoding and the text of the instruction at an address.
    fn known(&mut self, pid: u32, address: u64) -> Option<(Encoding, Rc<str>)> {
        if let Some(known) = self.known.get(&address) {
            return Some(known.clone());
        }
        let mut name = |target| {
            let symbol = self.symbols.resolve(pid, target)?;
            Some(symbol.place())
        };
        let code = &self.capture.code;
        let known = match self.instructions? {
            InstructionSet::A64 => code.fetch(address).map(|word| {
                let text = a64::text(word, address, &mut name);
                (Encoding::A64(word), text.into())
            }),
            InstructionSet::X86 => X86Bytes::fetch(code, address).map(|bytes| {
                let text = bytes.text(address, &mut name);
                (Encoding::X86(bytes), text.into())
            }),
        };
        // A capture may ask for more addresses that it has no code for than there is memory.
        if let Some(known) = &known {
            self.known.insert(address, known.clone());
        }
        known
    }
}

#[cfg(test)]
mod tests;
