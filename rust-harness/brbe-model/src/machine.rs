//! The machine: BRBE's registers, and what each event does to them.

mod branches;
mod counting;
mod debug;
mod freezing;
mod regions;
mod software;
mod transitions;

use crate::buffer::Buffer;
use crate::config::{Config, Version};
use crate::control::{Brbcr, Brbfcr};
use crate::record::BrbeRecord;

pub use branches::Region;

/// The Branch Record Buffer Extension of one processing element.
///
/// The parameter `now` of the methods is a count of clock cycles that never goes back.
#[derive(Clone, Debug)]
pub struct Brbe {
    config: Config,
    buffer: Buffer,
    el1: Brbcr,
    el2: Brbcr,
    fcr: Brbfcr,
    ts: u64,
    injection: BrbeRecord,
    /// The cycle in which the last record was generated.
    stamp: u64,
    /// Whether the next record's cycle count is unknown (R_MJDLC).
    cycles_unknown: bool,
    /// Whether the PE is in Debug state.
    halted: bool,
}

impl Brbe {
    /// BRBE after a Cold reset. What the architecture leaves UNKNOWN is zero.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            buffer: Buffer::new(config.records),
            el1: Brbcr::default(),
            el2: Brbcr::default(),
            fcr: Brbfcr::default(),
            ts: 0,
            injection: BrbeRecord::default(),
            stamp: 0,
            cycles_unknown: true,
            halted: false,
        }
    }

    /// Does a Warm reset (S_YLMQQ, I_FPJPQ): records stay, recording below EL3 stops;
    /// what else stays depends on FEAT_BRBEv1p1.
    pub fn warm_reset(&mut self) {
        if self.config.version >= Version::V1_1 {
            self.el1 = self.el1.without_enables();
            self.el2 = self.el2.without_enables();
            self.fcr = self.fcr.without_bank();
        } else {
            self.el1 = self.el1.only_fzpss();
            self.el2 = self.el2.only_fzpss();
            self.fcr = Brbfcr::default();
            self.ts = 0;
        }
        self.injection = BrbeRecord::default();
        self.cycles_unknown = true;
        self.halted = false;
    }

    /// The choices of this implementation.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// BRBFCR_EL1.PAUSED.
    pub fn paused(&self) -> bool {
        self.fcr.paused()
    }

    /// BRBCR_EL1.
    pub fn brbcr_el1(&self) -> Brbcr {
        self.el1
    }

    /// BRBCR_EL2.
    pub fn brbcr_el2(&self) -> Brbcr {
        self.el2
    }

    /// The record at index 0, whatever the bank; zero where there is none.
    pub fn youngest(&self) -> BrbeRecord {
        self.buffer.get(0)
    }

    /// BRBFCR_EL1.BANK.
    pub fn bank(&self) -> u8 {
        (self.fcr.bits() >> 28 & 3) as u8
    }
}

#[cfg(test)]
mod tests;
