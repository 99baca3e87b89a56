//! What a vCPU shares with the thread that ends QEMU: a guest may end QEMU while other
//! vCPUs still run.

use std::sync::atomic::{AtomicU64, Ordering};

use brbe_model::Brbe;

use crate::log::Log;
use crate::watch::Watch;

/// A count that one vCPU's thread raises and any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Raises the count by `n`, on the vCPU's thread.
    pub(crate) fn add(&self, n: u64) {
        // There is one writer: no need of an atomic addition.
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of what a vCPU with BRBE did.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The number of records generated.
    pub(crate) records: Count,
    /// The number of instructions executed where recording was allowed: the clock of the
    /// cycle counts.
    pub(crate) instructions: Count,
    /// The number of times that software read the newest record, BRBINF0_EL1 of bank 0:
    /// once for each time that it takes the records.
    pub(crate) snapshots: Count,
    /// The number of freezes on a counter overflow.
    pub(crate) freezes: Count,
    /// The number of times that BRB IALL was executed.
    pub(crate) invalidations: Count,
    /// The number of Warm resets that were noticed.
    pub(crate) resets: Count,
}

/// A vCPU's counts and its log.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) index: u32,
    pub(crate) counts: Counts,
    pub(crate) log: Option<Log>,
    pub(crate) watch: Option<Watch>,
    /// Whether counts or a log are asked for: all branches are looked at then, not only
    /// those whose records stay in the record buffer.
    pub(crate) counts_exactly: bool,
}

impl Shared {
    /// Counts and logs the youngest record, which was just made.
    pub(crate) fn note_record(&self, brbe: &Brbe) {
        self.counts.records.add(1);
        if let Some(log) = &self.log {
            log.record(brbe.youngest());
        }
    }
}
