//! Sections 2 and 5: what software reads, writes and executes.

use brbe_model::{Denied, Instruction, Pe, Register};

use super::{Entry, Naive, Since, access, bit};

impl Naive {
    /// The record at this index, whatever the bank.
    pub(crate) fn record(&self, index: usize) -> Entry {
        match self.records.get(index) {
            Some(entry) => entry.as_read(),
            None => Entry::default(),
        }
    }

    fn banked(&self, n: u8) -> Entry {
        let bank = (self.brbfcr >> 28 & 3) as usize;
        self.record(bank * 32 + usize::from(n))
    }

    pub(crate) fn read(&self, pe: &Pe, register: Register) -> Result<u64, Denied> {
        Ok(match access::register(pe, register, false)? {
            Register::Inf(n) => self.banked(n).inf,
            Register::Src(n) => self.banked(n).src,
            Register::Tgt(n) => self.banked(n).tgt,
            Register::CrEl1 => self.brbcr_el1,
            Register::CrEl2 => self.brbcr_el2,
            Register::CrEl12 => unreachable!("resolved to BRBCR_EL1"),
            Register::Fcr => self.brbfcr,
            Register::Ts => self.brbts,
            Register::InfInj => self.injection.inf,
            Register::SrcInj => self.injection.src,
            Register::TgtInj => self.injection.tgt,
            Register::Idr0 => 0x5000 + self.config.records as u64,
        })
    }

    pub(crate) fn write(&mut self, pe: &Pe, register: Register, value: u64) -> Result<(), Denied> {
        let mut brbcr = 0x00c0_007b;
        if self.config.pmu {
            brbcr |= 1 << 8;
        }
        if self.config.pmu_snapshot {
            brbcr |= 1 << 9;
        }
        match access::register(pe, register, true)? {
            Register::CrEl1 => self.brbcr_el1 = value & brbcr,
            Register::CrEl2 if pe.el2.is_none() => {}
            Register::CrEl2 => self.brbcr_el2 = value & brbcr,
            Register::Fcr => {
                if self.paused() && !bit(value, 7) {
                    self.since.push(Since::Unpaused);
                }
                self.brbfcr = value & 0x307f_0080;
            }
            Register::Ts => self.brbts = value,
            Register::InfInj => self.injection.inf = value & 0x0000_7fff_0000_3fe3,
            Register::SrcInj => self.injection.src = value,
            Register::TgtInj => self.injection.tgt = value,
            other => unreachable!("{other:?} is read-only"),
        }
        self.be_in(pe);
        Ok(())
    }

    pub(crate) fn execute(&mut self, pe: &Pe, instruction: Instruction) -> Result<(), Denied> {
        access::instruction(pe, instruction)?;
        match instruction {
            Instruction::Iall => {
                self.records.clear();
                self.since.push(Since::Invalidated);
            }
            Instruction::Inj => {
                if self.injection.inf & 3 != 0 {
                    self.insert(self.injection);
                }
            }
        }
        Ok(())
    }
}
