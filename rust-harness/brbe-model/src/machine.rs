//! The machine: BRBE's registers, and what each event does to them.

use crate::branch::BranchKind;
use crate::buffer::Buffer;
use crate::config::{Config, Version};
use crate::control::{Brbcr, Brbfcr};
use crate::cycles::CycleCount;
use crate::exception::ExceptionKind;
use crate::freeze::{Counter, Pmu};
use crate::pe::{ExceptionLevel, Pe};
use crate::record::{Cycles, INF_MASK, Record, RecordType, Valid};
use crate::sysreg::{self, Access, Denied, Instruction, Register};

/// Where the PE is, as far as branches are recorded there: [`Brbe::region`].
#[derive(Clone, Copy, Debug)]
pub struct Region {
    el: ExceptionLevel,
    fcr: Brbfcr,
    counting: bool,
}

impl Region {
    /// The filters select branches of this kind (R_FJYDC).
    #[inline]
    pub fn selects(&self, kind: BranchKind) -> bool {
        self.fcr.selects(kind)
    }
}

/// The Branch Record Buffer Extension of one processing element.
///
/// Methods that take `now` want a count of clock cycles that never goes back.
#[derive(Clone, Debug)]
pub struct Brbe {
    config: Config,
    buffer: Buffer,
    el1: Brbcr,
    el2: Brbcr,
    fcr: Brbfcr,
    ts: u64,
    injection: Record,
    /// When the last record was generated.
    stamp: u64,
    /// The next record's cycle count is unknown (R_MJDLC).
    cycles_unknown: bool,
    /// The PE is in Debug state.
    halted: bool,
}

