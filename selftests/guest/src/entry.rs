//! Where snapshots begin: the function that the helper calls.

use anyhow::Result;

use crate::contract::Answer;
use crate::flags;
use crate::image::Image;
use crate::kallsyms::Kallsyms;
use crate::verdict::{self, Verdict, no_snapshots};

/// The function that takes snapshots.
pub(crate) struct Entry {
    address: u64,
}

impl Entry {
    /// Finds the function. There has to be a PMU that has snapshots.
    pub(crate) fn find() -> Result<Self> {
        let installed = Image::of_this_kernel()?.snapshot_function()?;
        Ok(Self {
            address: installed.ok_or_else(no_snapshots)?,
        })
    }

    /// The name of the function, or its address where it has none.
    pub(crate) fn name(&self) -> String {
        let symbols = Kallsyms::once();
        let symbol = symbols.ok().and_then(|it| it.symbol(self.address));
        symbol.map_or_else(|| format!("{:#x}", self.address), |symbol| symbol.name)
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
    verdict::needs_snapshots()?;
    let entry = Entry::find()?;
    println!("{:#x}", entry.address);
    Ok(Verdict::Seen(entry.name()))
}
