//! What software does: `MRS`, `MSR` and `BRB`.

use super::Brbe;
use crate::control::{Brbcr, Brbfcr};
use crate::pe::Pe;
use crate::record::{BrbeRecord, INF_MASK, Valid};
use crate::sysreg::{self, Denied, Instruction, Readable, Register, Writable};

impl Brbe {
    fn record(&self, n: u8) -> BrbeRecord {
        self.buffer.get(self.fcr.bank_base() + usize::from(n & 31))
    }

    /// `MRS`: reads the register that this name reaches.
    pub fn read(&self, pe: &Pe, register: Register) -> Result<u64, Denied> {
        Ok(match sysreg::resolve_read(pe, register)? {
            Readable::Inf(n) => self.record(n).inf,
            Readable::Src(n) => self.record(n).src,
            Readable::Tgt(n) => self.record(n).tgt,
            Readable::Idr0 => self.config.brbidr0(),
            Readable::Writable(Writable::CrEl1) => self.el1.bits(),
            Readable::Writable(Writable::CrEl2) => self.el2.bits(),
            Readable::Writable(Writable::Fcr) => self.fcr.bits(),
            Readable::Writable(Writable::Ts) => self.ts,
            Readable::Writable(Writable::InfInj) => self.injection.inf,
            Readable::Writable(Writable::SrcInj) => self.injection.src,
            Readable::Writable(Writable::TgtInj) => self.injection.tgt,
        })
    }

    /// `MSR`: writes the register that this name reaches.
    pub fn write(&mut self, pe: &Pe, register: Register, value: u64) -> Result<(), Denied> {
        match sysreg::resolve_write(pe, register)? {
            Writable::CrEl1 => self.el1 = Brbcr::from_write(value, &self.config),
            // BRBCR_EL2 is RES0 where EL2 is not implemented: only EL3 gets here then.
            Writable::CrEl2 if pe.el2.is_none() => {}
            Writable::CrEl2 => self.el2 = Brbcr::from_write(value, &self.config),
            Writable::Fcr => self.write_fcr(Brbfcr::from_write(value)),
            Writable::Ts => self.ts = value,
            Writable::InfInj => self.injection.inf = value & INF_MASK,
            Writable::SrcInj => self.injection.src = value,
            Writable::TgtInj => self.injection.tgt = value,
        }
        self.note_state(pe);
        Ok(())
    }

    /// Writes BRBFCR_EL1. Unpausing makes the next record's cycle count unknown
    /// (R_MJDLC); the records and BRBTS_EL1 stay.
    fn write_fcr(&mut self, fcr: Brbfcr) {
        if self.fcr.paused() && !fcr.paused() {
            self.cycles_unknown = true;
        }
        self.fcr = fcr;
    }

    /// Executes `BRB IALL` or `BRB INJ`.
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

    /// Injects a record, BRB_INJ (D19.5.1): its contents are taken as given, whatever the
    /// filters and enables say. A record that is not valid is not injected, so that valid
    /// records stay without holes (R_SQLCX).
    fn inject(&mut self) {
        let record = self.injection.without_res0();
        if record.valid() != Valid::None {
            self.buffer.insert(record);
        }
    }
}
