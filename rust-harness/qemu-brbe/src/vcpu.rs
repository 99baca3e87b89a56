//! One vCPU with BRBE: follows what it executes and tells the model.

use std::time::Instant;

use brbe_model::{
    BranchKind, Brbe, Condition, Counter, El2, El3, ExceptionKind, ExceptionLevel,
    FineGrainedTraps, Hcr, Instruction, Pe, Pmu,
};

use crate::insn::{Site, System};
use crate::registers::Registers;
use crate::scoreboard::{Scoreboard, Word};

/// Counts for `stats=`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Records generated.
    pub(crate) records: u64,
    /// Instructions executed where recording was allowed.
    pub(crate) instructions: u64,
    /// Freezes on a counter overflow.
    pub(crate) freezes: u64,
    /// BRB IALL.
    pub(crate) invalidations: u64,
}

/// A branch that was executed and whose target is not known yet: it is the
/// address that the vCPU executes next.
#[derive(Clone, Copy)]
enum Pending {
    Branch {
        kind: BranchKind,
        src: u64,
    },
    ExceptionReturn {
        src: u64,
        before: Pe,
        to_aarch32: bool,
    },
    /// Not a branch: a register that the PE's state depends on was written.
    Refresh,
}

/// What became of a system instruction.
pub(crate) enum Outcome {
    /// It was emulated: go on at this address.
    Resume(u64),
    /// It is for QEMU to execute.
    PassOn,
}

/// A vCPU.
///
/// Only its own thread touches it, while it executes a callback.
pub(crate) struct Vcpu {
    index: u32,
    registers: Registers,
    scoreboard: Scoreboard,
    brbe: Brbe,
    pe: Pe,
    pending: Option<Pending>,
    /// Recording is allowed where the vCPU is now.
    recording: bool,
    /// Recording is allowed somewhere.
    active: bool,
    /// First instruction executed since the last change of flow. Between two
    /// such changes addresses only go up: their difference is the number of
    /// instructions executed.
    run_start: u64,
    started: Instant,
    counts: Counts,
}

