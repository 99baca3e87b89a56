//! Sections 3.2 to 3.5 and 5.1: what makes a record.

use brbe_model::{BranchKind, ExceptionKind, ExceptionLevel, Pe};

use super::record::{CCU, FULL, SOURCE_ONLY, TARGET_ONLY};
use super::{Entry, Naive, bit, codes};

impl Naive {
    pub(super) fn insert(&mut self, entry: Entry) {
        self.records.insert(0, entry);
        self.records.truncate(self.config.records as usize);
    }

    fn generate(&mut self, entry: Entry, now: u64) {
        self.insert(entry);
        self.last_record_at = now;
        self.since.clear();
    }

    pub(crate) fn branch(
        &mut self,
        pe: &Pe,
        kind: BranchKind,
        src: u64,
        tgt: u64,
        now: u64,
    ) -> bool {
        if !self.allowed(pe) {
            return false;
        }
        let matches = bit(self.brbfcr, codes::branch_filter(kind));
        let inverted = bit(self.brbfcr, 16);
        if matches == inverted {
            return false;
        }
        let inf =
            self.count(pe, now) | codes::branch_type(kind) << 8 | codes::el(pe.el) << 6 | FULL;
        self.generate(Entry { inf, src, tgt }, now);
        self.be_in(pe);
        true
    }

    pub(crate) fn exception(
        &mut self,
        before: &Pe,
        after: &Pe,
        kind: ExceptionKind,
        (src, tgt): (u64, u64),
        now: u64,
    ) -> bool {
        let mut gate = match after.el {
            ExceptionLevel::El0 => false,
            ExceptionLevel::El1 => bit(self.brbcr_el1, 23),
            ExceptionLevel::El2 => bit(self.brbcr_el2, 23),
            ExceptionLevel::El3 => self.records_at_el3(after),
        };
        if after.aarch32 {
            gate = false;
        }
        self.transition(
            gate,
            before,
            after,
            codes::exception_type(kind),
            (src, tgt),
            now,
        )
    }

    pub(crate) fn exception_return(
        &mut self,
        before: &Pe,
        after: &Pe,
        (src, tgt): (u64, u64),
        now: u64,
    ) -> bool {
        let gate = match before.el {
            ExceptionLevel::El0 => false,
            ExceptionLevel::El1 => bit(self.brbcr_el1, 22),
            ExceptionLevel::El2 => bit(self.brbcr_el2, 22),
            ExceptionLevel::El3 => self.records_at_el3(before),
        };
        self.transition(gate, before, after, 0b000111, (src, tgt), now)
    }

    fn transition(
        &mut self,
        gate: bool,
        before: &Pe,
        after: &Pe,
        code: u64,
        (src, tgt): (u64, u64),
        now: u64,
    ) -> bool {
        let (source, target) = (self.allowed(before), self.allowed(after));
        let el = codes::el(after.el) << 6;
        let mut recorded = false;
        if gate && source && target {
            let inf = self.count(before, now) | code << 8 | el | FULL;
            self.generate(Entry { inf, src, tgt }, now);
            recorded = true;
        }
        if gate && source && !target {
            let inf = self.count(before, now) | code << 8 | SOURCE_ONLY;
            self.generate(Entry { inf, src, tgt: 0 }, now);
            recorded = true;
        }
        if gate && !source && target {
            let inf = CCU | code << 8 | el | TARGET_ONLY;
            self.generate(Entry { inf, src: 0, tgt }, now);
            recorded = true;
        }
        if !recorded {
            self.be_in(before);
        }
        self.be_in(after);
        recorded
    }

    pub(crate) fn debug_entry(&mut self, before: &Pe, src: u64, now: u64) -> bool {
        let recorded = self.allowed(before);
        if recorded {
            let inf = self.count(before, now) | 0b100001 << 8 | SOURCE_ONLY;
            self.generate(Entry { inf, src, tgt: 0 }, now);
        }
        self.debug_state = true;
        self.be_in(before);
        recorded
    }

    pub(crate) fn debug_exit(&mut self, after: &Pe, tgt: u64, now: u64) -> bool {
        self.debug_state = false;
        let recorded = self.allowed(after);
        if recorded {
            let inf = CCU | 0b111001 << 8 | codes::el(after.el) << 6 | TARGET_ONLY;
            self.generate(Entry { inf, src: 0, tgt }, now);
        }
        self.be_in(after);
        recorded
    }
}
