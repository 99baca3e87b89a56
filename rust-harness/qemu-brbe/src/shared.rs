//! What a vCPU shares with the thread that ends QEMU: a guest may end it while
//! other vCPUs still run.

use std::sync::atomic::{AtomicU64, Ordering};

use brbe_model::Brbe;

use crate::log::Log;
use crate::watch::Watch;

/// A count that one vCPU raises and anyone may look at.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Raises it, on the vCPU's thread.
    pub(crate) fn add(&self, n: u64) {
        // There is one writer: no need of an atomic addition.
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a vCPU with BRBE did.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Records generated.
    pub(crate) records: Count,
    /// Instructions executed where recording was allowed: the clock of the
    /// cycle counts.
    pub(crate) instructions: Count,
    /// Times that software read the newest record, BRBINF0_EL1 of bank 0: once
    /// for each time that it takes the records.
    pub(crate) snapshots: Count,
    /// Freezes on a counter overflow.
    pub(crate) freezes: Count,
    /// BRB IALL.
    pub(crate) invalidations: Count,
    /// Warm resets that were noticed.
    pub(crate) resets: Count,
}

/// A vCPU's counts and its log.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) index: u32,
    pub(crate) counts: Counts,
    pub(crate) log: Option<Log>,
    pub(crate) watch: Option<Watch>,
    /// Somebody wants to know the counts: all that was recorded is looked at, not
    /// only what stays in the record buffer.
    pub(crate) counts_exactly: bool,
}

impl Shared {
    /// The youngest record was just made.
    pub(crate) fn note_record(&self, brbe: &Brbe) {
        self.counts.records.add(1);
        if let Some(log) = &self.log {
            log.record(brbe.youngest());
        }
    }
}
