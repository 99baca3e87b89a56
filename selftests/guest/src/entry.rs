//! Where snapshots begin: the function that the helper calls.

use anyhow::Result;
use guest_support::snapshot_function;

use crate::contract::Answer;
use crate::flags;
use crate::kallsyms::Kallsyms;
use crate::verdict::{self, Verdict, no_snapshots};

/// The function that takes snapshots.
pub(crate) struct Entry {
    address: u64,
    /// The name of the function.
    pub(crate) name: String,
}

impl Entry {
    /// Finds the function. There has to be a PMU that has snapshots.
    pub(crate) fn find(symbols: &Kallsyms) -> Result<Self> {
        let address = snapshot_function::installed(symbols)?.ok_or_else(no_snapshots)?;
        let name = match symbols.symbol(address) {
            Some(symbol) => symbol.name,
            None => format!("{address:#x}"),
        };
        Ok(Self { address, name })
    }

    /// Whether the newest branch of a snapshot is the one into the function that takes it.
    /// Elsewhere than on arm64 this always holds: there, recording is stopped by a function
    /// that is called.
    pub(crate) fn begins(&self, answer: &Answer) -> bool {
        let newest = answer.records().first();
        !cfg!(target_arch = "aarch64") || newest.is_some_and(|newest| newest.to == self.address)
    }
}

/// What is wrong with a snapshot, if anything, where events have asked for all: it lacks what they
/// asked for, or does not begin where it was taken.
pub(crate) fn wrong(entry: &Entry, answer: &Answer) -> Option<String> {
    let begins = || "the newest branch is not the one into the snapshot".to_owned();
    let wrong = flags::wrong(answer, flags::ALL);
    wrong.or_else(|| (!entry.begins(answer)).then(begins))
}

/// Prints the address of the function.
pub(crate) fn run() -> Result<Verdict> {
    let symbols = Kallsyms::once()?;
    verdict::needs_snapshots(symbols)?;
    let entry = Entry::find(symbols)?;
    println!("{:#x}", entry.address);
    Ok(Verdict::Seen(entry.name))
}
