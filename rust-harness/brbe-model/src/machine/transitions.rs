//! Exceptions (R_YSKQK to R_FYLTC) and exception returns (R_LMXHS to R_RRBCFP).

use super::Brbe;
use crate::exception::ExceptionKind;
use crate::pe::{ExceptionLevel, Pe};
use crate::record::{BrbeRecord, RecordType};

impl Brbe {
    /// Records an exception from the state `before` to the state `after`, if it is to be
    /// recorded (R_YSKQK to R_FYLTC). `src` is the preferred return address, `tgt` the
    /// vector. Returns whether a record was made.
    pub fn exception(
        &mut self,
        before: &Pe,
        after: &Pe,
        kind: ExceptionKind,
        src: u64,
        tgt: u64,
        now: u64,
    ) -> bool {
        let gate = match after.el {
            ExceptionLevel::El0 => false,
            ExceptionLevel::El1 => self.el1.exception(),
            ExceptionLevel::El2 => self.el2.exception(),
            ExceptionLevel::El3 => self.el3_records(after),
        };
        let gate = gate && !after.aarch32;
        self.transition(gate, before, after, kind.record_type(), src, tgt, now)
    }

    /// Records an exception return from the state `before` to the state `after`, if it is
    /// to be recorded (R_LMXHS to R_RRBCFP). `src` is the address of the ERET. After an
    /// illegal return, `after` has the Exception level of `before`. Returns whether a
    /// record was made.
    pub fn exception_return(
        &mut self,
        before: &Pe,
        after: &Pe,
        src: u64,
        tgt: u64,
        now: u64,
    ) -> bool {
        let gate = match before.el {
            ExceptionLevel::El0 => false,
            ExceptionLevel::El1 => self.el1.ertn(),
            ExceptionLevel::El2 => self.el2.ertn(),
            ExceptionLevel::El3 => self.el3_records(before),
        };
        self.transition(
            gate,
            before,
            after,
            RecordType::ExceptionReturn,
            src,
            tgt,
            now,
        )
    }

    /// Records a change between two regions, each prohibited or not, if `gate` allows it:
    /// a full record, a half record or none. Returns whether a record was made.
    #[expect(clippy::too_many_arguments, reason = "two ends of one event")]
    fn transition(
        &mut self,
        gate: bool,
        before: &Pe,
        after: &Pe,
        kind: RecordType,
        src: u64,
        tgt: u64,
        now: u64,
    ) -> bool {
        self.note_state(before);
        let cycles = self.cycles(self.counting(before), now);
        let record = match (self.allowed(before), self.allowed(after)) {
            _ if !gate => None,
            (true, true) => Some(BrbeRecord::full(kind, src, tgt, after.el, cycles)),
            (true, false) => Some(BrbeRecord::source_only(kind, src, cycles)),
            (false, true) => Some(BrbeRecord::target_only(kind, tgt, after.el)),
            (false, false) => None,
        };
        match record {
            Some(record) => self.generate(record, after, now),
            None => self.note_state(after),
        }
        record.is_some()
    }
}
