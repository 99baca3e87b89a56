//! One vCPU with LBRs: follows what the vCPU executes, and passes it to the model.

use lbr_model::{CodePlace, Cpl, Cpu, Depth, Msr, TakenBranch, TransferKind, cpuid};

use crate::insn::{Site, System};
use crate::local_apic;
use crate::registers::Registers;
use crate::words::{OVERFLOWN, Scoreboard, Word};

/// A vCPU with LBRs.
///
/// Only its own thread touches it, while it executes a callback.
pub(crate) struct Vcpu {
    index: u32,
    words: Scoreboard,
    registers: Registers,
    cpu: Cpu,
    cpl: Cpl,
    /// The address at which the block that is executed starts, while branches are
    /// recorded.
    block: u64,
    /// A branch that is about to be taken, or not.
    pending: Option<Pending>,
    /// The leaf and subleaf of a CPUID that was just executed.
    cpuid: Option<(u32, u32)>,
    /// The value of [`Word::Executed`] when instructions were last passed to the model.
    counted: u64,
}

#[derive(Clone, Copy)]
struct Pending {
    kind: TransferKind,
    from: u64,
    /// The address of the instruction after the branch.
    next: u64,
    to_next: bool,
}

impl Vcpu {
    pub(crate) fn new(index: u32, words: Scoreboard, registers: Registers, depth: Depth) -> Self {
        Self {
            index,
            words,
            registers,
            cpu: Cpu::new(depth),
            cpl: Cpl::Kernel,
            block: 0,
            pending: None,
            cpuid: None,
            counted: 0,
        }
    }

    // --- what translated code looks at ---------------------------------------------

    /// Sets the words that translated code looks at to the model's state.
    fn publish(&mut self) {
        let recording = self.cpu.is_recording();
        let watching = recording || self.cpu.pmu().is_counting();
        let arriving = recording || self.pending.is_some();
        for (word, value) in [
            (Word::Recording, recording),
            (Word::Watching, watching),
            (Word::Arriving, arriving),
        ] {
            self.words.set(word, self.index, value.into());
        }
        let left = self.cpu.pmu().until_overflow(self.cpl);
        self.counted = left.map_or(0, |left| OVERFLOWN.saturating_sub(left));
        self.words.set(Word::Executed, self.index, self.counted);
    }

    /// Passes all instructions up to here to the model. [`Vcpu::publish`] has to follow.
    fn count_executed(&mut self) {
        let executed = self.words.get(Word::Executed, self.index);
        let instructions = executed.wrapping_sub(self.counted);
        self.counted = executed;
        if self.cpu.advance(self.cpl, instructions) {
            local_apic::raise_performance_interrupt(&self.registers.buffer);
        }
    }

    fn is_idle(&self) -> bool {
        !self.cpu.is_recording() && !self.cpu.pmu().is_counting()
    }

    // --- branches ------------------------------------------------------------------

    /// Called before a branch executes.
    pub(crate) fn branch(&mut self, site: Site) {
        let from = site.address(self.block);
        self.pending = Some(Pending {
            kind: site.kind(),
            from,
            next: from.wrapping_add(site.len()),
            to_next: site.is_to_next(),
        });
        self.words.set(Word::Arriving, self.index, 1);
    }

    /// Called when a block starts.
    pub(crate) fn arrive(&mut self) {
        let pc = self.registers.rip();
        if let Some(pending) = self.pending.take() {
            // Branches of other kinds stay at their privilege level.
            let cpl = match pending.kind {
                TransferKind::Other => self.registers.cpl(),
                _ => self.cpl,
            };
            self.complete(pending, CodePlace { ip: pc, cpl });
            self.enter(cpl);
        }
        self.block = pc;
    }

    /// Completes the branch that was pending, which was taken or not and led to `to`.
    /// [`Vcpu::enter`] has to follow.
    fn complete(&mut self, pending: Pending, to: CodePlace) {
        // Whether a branch to the next instruction is taken does not show in where it
        // leads.
        if pending.kind == TransferKind::Conditional && to.ip == pending.next {
            return;
        }
        self.record(pending.kind, pending.from, to, pending.to_next);
    }

