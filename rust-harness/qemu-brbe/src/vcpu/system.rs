//! Emulates `MRS`, `MSR`, `BRB` and `WFE`.

use std::fmt::Display;
use std::thread;

use brbe_model::{Denied, ExceptionLevel, Instruction, Register};

use super::Vcpu;
use crate::insn::{Site, System};
use crate::log::Log;
use crate::watch::Watch;

/// PSTATE.SS: one more instruction is executed before the software step exception.
const PSTATE_SS: u64 = 1 << 21;
/// PSTATE.BTYPE: what branch led to the instruction.
const PSTATE_BTYPE: u64 = 3 << 10;

/// What became of a system instruction.
pub(crate) enum SystemEffect {
    /// The instruction was emulated: the vCPU goes on at this address.
    Resume(u64),
    /// The instruction is left to QEMU to execute.
    PassOn,
}

impl Vcpu {
    /// Executes the system instruction at `site` on the model.
    pub(crate) fn system(&mut self, site: Site, system: System) -> SystemEffect {
        if self.aarch32 || self.is_illegal() {
            return SystemEffect::PassOn;
        }
        let pc = self.address(site);
        self.drain();
        self.pe = self.read_pe();
        self.check_freeze();
        let done = match system {
            System::ReadId if self.id_is_hidden() => return SystemEffect::PassOn,
            System::ReadId => {
                self.read_id(site.rt());
                Ok(())
            }
            System::Read(register) => self.read_register(register, site.rt(), pc),
            System::Write(register) => self.write_register(register, site.rt(), pc),
            System::Execute(instruction) => self.execute(instruction, pc),
        };
        if done.is_err() {
            if let Some(log) = &self.shared.log {
                log.undefined(site.word(), pc);
            }
            return SystemEffect::PassOn;
        }
        self.touched |= system != System::ReadId;
        let next = pc.wrapping_add(4);
        self.count_run(next);
        self.trail.restart(next);
        self.publish();
        // An overflow flag that is still set freezes again at once.
        self.check_freeze();
        // While nothing is recorded there are few lines. The logs are written then, so
        // that they are whole even if QEMU is killed later.
        if !self.active {
            self.shared.log.iter().for_each(Log::flush);
            self.shared.watch.iter().for_each(Watch::flush);
        }
        self.advance_pstate();
        SystemEffect::Resume(next)
    }

    /// Goes on after a WFE without waiting for an event, as the architecture allows: a PE
    /// may go on from WFE for any reason (Arm ARM, Wait for Event). QEMU 11.1 halts the
    /// vCPU until the event stream's next tick, which now and then does not come: a vCPU
    /// that waits for a spinlock with interrupts masked then waits forever. Returns the
    /// address to go on at.
    pub(crate) fn wait_for_event(&mut self, site: Site) -> Option<u64> {
        if self.aarch32 || self.is_illegal() {
            return None;
        }
        self.drain();
        let next = self.address(site).wrapping_add(4);
        self.count_run(next);
        self.trail.restart(next);
        // What the vCPU waits for is mostly done by another vCPU, which may have no CPU
        // of the host now.
        thread::yield_now();
        self.advance_pstate();
        Some(next)
    }

    /// Does to PSTATE what QEMU does when it executes an instruction: a software step is
    /// complete, and the branch before is forgotten. QEMU shows bits 31:0, so the value is
    /// only written where that is needed: a write clears the bits above.
    fn advance_pstate(&self) {
        let pstate = self.pstate();
        let advanced = pstate & !(PSTATE_SS | PSTATE_BTYPE);
        if advanced != pstate {
            self.registers.write(self.registers.cpsr, advanced);
        }
    }

    /// Whether a read of `ID_AA64DFR0_EL1` is left to QEMU: at EL0, and where
    /// HCR_EL2.TID3 traps it.
    fn id_is_hidden(&self) -> bool {
        let r = &self.registers;
        let tid3 = || r.el2().is_some_and(|el2| r.read(el2.hcr) >> 18 & 1 != 0);
        match self.pe.el {
            ExceptionLevel::El0 => true,
            ExceptionLevel::El1 => self.pe.el2.is_some_and(|el2| el2.enabled) && tid3(),
            _ => false,
        }
    }

    fn read_id(&self, rt: u8) {
        let r = &self.registers;
        let value = self.brbe.config().id_aa64dfr0(r.read(r.id_aa64dfr0));
        r.write_x(rt, value);
    }

    fn read_register(&mut self, register: Register, rt: u8, pc: u64) -> Result<(), Denied> {
        let value = self.brbe.read(&self.pe, register)?;
        self.registers.write_x(rt, value);
        let newest = register == Register::Inf(0) && self.brbe.bank() == 0;
        self.shared.counts.snapshots.add(newest.into());
        self.note(format_args!("read {register} {value:#x}"), pc);
        Ok(())
    }

    fn write_register(&mut self, register: Register, rt: u8, pc: u64) -> Result<(), Denied> {
        let value = self.registers.read_x(rt);
        self.brbe.write(&self.pe, register, value)?;
        self.note(format_args!("write {register} {value:#x}"), pc);
        Ok(())
    }

    fn execute(&mut self, instruction: Instruction, pc: u64) -> Result<(), Denied> {
        self.brbe.execute(&self.pe, instruction)?;
        let invalidates = instruction == Instruction::Iall;
        self.shared.counts.invalidations.add(invalidates.into());
        self.note(format_args!("execute {instruction}"), pc);
        Ok(())
    }

    /// Logs an access to BRBE.
    fn note(&self, access: impl Display, pc: u64) {
        let line = format_args!("{access} at {pc:#x}");
        if let Some(log) = &self.shared.log {
            log.line(line);
        }
        if let (Some(watch), Some(call)) = (&self.shared.watch, &self.call)
            && call.is_executing()
        {
            watch.line(line);
        }
    }
}
