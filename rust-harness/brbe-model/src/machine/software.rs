//! What software does: `MRS`, `MSR` and `BRB`.

use super::Brbe;
use crate::control::{Brbcr, Brbfcr};
use crate::pe::Pe;
use crate::record::{INF_MASK, Record, Valid};
use crate::sysreg::{self, Access, Denied, Instruction, Register};

impl Brbe {
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