    /// Passes a branch to the model. [`Vcpu::enter`] has to follow.
    fn record(&mut self, kind: TransferKind, from: u64, to: CodePlace, to_next: bool) {
        if !self.cpu.is_recording() {
            return;
        }
        self.count_executed();
        let from = CodePlace {
            ip: from,
            cpl: self.cpl,
        };
        self.cpu.branch(&TakenBranch {
            kind,
            from,
            to,
            to_next,
        });
    }

    /// Sets the privilege level that the vCPU is at now.
    fn enter(&mut self, cpl: Cpl) {
        if cpl != self.cpl {
            self.count_executed();
            self.cpl = cpl;
        }
        self.publish();
    }

    /// Called when an interrupt or an exception led from `from` to `to`.
    pub(crate) fn event(&mut self, from: u64, to: u64) {
        if self.is_idle() {
            self.pending = None;
            return;
        }
        let cpl = self.registers.cpl();
        // An exception of the branch itself undoes the branch.
        if let Some(pending) = self.pending.take()
            && pending.from != from
        {
            let reached = match pending.kind {
                TransferKind::Other => level_of(from),
                _ => self.cpl,
            };
            let place = CodePlace {
                ip: from,
                cpl: reached,
            };
            self.complete(pending, place);
            self.enter(reached);
        }
        self.record(TransferKind::Other, from, CodePlace { ip: to, cpl }, false);
        self.enter(cpl);
        self.block = to;
    }

    // --- counters --------------------------------------------------------------------

    /// Called when a counter has overflowed.
    pub(crate) fn overflow(&mut self) {
        self.count_executed();
        self.publish();
    }

    // --- instructions that are taken over ------------------------------------------------

    /// Called before the instruction after a CPUID executes: completes the result of the
    /// CPUID.
    pub(crate) fn complete_cpuid(&mut self) {
        self.words.set(Word::Completing, self.index, 0);
        if let Some((leaf, subleaf)) = self.cpuid.take() {
            let without = self.registers.all();
            let shown = self.cpu.cpuid(leaf, subleaf, without);
            self.registers.set_all(shown);
        }
    }

    /// Executes the instruction at `site`, if it is of the model. Returns the address to
    /// go on at then.
    pub(crate) fn system(&mut self, site: Site) -> Option<u64> {
        let registers = &self.registers;
        if !registers.is_in_long_mode() {
            return None;
        }
        let ecx = registers.ecx();
        // What is not allowed, or not of the model, is left to QEMU.
        match site.system() {
            System::Cpuid => {
                let leaf = registers.eax();
                if cpuid::is_concerned(leaf, ecx) {
                    self.cpuid = Some((leaf, ecx));
                    self.words.set(Word::Completing, self.index, 1);
                }
                return None;
            }
            System::Rdpmc if !registers.allows_rdpmc() => return None,
            System::Rdpmc => {
                self.count_executed();
                let value = self.cpu.read_counter(ecx);
                self.registers.set_edx_eax(value);
                self.publish();
            }
            System::Rdmsr | System::Wrmsr if registers.cpl() != Cpl::Kernel => return None,
            System::Rdmsr => {
                let msr = Msr::from_address(ecx)?;
                self.count_executed();
                self.registers.set_edx_eax(self.cpu.read(msr));
                self.publish();
            }
            System::Wrmsr => {
                let msr = Msr::from_address(ecx)?;
                let value = registers.edx_eax();
                // The vCPU may have been idle, and elsewhere since.
                self.cpl = Cpl::Kernel;
                self.pending = None;
                self.count_executed();
                self.cpu.write(msr, value);
                self.publish();
            }
        }
        let address = site.address_by(self.registers.rip());
        Some(address.wrapping_add(site.len()))
    }
}

/// The privilege level of code at this address, in any system with a kernel in the upper
/// half.
fn level_of(address: u64) -> Cpl {
    match address >> 63 {
        0 => Cpl::User,
        _ => Cpl::Kernel,
    }
}
