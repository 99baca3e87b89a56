//! Exceptions and exception returns.

use brbe_model::{ExceptionKind, ExceptionLevel, Pe};

use super::{Pending, Vcpu, level};
use crate::insn::Site;
use crate::watch::GoesOn;

/// What exception a vector is for: bits 8:7 of its offset in the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vector {
    Synchronous,
    Irq,
    Fiq,
    SError,
}

impl Vector {
    fn of(address: u64) -> Self {
        match address >> 7 & 3 {
            0 => Self::Synchronous,
            1 => Self::Irq,
            2 => Self::Fiq,
            _ => Self::SError,
        }
    }
}

/// Whether QEMU raised the synchronous exception before it started a block at the address
/// of the exception, by ESR_ELx: the block before has then been executed to its end. That
/// is so for an Instruction Abort, PC alignment, a breakpoint, a software step that an
/// instruction completed (ISS.ISV is 1), and a granule protection check on an instruction
/// fetch (ISS bit 20). A Branch Target exception, and a software step without an
/// instruction, QEMU raises in the block that they keep from being executed.
fn is_before_block(esr: u64) -> bool {
    match esr >> 26 & 0x3f {
        0x20..=0x22 | 0x30 | 0x31 => true,
        0x32 | 0x33 => esr >> 24 & 1 != 0,
        0x1e => esr >> 20 & 1 != 0,
        _ => false,
    }
}

/// The Exception level that an exception to `target` was taken from, by SPSR_ELx.M. FEAT_NV
/// makes M say that an exception from EL1 to EL1 was taken from EL2, but no exception is
/// taken to a lower level.
fn source_level(spsr: u64, target: ExceptionLevel) -> ExceptionLevel {
    ExceptionLevel::from_bits(spsr >> 2).min(target)
}

/// Whether an SVC, HVC or SMC at `call` was trapped, by the preferred return address of the
/// exception. `None` if the exception is another one.
fn is_trapped(call: u64, preferred_return: u64) -> Option<bool> {
    match preferred_return.wrapping_sub(call) {
        0 => Some(true),
        4 => Some(false),
        _ => None,
    }
}

impl Vcpu {
    /// Called before an exception return executes.
    pub(crate) fn exception_return(&mut self, site: Site) {
        if self.aarch32 {
            return;
        }
        if !self.active {
            self.pe = self.read_pe();
        }
        // An exception return is UNDEFINED at EL0.
        let Some(level) = level(self.pe.el) else {
            return;
        };
        let spsr = self.registers.spsr[level];
        self.aarch32 = spsr.is_some_and(|spsr| self.registers.read(spsr) >> 4 & 1 != 0);
        if self.active {
            self.drain();
            self.check_freeze();
            let src = self.address(site);
            self.count_run(src.wrapping_add(4));
            self.trail.restart(src);
            let before = self.pe;
            self.pending = Some(Pending::ExceptionReturn { src, before });
            self.publish();
        }
    }

    /// Called before SVC, HVC or SMC executes. An HVC or SMC may be a call of PSCI's that
    /// ends QEMU.
    pub(crate) fn exception_call(&mut self, site: Site) {
        self.drain();
        self.called_at = Some(self.address(site));
    }

    /// Completes what was pending, which led to `tgt` in the state `after`.
    pub(super) fn complete(&mut self, tgt: u64, after: Pe) {
        self.pe = after;
        let pending = self.pending.take();
        if let Some(Pending::Refresh) = pending {
            self.brbe.note_state(&self.pe);
        }
        if let Some(Pending::ExceptionReturn { src, before }) = pending {
            // An illegal return stays in AArch64, whatever SPSR_ELx.M says.
            if self.aarch32 && self.is_illegal() {
                self.aarch32 = false;
                self.pe.aarch32 = false;
            }
            let now = self.now();
            if self.brbe.exception_return(&before, &self.pe, src, tgt, now) {
                self.shared.note_record(&self.brbe);
            }
        }
        self.trail.restart(tgt);
        self.publish();
        self.check_freeze();
    }

