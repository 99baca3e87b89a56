//! The instructions that were executed between branches, disassembled from the code as it was when
//! the records were taken.
//!
//! Captures hold the code of arm64's kernel, of its modules and of BPF programs, and none of user
//! space.

use std::collections::HashMap;
use std::rc::Rc;

use serde::{Serialize, Serializer};

use crate::capture::{Capture, Snapshot};
use crate::path::{Code as _, Flow, PathBranch, executed, flow};
use crate::record::RawRecord;
use crate::symbol::{Resolve, Symbol, SymbolCache};

mod a64;
pub(crate) mod perf;
mod system_registers;

/// An instruction that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExecutedInstruction {
    /// The address of the instruction.
    #[serde(serialize_with = "crate::capture::hex::serialize")]
    pub address: u64,
    /// The encoding of the instruction.
    #[serde(serialize_with = "word")]
    pub word: u32,
    /// The instruction in the syntax of assemblers. The target of a branch is a symbol and an
    /// offset where it is known, else an address.
    #[serde(serialize_with = "shared")]
    pub text: Rc<str>,
    /// The symbol at the address, if some source of symbols knows one.
    #[serde(
        serialize_with = "shared_symbol",
        skip_serializing_if = "Option::is_none"
    )]
    pub symbol: Option<Rc<Symbol>>,
    /// Whether instructions were executed right before that are not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub after_gap: bool,
}

fn shared<S: Serializer>(text: &Rc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

fn shared_symbol<S: Serializer>(symbol: &Option<Rc<Symbol>>, to: S) -> Result<S::Ok, S::Error> {
    symbol.as_deref().serialize(to)
}

fn word<S: Serializer>(word: &u32, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{word:08x}"))
}

impl ExecutedInstruction {
    /// Whether a branch whose record's source is `from` was this instruction's. Where a system call
    /// was recorded, the source is behind its instruction.
    pub(crate) fn branches(&self, from: u64) -> bool {
        let behind = self.address.wrapping_add(4);
        self.address == from || (behind == from && flow(self.word) == Flow::Call)
    }
}

/// Disassembles the code of a capture.
pub(crate) struct Disassembler<'a, R: ?Sized> {
    capture: &'a Capture,
    symbols: SymbolCache<'a, R>,
    /// The texts so far: many snapshots share few instructions.
    texts: HashMap<u64, Rc<str>>,
}

/// The machine whose captures hold code.
pub(crate) const MACHINE: &str = "aarch64";
/// The most instructions of a snapshot. Those of newer branches are left out: 64 branches on a real
/// path have some hundreds.
const MAX_INSTRUCTIONS: usize = 1 << 16;

impl<'a, R: Resolve + ?Sized> Disassembler<'a, R> {
    pub(crate) fn new(capture: &'a Capture, symbols: &'a R) -> Self {
        Self {
            capture,
            symbols: SymbolCache::of(symbols),
            texts: HashMap::new(),
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
            let way = executed(older.map(|older| (*older).into()), PathBranch::from(*newer));
            // What was executed before the oldest branch, nobody expects to know.
            let mut next = older.map_or(way.start, |older| older.to);
            let addresses = way.step_by(4).take(left);
            let instruction = |address| {
                let instruction = self.instruction(snapshot.pid, address)?;
                let after_gap = std::mem::replace(&mut next, address.wrapping_add(4)) != address;
                Some(ExecutedInstruction {
                    after_gap,
                    ..instruction
                })
            };
            let block: Vec<_> = addresses.filter_map(instruction).collect();
            left -= block.len();
            block
        };
        oldest_first.map(block).collect()
    }

    /// The instruction at an address in the process `pid`, if the capture holds it.
    fn instruction(&mut self, pid: u32, address: u64) -> Option<ExecutedInstruction> {
        let is_known = self.capture.kernel.machine == MACHINE;
        let word = is_known.then(|| self.capture.code.fetch(address))??;
        Some(ExecutedInstruction {
            address,
            word,
            text: self.text(pid, address, word),
            symbol: self.symbols.resolve(pid, address),
            after_gap: false,
        })
    }

    fn text(&mut self, pid: u32, address: u64, word: u32) -> Rc<str> {
        // The code of a capture is of one time, and of the kernel.
        if let Some(known) = self.texts.get(&address) {
            return known.clone();
        }
        let mut name = |target| {
            let symbol = self.symbols.resolve(pid, target)?;
            Some(symbol.place())
        };
        let text: Rc<str> = a64::text(word, address, &mut name).into();
        self.texts.insert(address, text.clone());
        text
    }
}

#[cfg(test)]
mod tests;