impl Vcpu {
    pub(crate) fn new(
        index: u32,
        registers: Registers,
        scoreboard: Scoreboard,
        brbe: Brbe,
    ) -> Self {
        Self {
            index,
            registers,
            scoreboard,
            brbe,
            pe: Pe::default(),
            pending: None,
            recording: false,
            active: false,
            run_start: 0,
            started: Instant::now(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    // --- the vCPU's state ------------------------------------------------------

    fn read_pe(&self) -> Pe {
        let r = &self.registers;
        let el3 = r.el3.map(|el3| {
            let (scr, mdcr) = (r.read(el3.scr), r.read(el3.mdcr));
            let el3 = El3 {
                sbrbe: (mdcr >> 32 & 3) as u8,
                e3brec: mdcr >> 38 & 1 != 0,
                e3brew: mdcr >> 37 & 1 != 0,
                secure: scr & 1 == 0,
            };
            (el3, scr)
        });
        let el2 = r.el2.map(|el2| {
            let hcr = r.read(el2.hcr);
            let bit = |n: u32| hcr >> n & 1 != 0;
            El2 {
                // SCR_EL3.NS or SCR_EL3.EEL2.
                enabled: el3.is_none_or(|(el3, scr)| !el3.secure || scr >> 18 & 1 != 0),
                hcr: Hcr {
                    e2h: bit(34),
                    tge: bit(27),
                    nv: bit(42),
                    nv1: bit(43),
                    nv2: bit(45),
                },
                hpmn: (r.read(el2.mdcr) & 0x1f) as u8,
                fgt: el2.fgt.map(|[read, write, instruction]| FineGrainedTraps {
                    hdfgrtr: r.read(read),
                    hdfgwtr: r.read(write),
                    hfgitr: r.read(instruction),
                }),
            }
        });
        let el = ExceptionLevel::from_bits(r.read(r.cpsr) >> 2);
        Pe {
            el,
            aarch32: false,
            el2,
            el3: el3.map(|(el3, _)| el3),
        }
    }

    /// The address of the instruction at `site`, which is about to execute.
    ///
    /// QEMU shares translated code between all addresses that one page is
    /// mapped at, so the address known when it was translated need not be the
    /// one it runs at: only the offset in the page is. The vCPU's PC is
    /// somewhere in the same block, which is shorter than half a page.
    fn address(&self, site: Site) -> u64 {
        let pc = self.registers.read(self.registers.pc);
        let distance = site.offset().wrapping_sub(pc) << 52;
        pc.wrapping_add_signed(distance.cast_signed() >> 52)
    }

    /// Sets what the translated code looks at to the model's state.
    fn publish(&mut self) {
        let (recording, active) = (self.brbe.allowed(&self.pe), self.brbe.may_record(&self.pe));
        if recording != self.recording {
            self.recording = recording;
            self.scoreboard.set(Word::Recording, self.index, recording);
        }
        if active != self.active {
            self.active = active;
            self.scoreboard.set(Word::Active, self.index, active);
        }
    }

    fn set_pending(&mut self, pending: Option<Pending>) {
        self.pending = pending;
        self.scoreboard
            .set(Word::Pending, self.index, pending.is_some());
    }

    /// Counts the instructions from the last change of flow up to, not
    /// including, the one at `end`.
    fn count_run(&mut self, end: u64) {
        if self.recording {
            self.counts.instructions += end.wrapping_sub(self.run_start) / 4;
        }
    }

    // --- freezing --------------------------------------------------------------

    /// Freezes if an overflow flag asks for it; level-sensitive, so it is asked
    /// before all that a freeze would change.
    fn check_freeze(&mut self) {
        let freezes = self.brbe.brbcr_el1().fzp() || self.brbe.brbcr_el2().fzp();
        if !self.recording || !freezes {
            return;
        }
        let overflow = self.registers.read(self.registers.pmovsset);
        if overflow == 0 {
            return;
        }
        // PMCR_EL0.N.
        let counters = (self.registers.read(self.registers.pmcr) >> 11 & 0x1f) as u8;
        let pmu = Pmu {
            overflow,
            counters,
            icntr: false,
        };
        let (registers, started) = (&self.registers, self.started);
        if self
            .brbe
            .freeze_on_overflow(&self.pe, &pmu, || counter(registers, started))
        {
            self.counts.freezes += 1;
            self.publish();
        }
    }

    /// Before an instruction that changes an overflow flag.
    pub(crate) fn before_pmu_write(&mut self) {
        self.check_freeze();
    }

    // --- branches --------------------------------------------------------------

    /// A direct branch is about to execute.
    pub(crate) fn direct_branch(
        &mut self,
        site: Site,
        kind: BranchKind,
        offset: i64,
        condition: Option<Condition>,
    ) {
        if let Some(condition) = condition {
            let r = &self.registers;
            let nzcv = match condition {
                Condition::Flags(_) => r.read(r.cpsr) as u32,
                _ => 0,
            };
            if !condition.holds(nzcv, |n| r.read_x(n)) {
                return;
            }
        }
        let src = self.address(site);
        self.branch(kind, src, src.wrapping_add_signed(offset));
    }

    fn branch(&mut self, kind: BranchKind, src: u64, tgt: u64) {
        self.check_freeze();
        self.count_run(src.wrapping_add(4));
        self.run_start = tgt;
        let now = self.counts.instructions;
        self.counts.records += u64::from(self.brbe.branch(&self.pe, kind, src, tgt, now));
    }

    /// An indirect branch is about to execute.
    pub(crate) fn indirect_branch(&mut self, site: Site, kind: BranchKind) {
        let src = self.address(site);
        self.set_pending(Some(Pending::Branch { kind, src }));
    }

    /// An exception return is about to execute.
    pub(crate) fn exception_return(&mut self, site: Site) {
        self.check_freeze();
        let src = self.address(site);
        let before = self.pe;
        let spsr = level(before.el).and_then(|n| self.registers.spsr[n]);
        let to_aarch32 = spsr.is_some_and(|spsr| self.registers.read(spsr) >> 4 & 1 != 0);
        self.set_pending(Some(Pending::ExceptionReturn {
            src,
            before,
            to_aarch32,
        }));
    }

    /// A register that the PE's state depends on is about to be written.
    pub(crate) fn before_state_write(&mut self) {
        if self.pending.is_none() {
            self.set_pending(Some(Pending::Refresh));
        }
    }

    /// A block starts, and there is something pending.
    pub(crate) fn block_start(&mut self) {
        let pc = self.registers.read(self.registers.pc);
        let after = self.read_pe();
        self.resolve(pc, after);
    }

    /// What was pending went to `tgt`, where the PE's state is `after`.
    fn resolve(&mut self, tgt: u64, after: Pe) {
        let pending = self.pending;
        self.set_pending(None);
        match pending {
            None => {}
            Some(Pending::Refresh) => {
                self.pe = after;
                self.publish();
            }
            Some(Pending::Branch { kind, src }) => self.branch(kind, src, tgt),
            Some(Pending::ExceptionReturn {
                src,
                before,
                to_aarch32,
            }) => {
                self.count_run(src.wrapping_add(4));
                let after = Pe {
                    aarch32: to_aarch32,
                    ..after
                };
                let now = self.counts.instructions;
                let recorded = self.brbe.exception_return(&before, &after, src, tgt, now);
                self.counts.records += u64::from(recorded);
                self.run_start = tgt;
                self.pe = after;
                self.publish();
            }
        }
    }

    // --- exceptions --------------------------------------------------------------

    /// An exception or interrupt was taken from `from` to the vector `tgt`.
    pub(crate) fn exception(&mut self, from: u64, tgt: u64) {
        if !self.active && self.pending.is_none() {
            return;
        }
        let after = self.read_pe();
        let Some(n) = level(after.el) else { return };
        let read = |register: Option<_>| register.map_or(0, |r| self.registers.read(r));
        let (esr, elr, spsr) = (
            read(self.registers.esr[n]),
            read(self.registers.elr[n]),
            read(self.registers.spsr[n]),
        );
        let before = Pe {
            el: ExceptionLevel::from_bits(spsr >> 2),
            aarch32: spsr >> 4 & 1 != 0,
            ..after
        };
        // Offset in the vector table: bits 8:7 are the kind of exception.
        let kind = match tgt >> 7 & 3 {
            0 => {
                let tge = after.el2.is_some_and(|el2| el2.hcr.tge);
                ExceptionKind::synchronous(esr, before.el, after.el, tge)
            }
            1 => ExceptionKind::Irq,
            2 => ExceptionKind::Fiq,
            _ => ExceptionKind::SError,
        };
        let synchronous = tgt >> 7 & 3 == 0;
        let raised_by_branch = match self.pending {
            Some(Pending::Branch { src, .. } | Pending::ExceptionReturn { src, .. }) => {
                synchronous && from == src
            }
            _ => false,
        };
        if raised_by_branch {
            self.set_pending(None);
        } else if self.pending.is_some() {
            self.resolve(from, before);
        }
        self.check_freeze();
        self.count_run(elr);
        let now = self.counts.instructions;
        let recorded = self.brbe.exception(&before, &after, kind, elr, tgt, now);
        self.counts.records += u64::from(recorded);
        self.run_start = tgt;
        self.pe = after;
        self.publish();
    }

    // --- system instructions -------------------------------------------------------

    /// Executes `MRS`, `MSR` or `BRB` on the model.
    pub(crate) fn system(&mut self, site: Site, system: System) -> Outcome {
        let pc = self.address(site);
        if self.pending.is_none() {
            self.pe = self.read_pe();
        }
        self.check_freeze();
        let rt = site.rt();
        let done = match system {
            System::ReadId => {
                // At EL0, and where HCR_EL2.TID3 traps it, it is QEMU's.
                let r = &self.registers;
                let tid3 = r.el2.is_some_and(|el2| r.read(el2.hcr) >> 18 & 1 != 0);
                let hidden = match self.pe.el {
                    ExceptionLevel::El0 => true,
                    ExceptionLevel::El1 => tid3 && self.pe.el2.is_some_and(|el2| el2.enabled),
                    _ => false,
                };
                if hidden {
                    return Outcome::PassOn;
                }
                let value = self.brbe.config().id_aa64dfr0(r.read(r.id_aa64dfr0));
                r.write_x(rt, value);
                Ok(())
            }
            System::Read(register) => self
                .brbe
                .read(&self.pe, register)
                .map(|value| self.registers.write_x(rt, value)),
            System::Write(register) => {
                self.brbe
                    .write(&self.pe, register, self.registers.read_x(rt))
            }
            System::Execute(instruction) => {
                let done = self.brbe.execute(&self.pe, instruction);
                let invalidated = done.is_ok() && instruction == Instruction::Iall;
                self.counts.invalidations += u64::from(invalidated);
                done
            }
        };
        if done.is_err() {
            return Outcome::PassOn;
        }
        let next = pc.wrapping_add(4);
        self.count_run(next);
        self.run_start = next;
        self.publish();
        // An overflow flag that is still set freezes again at once.
        self.check_freeze();
        Outcome::Resume(next)
    }
}

/// Index of the registers of an Exception level that exceptions are taken to.
fn level(el: ExceptionLevel) -> Option<usize> {
    (el as usize).checked_sub(1)
}

/// The generic timer's count: the time since the vCPU started, at the
/// frequency that software was told.
fn counter(registers: &Registers, started: Instant) -> Counter {
    let frequency = u128::from(registers.read(registers.cntfrq));
    let physical = (started.elapsed().as_nanos() * frequency / 1_000_000_000) as u64;
    let virtual_offset = registers.el2.map_or(0, |el2| registers.read(el2.cntvoff));
    Counter {
        physical,
        virtual_offset,
        physical_offset: 0,
    }
}
