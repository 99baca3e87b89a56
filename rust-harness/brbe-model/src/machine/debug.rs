//! Debug state: entry and exit are recorded, what is between is not (R_LLCTG,
//! R_LPYBQ).

use super::Brbe;
use crate::pe::Pe;
use crate::record::{BrbeRecord, RecordType};

impl Brbe {
    /// Notes the entry to Debug state (R_LLCTG), which makes a source-only record. Until
    /// [`Self::debug_exit`] or a reset, nothing is recorded and nothing freezes. Returns
    /// whether a record was made.
    pub fn debug_entry(&mut self, before: &Pe, src: u64, now: u64) -> bool {
        let recorded = self.allowed(before);
        if recorded {
            let cycles = self.cycles(self.counting(before), now);
            let record = BrbeRecord::source_only(RecordType::DebugHalt, src, cycles);
            self.generate(record, before, now);
        }
        self.halted = true;
        self.note_state(before);
        recorded
    }

    /// Notes the exit from Debug state, which makes a target-only record. Returns whether
    /// a record was made.
    pub fn debug_exit(&mut self, after: &Pe, tgt: u64, now: u64) -> bool {
        self.halted = false;
        let recorded = self.allowed(after);
        if recorded {
            let record = BrbeRecord::target_only(RecordType::DebugExit, tgt, after.el);
            self.generate(record, after, now);
        }
        recorded
    }
}
