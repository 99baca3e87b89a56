//! A second BRBE, written as plainly as the specification reads: a vector of records, raw
//! registers and one `if` for each rule. It shares the types of the model's interface
//! (which Exception level a PE is at, which register is meant), and none of the model's
//! decisions.

mod access;
mod codes;
mod events;
mod freeze;
mod record;
mod registers;

use brbe_model::{Config, ExceptionLevel, Pe, Version};

pub(crate) use record::Entry;

/// What happened since the last record that makes a count unknown.
#[derive(Clone, Copy, Debug)]
enum Since {
    Reset,
    Prohibited,
    NotCounting,
    Unpaused,
    Invalidated,
}

#[derive(Debug)]
pub(crate) struct Naive {
    config: Config,
    /// The records, youngest first.
    records: Vec<Entry>,
    brbcr_el1: u64,
    brbcr_el2: u64,
    brbfcr: u64,
    brbts: u64,
    injection: Entry,
    debug_state: bool,
    last_record_at: u64,
    since: Vec<Since>,
}

pub(crate) fn bit(value: u64, n: u32) -> bool {
    value & (1 << n) != 0
}

impl Naive {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            records: Vec::new(),
            brbcr_el1: 0,
            brbcr_el2: 0,
            brbfcr: 0,
            brbts: 0,
            injection: Entry::default(),
            debug_state: false,
            last_record_at: 0,
            since: vec![Since::Reset],
        }
    }

    /// A Warm reset (Arm ARM, S_YLMQQ). What is UNKNOWN is zero.
    pub(crate) fn warm_reset(&mut self) {
        const FZPSS: u64 = 1 << 9;
        if self.config.version == Version::V1_1 {
            self.brbcr_el1 &= !0b11;
            self.brbcr_el2 &= !0b11;
            self.brbfcr &= !(0b11 << 28);
        } else {
            self.brbcr_el1 &= FZPSS;
            self.brbcr_el2 &= FZPSS;
            self.brbfcr = 0;
            self.brbts = 0;
        }
        self.injection = Entry::default();
        self.debug_state = false;
        self.since.push(Since::Reset);
    }

    // --- section 3.1 ---------------------------------------------------------

    fn records_at_el3(&self, pe: &Pe) -> bool {
        if self.config.version == Version::V1_0 {
            return false;
        }
        match &pe.el3 {
            Some(el3) => el3.e3brec != el3.e3brew,
            None => false,
        }
    }

    fn prohibited(&self, pe: &Pe) -> bool {
        if self.debug_state || pe.aarch32 {
            return true;
        }
        if pe.el == ExceptionLevel::El3 {
            return !self.records_at_el3(pe);
        }
        if let Some(el3) = &pe.el3 {
            if el3.sbrbe == 0b00 {
                return true;
            }
            if el3.sbrbe == 0b01 && el3.secure {
                return true;
            }
        }
        if pe.el == ExceptionLevel::El2 {
            return !bit(self.brbcr_el2, 1);
        }
        if pe.el == ExceptionLevel::El1 {
            return !bit(self.brbcr_el1, 1);
        }
        match &pe.el2 {
            Some(el2) if el2.enabled && el2.hcr.tge => !bit(self.brbcr_el2, 0),
            _ => !bit(self.brbcr_el1, 0),
        }
    }

    pub(crate) fn paused(&self) -> bool {
        bit(self.brbfcr, 7)
    }

    pub(crate) fn allowed(&self, pe: &Pe) -> bool {
        !self.paused() && !self.prohibited(pe)
    }

    // --- section 4.3 ---------------------------------------------------------

    fn counting(&self, pe: &Pe) -> bool {
        if !self.config.cycle_counts || !bit(self.brbcr_el1, 3) {
            return false;
        }
        pe.el2.is_none() || bit(self.brbcr_el2, 3)
    }

    /// Notes that the PE is, or was, in the state `pe`.
    pub(crate) fn be_in(&mut self, pe: &Pe) {
        if self.prohibited(pe) {
            self.since.push(Since::Prohibited);
        }
        if !self.counting(pe) {
            self.since.push(Since::NotCounting);
        }
    }

    /// The fields CCU and CC of a record that is made at `now`.
    fn count(&self, pe: &Pe, now: u64) -> u64 {
        if !self.since.is_empty() || !self.counting(pe) {
            return record::CCU;
        }
        record::encode(now - self.last_record_at) << 32
    }
}