    /// Called when an exception or interrupt was taken from `from` to the vector `tgt`.
    pub(crate) fn exception(&mut self, from: u64, tgt: u64) {
        self.aarch32 = false;
        let called_at = self.called_at.take();
        self.interrupt_call(from);
        if self.idle_at.is_some() {
            self.wake(from);
            self.publish();
        }
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
            el: source_level(spsr, after.el),
            aarch32: spsr >> 4 & 1 != 0,
            ..after
        };
        let vector = Vector::of(tgt);
        let own = vector == Vector::Synchronous && !is_before_block(esr);
        self.end_before_exception(from, own, before);
        let kind = match vector {
            Vector::Synchronous => {
                let tge = after.el2.is_some_and(|el2| el2.hcr.tge);
                let is_trapped = called_at.and_then(|call| is_trapped(call, elr));
                ExceptionKind::synchronous(esr, before.el, after.el, tge, is_trapped)
            }
            Vector::Irq => ExceptionKind::Irq,
            Vector::Fiq => ExceptionKind::Fiq,
            Vector::SError => ExceptionKind::SError,
        };
        self.check_freeze();
        let now = self.now();
        if self.brbe.exception(&before, &after, kind, elr, tgt, now) {
            self.shared.note_record(&self.brbe);
        }
        self.trail.restart(tgt);
        self.pe = after;
        self.publish();
        // An overflow where recording is prohibited leads here.
        self.check_freeze();
    }

    /// Tells the watch of an exception that was taken from `from`.
    fn interrupt_call(&mut self, from: u64) {
        let (Some(watch), r) = (&self.shared.watch, &self.registers) else {
            return;
        };
        if !watch.is_interrupted(self.call.as_ref(), from) {
            return;
        }
        watch.interrupt(from, r.read(r.pmovsset));
        let el = ExceptionLevel::from_bits(r.read(r.cpsr) >> 2);
        let (Some(call), Some(n)) = (&mut self.call, level(el)) else {
            return;
        };
        let read = |register: Option<_>| register.map_or(0, |register| r.read(register));
        let (address, spsr) = (read(r.elr[n]), read(r.spsr[n]));
        let sp = (source_level(spsr, el) == el).then(|| r.read(r.sp));
        call.leave(GoesOn { address, sp });
    }

    /// Completes what led to `from`, where an exception was taken in the state `before`.
    /// An exception that is the instruction's `own` came after the block at `from` was
    /// started, and stops the branch or exception return that raised it.
    fn end_before_exception(&mut self, from: u64, own: bool, before: Pe) {
        match self.pending {
            Some(Pending::ExceptionReturn { src, .. }) if own && from == src => self.pending = None,
            Some(_) => self.complete(from, before),
            None if self.region.is_none() => {}
            None if own => self.drain(),
            None => self.finish_block(from),
        }
        self.count_run(from);
    }
}

#[cfg(test)]
mod tests {
    use super::{is_before_block, is_trapped, source_level};
    use brbe_model::ExceptionLevel::{El0, El1, El2};

    #[test]
    fn a_trapped_call_returns_to_itself() {
        assert_eq!(is_trapped(0x1000, 0x1000), Some(true));
        assert_eq!(is_trapped(0x1000, 0x1004), Some(false));
        assert_eq!(is_trapped(0x1000, 0x2000), None);
    }

    #[test]
    fn where_an_exception_was_taken_from() {
        for (spsr, target, source) in [
            (0x3c0, El1, El0),
            (0x3c5, El1, El1),
            (0x3c9, El1, El1), // FEAT_NV
            (0x3c5, El2, El1),
            (0x3c9, El2, El2),
        ] {
            assert_eq!(source_level(spsr, target), source);
        }
    }

    #[test]
    fn which_exceptions_come_before_a_block() {
        let before = |ec: u64, iss: u64| is_before_block(ec << 26 | iss);
        for ec in (0..0x40).filter(|ec| !matches!(ec, 0x1e | 0x32 | 0x33)) {
            // Instruction Aborts, PC alignment, breakpoints.
            let expected = [0x20, 0x21, 0x22, 0x30, 0x31].contains(&ec);
            assert_eq!(before(ec, 0x1ff_ffff), expected, "EC {ec:#x}");
        }
        let (isv, on_fetch) = (1 << 24, 1 << 20);
        for ec in [0x32, 0x33] {
            assert!(before(ec, isv) && !before(ec, !isv & 0x1ff_ffff));
        }
        assert!(before(0x1e, on_fetch) && !before(0x1e, !on_fetch & 0x1ff_ffff));
    }
}
