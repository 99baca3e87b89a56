//! One vCPU with BRBE: follows what the vCPU executes, and passes it to the model.

mod flow;
mod state;
mod system;
mod transition;

use std::time::Instant;

use brbe_model::{Brbe, Counter, ExceptionLevel, Pe, Pmu, Region};

use crate::insn::Site;
use crate::registers::Registers;
use crate::shared::Shared;
use crate::trail::Trail;
use crate::watch::WatchedCall;
use crate::words::{Scoreboard, Word};

pub(crate) use system::SystemEffect;

/// What is to be completed when the next block starts.
#[derive(Clone, Copy)]
enum Pending {
    /// An exception return at `src` in the state `before`.
    ExceptionReturn { src: u64, before: Pe },
    /// A register that the PE's state depends on was written.
    Refresh,
}

/// A vCPU with BRBE.
///
/// Only its own thread touches it, while it executes a callback.
pub(crate) struct Vcpu {
    shared: &'static Shared,
    registers: Registers,
    scoreboard: Scoreboard,
    brbe: Brbe,
    pe: Pe,
    pending: Option<Pending>,
    /// The address of the last SVC, HVC or SMC, until its exception is taken.
    called_at: Option<u64>,
    trail: Trail,
    /// Whether the vCPU executes A32 or T32: no word then means what it means in A64.
    /// QEMU's registers do not show that, exception returns do.
    aarch32: bool,
    /// The region that the vCPU is in, if branches are recorded there.
    region: Option<Region>,
    /// `following` and `active` are the values of [`Word::Following`] and
    /// [`Word::Active`].
    following: bool,
    active: bool,
    /// Whether software has accessed BRBE since the last reset.
    touched: bool,
    /// The address at which the vCPU went idle, while it is idle.
    idle_at: Option<u64>,
    /// The call of the watched function that has not returned.
    call: Option<WatchedCall>,
    started: Instant,
}

impl Vcpu {
    pub(crate) fn new(
        registers: Registers,
        scoreboard: Scoreboard,
        brbe: Brbe,
        shared: &'static Shared,
    ) -> Self {
        let mut vcpu = Self {
            shared,
            registers,
            scoreboard,
            brbe,
            pe: Pe::default(),
            // The state is read when the first block starts.
            pending: Some(Pending::Refresh),
            called_at: None,
            trail: Trail::new(0),
            aarch32: false,
            region: None,
            following: false,
            active: false,
            touched: false,
            idle_at: None,
            call: None,
            started: Instant::now(),
        };
        vcpu.publish();
        vcpu
    }

    // --- what translated code looks at ---------------------------------------------

    /// Sets the words that translated code looks at to the model's state.
    fn publish(&mut self) {
        self.region = self.brbe.region(&self.pe);
        let following = self.region.is_some() || self.pending.is_some() || self.idle_at.is_some();
        if following != self.following {
            self.following = following;
            self.scoreboard
                .set(Word::Following, self.shared.index, following.into());
        }
        let active = self.brbe.may_record(&self.pe);
        if active != self.active {
            self.active = active;
            self.scoreboard
                .set(Word::Active, self.shared.index, active.into());
        }
    }

    /// The address of the instruction at `site`, which is about to execute.
    ///
    /// The address known when the instruction was translated need not be the one that it
    /// runs at: only the offset in the page is. The vCPU's PC is somewhere in the same
    /// block, and so in the same page.
    fn address(&self, site: Site) -> u64 {
        let pc = self.registers.read(self.registers.pc);
        pc & !0xfff | site.offset()
    }

    /// Counts the instructions since the last change of flow up to, not
    /// including, the one at `end`.
    fn count_run(&mut self, end: u64) {
        if self.region.is_some() {
            self.shared.counts.instructions.add(self.trail.run_to(end));
        }
    }

    /// The current time in cycles: the number of instructions executed where recording
    /// was allowed.
    fn now(&self) -> u64 {
        self.shared.counts.instructions.get()
    }

    // --- freezing --------------------------------------------------------------

    /// Freezes BRBE if an overflow flag asks for it. The trail has to be drained before.
    ///
    /// The flags are level-sensitive. So they are looked at before and after all that
    /// software or an exception changes, and now and then in between: QEMU's timer sets a
    /// flag at no instruction in particular, and interrupts with it.
    fn check_freeze(&mut self) {
        let is_freeze = self.brbe.brbcr_el1().fzp() || self.brbe.brbcr_el2().fzp();
        if self.region.is_none() || !is_freeze {
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
            self.shared.counts.freezes.add(1);
            if let Some(log) = &self.shared.log {
                log.freeze();
            }
            self.publish();
        }
    }

    // --- idling and reset ------------------------------------------------------------

    /// Called when the vCPU has nothing to execute, until something wakes or resets it.
    pub(crate) fn idle(&mut self) {
        let pc = self.registers.read(self.registers.pc);
        if self.pending.is_none() {
            self.finish_block(pc);
        }
        self.idle_at = Some(pc);
        self.publish();
        if let Some(log) = &self.shared.log {
            log.flush();
        }
    }

    /// Called when the vCPU goes on at `pc`. If it was idle at another address, it was
    /// reset: QEMU reports a reset to no plugin.
    fn wake(&mut self, pc: u64) {
        let moved = self.idle_at.take().is_some_and(|idle_at| idle_at != pc);
        if moved && self.touched {
            self.brbe.warm_reset();
            self.shared.counts.resets.add(1);
            if let Some(log) = &self.shared.log {
                log.reset();
            }
        }
        if moved {
            self.touched = false;
            self.pending = None;
            self.aarch32 = false;
        }
    }
}

/// The index of ESR, ELR and SPSR of an Exception level that exceptions are taken to;
/// `None` for EL0.
fn level(el: ExceptionLevel) -> Option<usize> {
    (el as usize).checked_sub(1)
}

/// The generic timer's count: the time since the vCPU started, at the frequency that
/// software reads in CNTFRQ_EL0.
fn counter(registers: &Registers, started: Instant) -> Counter {
    let frequency = u128::from(registers.read(registers.cntfrq));
    let physical = (started.elapsed().as_nanos() * frequency / 1_000_000_000) as u64;
    let virtual_offset = registers.el2().map_or(0, |el2| registers.read(el2.cntvoff));
    Counter {
        physical,
        virtual_offset,
        physical_offset: physical_offset(registers).unwrap_or(0),
    }
}

/// The offset of the physical count: CNTPOFF_EL2, where CNTHCTL_EL2.ECV and SCR_EL3.ECVEn
/// make it count.
fn physical_offset(r: &Registers) -> Option<u64> {
    let [offset, control] = r.el2()?.physical_offset?;
    let ecv = r.read(control) >> 12 & 1 != 0;
    let ecven = r.el3.is_none_or(|el3| r.read(el3.scr) >> 28 & 1 != 0);
    (ecv && ecven).then(|| r.read(offset))
}
