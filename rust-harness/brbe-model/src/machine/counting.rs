//! When the cycles since the last record are known (D19.1.2).

use super::Brbe;
use crate::cycles::CycleCount;
use crate::pe::Pe;
use crate::record::{BrbeRecord, Cycles};

impl Brbe {
    /// Whether cycles are counted. Both BRBCR registers must allow it, at every Exception
    /// level; BRBCR_EL2 counts as allowing it where EL2 is not implemented.
    pub(super) fn counting(&self, pe: &Pe) -> bool {
        self.config.cycle_counts && self.el1.cc() && (pe.el2.is_none() || self.el2.cc())
    }

    /// Notes that the PE is in the state `pe`: in a prohibited region, or where cycles
    /// are not counted, the cycle count becomes unknown (R_MJDLC).
    ///
    /// To be called where the state changed for another reason than an exception,
    /// an exception return or Debug state: HCR_EL2, MDCR_EL3 or SCR_EL3 was
    /// written. A region that is prohibited for a moment counts even if nothing
    /// was executed there.
    pub fn note_state(&mut self, pe: &Pe) {
        if self.prohibited(pe) || !self.counting(pe) {
            self.cycles_unknown = true;
        }
    }

    /// The cycles since the last record, if they are known.
    #[inline]
    pub(super) fn cycles(&self, counting: bool, now: u64) -> Cycles {
        let known = counting && !self.cycles_unknown;
        known.then(|| CycleCount::encode(now.wrapping_sub(self.stamp)))
    }

    /// Makes `record`, after which the PE is in the state `pe`.
    pub(super) fn generate(&mut self, record: BrbeRecord, pe: &Pe, now: u64) {
        self.buffer.insert(record);
        self.stamp = now;
        self.cycles_unknown = false;
        self.note_state(pe);
    }
}