impl Brbe {
    /// After a Cold reset. What the architecture leaves UNKNOWN is zero.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            buffer: Buffer::new(config.records),
            el1: Brbcr::default(),
            el2: Brbcr::default(),
            fcr: Brbfcr::default(),
            ts: 0,
            injection: Record::default(),
            stamp: 0,
            cycles_unknown: true,
            halted: false,
        }
    }

    /// A Warm reset (S_YLMQQ, I_FPJPQ): records stay, recording stops; what
    /// else stays depends on FEAT_BRBEv1p1.
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
        self.injection = Record::default();
        self.cycles_unknown = true;
        self.halted = false;
    }

    /// What is implemented.
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
    pub fn youngest(&self) -> Record {
        self.buffer.get(0)
    }

    /// BRBFCR_EL1.BANK.
    pub fn bank(&self) -> u8 {
        (self.fcr.bits() >> 28 & 3) as u8
    }

    // --- where recording is allowed -----------------------------------------

    /// Self-hosted recording at EL3 (D19.5): MDCR_EL3.E3BREC differs from
    /// E3BREW. FEAT_BRBE without v1p1 has none.
    fn el3_records(&self, pe: &Pe) -> bool {
        self.config.version >= Version::V1_1
            && pe.el3.as_ref().is_some_and(|el3| el3.e3brec != el3.e3brew)
    }

    /// A prohibited region (R_FHGJN to R_YGGSC), PAUSED apart. Debug state is
    /// one (R_LPYBQ).
    fn prohibited(&self, pe: &Pe) -> bool {
        if self.halted || pe.aarch32 {
            return true;
        }
        if pe.el == ExceptionLevel::El3 {
            return !self.el3_records(pe);
        }
        let by_el3 = pe.el3.as_ref().is_some_and(|el3| match el3.sbrbe {
            0b00 => true,
            0b01 => el3.secure,
            _ => false,
        });
        by_el3
            || !match pe.el {
                ExceptionLevel::El2 => self.el2.exbre(),
                ExceptionLevel::El1 => self.el1.exbre(),
                _ if pe.tge() => self.el2.e0bre(),
                _ => self.el1.e0bre(),
            }
    }

    /// BranchRecordAllowed: what executes now may be recorded.
    pub fn allowed(&self, pe: &Pe) -> bool {
        !self.fcr.paused() && !self.prohibited(pe)
    }

    /// Some Exception level may be recorded. Where none may, exceptions and
    /// exception returns need not be reported: nothing depends on them but the
    /// cycle count, which is unknown then anyway.
    pub fn may_record(&self, pe: &Pe) -> bool {
        let enabled = |brbcr: Brbcr| brbcr.exbre() || brbcr.e0bre();
        !self.fcr.paused() && (enabled(self.el1) || enabled(self.el2) || self.el3_records(pe))
    }

    // --- cycle counts --------------------------------------------------------

    /// Both BRBCR registers must allow it, at every Exception level; the EL2
    /// one counts as 1 where EL2 is not implemented.
    fn counting(&self, pe: &Pe) -> bool {
        self.config.cycle_counts && self.el1.cc() && (pe.el2.is_none() || self.el2.cc())
    }

    /// The cycle count becomes unknown where the PE is in a prohibited region
    /// or cycles are not counted (R_MJDLC).
    fn note_state(&mut self, pe: &Pe) {
        if self.prohibited(pe) || !self.counting(pe) {
            self.cycles_unknown = true;
        }
    }

    /// The PE's state is `pe` now, for another reason than an exception, an
    /// exception return or Debug state: HCR_EL2, MDCR_EL3 or SCR_EL3 was written.
    /// A region that was prohibited for a moment makes the cycle count unknown
    /// (R_MJDLC), whether a branch was executed there or not.
    pub fn state_changed(&mut self, pe: &Pe) {
        self.note_state(pe);
    }

    /// Cycles since the last record.
    fn cycles(&self, pe: &Pe, now: u64) -> Cycles {
        let known = !self.cycles_unknown && self.counting(pe);
        known.then(|| CycleCount::encode(now.wrapping_sub(self.stamp)))
    }

    fn generate(&mut self, record: Record, pe: &Pe, now: u64) {
        self.buffer.insert(record);
        self.stamp = now;
        self.cycles_unknown = false;
        self.note_state(pe);
    }

    // --- events ---------------------------------------------------------------

    /// A taken branch (R_LYGJZ to R_FJYDC). Its target is canonical. Says
    /// whether a record was made.
    ///
    /// MPRED stays 0: every branch counts as predicted rightly (R_XHWRB).
    pub fn branch(&mut self, pe: &Pe, kind: BranchKind, src: u64, tgt: u64, now: u64) -> bool {
        match self.region(pe) {
            Some(region) => self.branch_in(&region, kind, src, tgt, now),
            None => false,
        }
    }

    /// What [`Self::branch`] makes of the registers, worked out once: `None`
    /// where no branch is recorded. It holds until the PE's state or a register
    /// of BRBE's changes.
    pub fn region(&self, pe: &Pe) -> Option<Region> {
        self.allowed(pe).then(|| Region {
            el: pe.el,
            fcr: self.fcr,
            counting: self.counting(pe),
        })
    }

    /// A taken branch in `region`: [`Self::branch`] for those who execute many.
    #[inline]
    pub fn branch_in(
        &mut self,
        region: &Region,
        kind: BranchKind,
        src: u64,
        tgt: u64,
        now: u64,
    ) -> bool {
        let selected = region.selects(kind);
        if selected {
            let known = region.counting && !self.cycles_unknown;
            let cycles = known.then(|| CycleCount::encode(now.wrapping_sub(self.stamp)));
            let record = Record::full(kind.record_type(), src, tgt, region.el, cycles);
            self.buffer.insert(record);
            self.stamp = now;
            self.cycles_unknown = !region.counting;
        }
        selected
    }

    /// An exception from the state `before` to the state `after` (R_YSKQK to
    /// R_FYLTC). `src` is the preferred return address, `tgt` the vector.
    /// Says whether a record was made.
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

    /// An exception return from the state `before` to the state `after`
    /// (R_LMXHS to R_RRBCFP). `src` is the address of the ERET. After an
    /// illegal return, `after` has the Exception level of `before`. Says
    /// whether a record was made.
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

    /// Between two regions, each prohibited or not: a whole record, a half one
    /// or none.
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
        let cycles = self.cycles(before, now);
        let record = match (self.allowed(before), self.allowed(after)) {
            _ if !gate => None,
            (true, true) => Some(Record::full(kind, src, tgt, after.el, cycles)),
            (true, false) => Some(Record::source_only(kind, src, cycles)),
            (false, true) => Some(Record::target_only(kind, tgt, after.el)),
            (false, false) => None,
        };
        match record {
            Some(record) => self.generate(record, after, now),
            None => self.note_state(after),
        }
        record.is_some()
    }

    /// Entry to Debug state (R_LLCTG): a source-only record. Until
    /// [`Self::debug_exit`] or a reset, nothing is recorded and nothing freezes.
    pub fn debug_entry(&mut self, before: &Pe, src: u64, now: u64) -> bool {
        let recorded = self.allowed(before);
        if recorded {
            let cycles = self.cycles(before, now);
            let record = Record::source_only(RecordType::DebugHalt, src, cycles);
            self.generate(record, before, now);
        }
        self.halted = true;
        self.note_state(before);
        recorded
    }

    /// Exit from Debug state: a target-only record.
    pub fn debug_exit(&mut self, after: &Pe, tgt: u64, now: u64) -> bool {
        self.halted = false;
        let recorded = self.allowed(after);
        if recorded {
            let record = Record::target_only(RecordType::DebugExit, tgt, after.el);
            self.generate(record, after, now);
        }
        recorded
    }

    /// Freezes where a counter overflow asks for it (R_NXCWF); level-sensitive,
    /// so it may be asked at any time. Says whether it froze just now.
    #[inline]
    pub fn freeze_on_overflow(
        &mut self,
        pe: &Pe,
        pmu: &Pmu,
        counter: impl FnOnce() -> Counter,
    ) -> bool {
        let freeze = pmu.overflowed(pe, self.el1, self.el2) && self.allowed(pe);
        if freeze {
            self.freeze(pe, &counter());
        }
        freeze
    }

    /// A successful PMU snapshot Capture event (R_LBQZR). Says whether it froze.
    pub fn freeze_on_capture(&mut self, pe: &Pe, counter: &Counter) -> bool {
        let fzpss = self.el1.fzpss() && (pe.el2.is_none() || self.el2.fzpss());
        let freeze = fzpss && self.allowed(pe);
        if freeze {
            self.freeze(pe, counter);
        }
        freeze
    }

    /// BRBFCR_EL1.PAUSED and BRBTS_EL1, nothing else (R_PYBRZ).
    fn freeze(&mut self, pe: &Pe, counter: &Counter) {
        self.fcr = self.fcr.pause();
        self.ts = counter.timestamp(pe, self.el1, self.el2);
    }

    // --- what software does -----------------------------------------------------

    fn record(&self, n: u8) -> Record {
        self.buffer.get(self.fcr.bank_base() + usize::from(n & 31))
    }

    /// `MRS`.
    pub fn read(&self, pe: &Pe, register: Register) -> Result<u64, Denied> {
        Ok(match sysreg::resolve(pe, register, Access::Read)? {
            Register::Inf(n) => self.record(n).inf,
            Register::Src(n) => self.record(n).src,
            Register::Tgt(n) => self.record(n).tgt,
            Register::CrEl1 | Register::CrEl12 => self.el1.bits(),
            Register::CrEl2 => self.el2.bits(),
            Register::Fcr => self.fcr.bits(),
            Register::Ts => self.ts,
            Register::InfInj => self.injection.inf,
            Register::SrcInj => self.injection.src,
            Register::TgtInj => self.injection.tgt,
            Register::Idr0 => self.config.brbidr0(),
        })
    }

    /// `MSR`.
    pub fn write(&mut self, pe: &Pe, register: Register, value: u64) -> Result<(), Denied> {
        match sysreg::resolve(pe, register, Access::Write)? {
            Register::CrEl1 | Register::CrEl12 => {
                self.el1 = Brbcr::from_write(value, &self.config);
            }
            // RES0 where EL2 is not implemented: only EL3 gets here then.
            Register::CrEl2 if pe.el2.is_none() => {}
            Register::CrEl2 => self.el2 = Brbcr::from_write(value, &self.config),
            Register::Fcr => self.write_fcr(Brbfcr::from_write(value)),
            Register::Ts => self.ts = value,
            Register::InfInj => self.injection.inf = value & INF_MASK,
            Register::SrcInj => self.injection.src = value,
            Register::TgtInj => self.injection.tgt = value,
            // Read-only: the access was denied.
            Register::Inf(_) | Register::Src(_) | Register::Tgt(_) | Register::Idr0 => {}
        }
        self.note_state(pe);
        Ok(())
    }

    /// Unpausing makes the next record's cycle count unknown (R_MJDLC); the
    /// records and BRBTS_EL1 stay.
    fn write_fcr(&mut self, fcr: Brbfcr) {
        if self.fcr.paused() && !fcr.paused() {
            self.cycles_unknown = true;
        }
        self.fcr = fcr;
    }

    /// `BRB IALL` or `BRB INJ`.
    pub fn execute(&mut self, pe: &Pe, instruction: Instruction) -> Result<(), Denied> {
        sysreg::check_instruction(pe, instruction)?;
        match instruction {
            Instruction::Iall => {
                self.buffer.invalidate();
                self.cycles_unknown = true;
            }
            Instruction::Inj => self.inject(),
        }
        Ok(())
    }

    /// BRB_INJ (D19.5.1): the contents are taken as given, whatever the filters
    /// and enables say. A record that is not valid is not injected, so that
    /// valid records stay without holes (R_SQLCX).
    fn inject(&mut self) {
        let record = self.injection.without_res0();
        if record.valid() != Valid::None {
            self.buffer.insert(record);
        }
    }
}

#[cfg(test)]
mod tests;
