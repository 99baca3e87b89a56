//! Checks whether the records of a snapshot can be one execution of the kernel's code.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use anyhow::Result;
use branch_records::capture::CodeRange;
use branch_records::path::{self, Code, Findings, Pausing};
use branch_records::record::RawRecord;

use crate::image::Image;
use crate::kallsyms::Kallsyms;
use crate::kcore::Kcore;

/// The error that the records of a snapshot are no path: they are from both sides of a
/// gap, or are not what happened.
#[derive(Debug, thiserror::Error)]
#[error("the records of a snapshot are no path: {0}")]
pub(crate) struct NoPath(Findings);

/// Lists records on standard error, newest first.
pub(crate) fn list(records: &[RawRecord]) -> Result<()> {
    let symbols = Kallsyms::read()?;
    for (number, raw) in records.iter().enumerate() {
        let record = raw.decode();
        eprintln!(
            "{number:2} {:#x} {} -> {:#x} {}: {:?}, {:?}",
            raw.from,
            symbols.describe(raw.from),
            raw.to,
            symbols.describe(raw.to),
            record.kind,
            record.privilege
        );
    }
    Ok(())
}

/// Checks snapshots, on machines whose code it can read.
#[derive(Debug)]
pub(crate) struct Paths {
    kcore: Option<Kcore>,
    /// The function that takes snapshots, if there is one yet.
    entry: Option<u64>,
}

impl Paths {
    /// Opens the kernel's code. Where it cannot be read, a message is printed, and
    /// nothing is checked.
    pub(crate) fn open() -> Self {
        if !cfg!(target_arch = "aarch64") {
            return Self {
                kcore: None,
                entry: None,
            };
        }
        let kcore = Kcore::open().inspect_err(|error| {
            eprintln!("snapshots are not checked for being a path: {error:#}");
        });
        let entry = Image::of_this_kernel().and_then(Image::snapshot_function);
        Self {
            kcore: kcore.ok(),
            entry: entry.unwrap_or_default(),
        }
    }

    /// Checks records, newest first, that no filter has left any branch out of. The code
    /// is read now: what was traced when the records were made has to be traced still.
    ///
    /// # Errors
    ///
    /// [`NoPath`], when the records cannot be one execution. Code that cannot be read is
    /// no error.
    pub(crate) fn check(&self, records: &[RawRecord]) -> Result<Findings> {
        let Some(kcore) = &self.kcore else {
            return Ok(Findings::default());
        };
        let code = kcore.around([records]).code;
        let (code, entry) = (&code, self.entry);
        Ok(unless_broken(path::check(
            records,
            &Pausing { code, entry },
        ))?)
    }
}

/// Where recording may have stopped for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// Nowhere.
    None,
    /// Behind the branch to an earlier snapshot, which may have kept its records.
    BehindSnapshots,
}

/// Checks snapshots against kernel code that is the same during all checks, except for
/// the places that the kernel changes itself all the time.
#[derive(Debug)]
pub(crate) struct Steady {
    kcore: Option<Kcore>,
    /// The function that takes snapshots, if there may be gaps behind the branch to it.
    entry: Option<u64>,
    /// The pages of code that were read, by the address of the first instruction. `None`
    /// for a page that cannot be read.
    pages: RefCell<HashMap<u64, Option<CodeRange>>>,
    /// The addresses where there is a branch or none, by a condition that hardly ever
    /// changes (`struct jump_entry`, include/linux/jump_label.h).
    jump_labels: HashSet<u64>,
}

const PAGE: u64 = 4096;

impl Steady {
    /// Reads which places the kernel changes itself. What is traced now has to be traced
    /// until the last check.
    pub(crate) fn read(gaps: Gaps) -> Self {
        let Paths { kcore, entry } = Paths::open();
        let table = kcore.as_ref().and_then(|kcore| {
            let Range { start, end } = Image::of_this_kernel().ok()?.jump_labels.clone()?;
            let last = end.checked_sub(4).filter(|last| *last >= start)?;
            kcore.read(start, last).ok()
        });
        Self {
            // Without the table, a place that has changed would be taken for a wrong
            // path.
            kcore: kcore.filter(|_| table.is_some()),
            entry: entry.filter(|_| gaps == Gaps::BehindSnapshots),
            pages: RefCell::default(),
            jump_labels: table.as_ref().map(jump_labels).unwrap_or_default(),
        }
    }

    /// Checks the records of a snapshot, newest first, that no filter has left any branch
    /// out of.
    pub(crate) fn check(&self, records: &[RawRecord]) -> Result<Findings, NoPath> {
        unless_broken(path::check(records, self))
    }

    /// Checks the records of a sample, newest first. perf leaves debug exceptions out of
    /// a sample.
    pub(crate) fn check_sample(&self, records: &[RawRecord]) -> Result<Findings, NoPath> {
        unless_broken(path::check_sample(records, self))
    }
}

/// The findings, or an error if anything in them is broken. Some paths are known to be
/// broken even without any code.
fn unless_broken(findings: Findings) -> Result<Findings, NoPath> {
    if findings.broken.is_empty() {
        Ok(findings)
    } else {
        Err(NoPath(findings))
    }
}

impl Code for Steady {
    fn fetch(&self, address: u64) -> Option<u32> {
        let kcore = self.kcore.as_ref()?;
        if self.jump_labels.contains(&address) {
            return None;
        }
        let first = address & !(PAGE - 1);
        let mut pages = self.pages.borrow_mut();
        let page = pages
            .entry(first)
            .or_insert_with(|| kcore.read(first, first + PAGE - 4).ok());
        let word = page.as_ref()?.words.get((address - first) as usize / 4);
        word.copied().filter(|_| address.is_multiple_of(4))
    }

    fn pauses(&self, address: u64) -> bool {
        self.entry == Some(address)
    }
}

/// The addresses of code in a jump table. An entry is the offset of the code from the
/// entry itself, that of the target, and a key of 8 bytes.
fn jump_labels(table: &CodeRange) -> HashSet<u64> {
    let entries = table.words.chunks_exact(4).zip(0..);
    entries
        .map(|(entry, index)| {
            let at = table.address + 16 * index;
            at.wrapping_add_signed((entry[0] as i32).into())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_of_their_own_place() {
        let table = CodeRange {
            address: 0x1000,
            words: vec![0xffff_ff00, 0, 0, 0, 0x10, 0, 0, 0, 0x20],
        };
        assert_eq!(jump_labels(&table), HashSet::from([0xf00, 0x1020]));
    }
}
