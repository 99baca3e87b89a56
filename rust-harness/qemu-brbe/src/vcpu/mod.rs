//! One vCPU with BRBE: follows what it executes and tells the model.

mod flow;
mod state;
mod system;
mod transition;

use std::time::Instant;

use brbe_model::{Brbe, Counter, ExceptionLevel, Pe, Pmu};

use crate::block::Block;
use crate::insn::Site;
use crate::registers::Registers;
use crate::scoreboard::{Scoreboard, Word};
use crate::shared::Shared;

pub(crate) use system::Outcome;

/// What is completed when the next block starts.
#[derive(Clone, Copy)]
enum Pending {
    /// An exception return at `src` in the state `before`.
    ExceptionReturn {
        src: u64,
        before: Pe,
        to_aarch32: bool,
    },
    /// A register that the PE's state depends on was written.
    Refresh,
}

/// A vCPU.
///
/// Only its own thread touches it, while it executes a callback.
pub(crate) struct Vcpu {
    shared: &'static Shared,
    registers: Registers,
    scoreboard: Scoreboard,
    brbe: Brbe,
    pe: Pe,
    pending: Option<Pending>,
    /// The block that is executed, and the address that it starts at.
    block: Block,
    start: u64,
    /// The block ends with a conditional branch to the next instruction, and
    /// that is taken.
    taken_to_next: bool,
    /// Recording is allowed where the vCPU is now.
    recording: bool,
    /// What [`Word::Following`] and [`Word::Active`] are.
    following: bool,
    active: bool,
    /// Branches until the overflow flags are looked at again.
    until_poll: u32,
    /// First instruction executed since the last change of flow. Between two
    /// such changes addresses only go up: their difference is the number of
    /// instructions executed.
    run_start: u64,
    /// Where the vCPU went idle.
    idle_at: Option<u64>,
    started: Instant,
}

/// Branches between two looks at the overflow flags. They change when software
/// writes them, which is seen, or when QEMU's timer finds that a counter has
/// overflowed, at no instruction in particular; the interrupt that QEMU raises
/// with them is seen too.
const POLL_INTERVAL: u32 = 16;

impl Vcpu {
    pub(crate) fn new(
        registers: Registers,
        scoreboard: Scoreboard,
        brbe: Brbe,
        shared: &'static Shared,
    ) -> Self {
        Self {
            shared,
            registers,
            scoreboard,
            brbe,
            pe: Pe::default(),
            pending: None,
            block: Block::default(),
            start: 0,
            taken_to_next: false,
            recording: false,
            following: false,
            active: false,
            until_poll: 0,
            run_start: 0,
            idle_at: None,
            started: Instant::now(),
        }
    }

    // --- what translated code looks at ---------------------------------------------

    /// Sets the words that translated code looks at to the model's state.
    fn publish(&mut self) {
        self.recording = self.brbe.allowed(&self.pe);
        let following = self.recording || self.pending.is_some();
        if following != self.following {
            self.following = following;
            self.scoreboard
                .set(Word::Following, self.shared.index, following);
        }
        let active = self.brbe.may_record(&self.pe);
        if active != self.active {
            self.active = active;
            self.scoreboard.set(Word::Active, self.shared.index, active);
        }
    }

    /// The vCPU goes on at `address`, not because of the block it was in.
    fn jump_to(&mut self, address: u64) {
        self.block = Block::default();
        self.start = address;
        self.run_start = address;
    }

    /// The address of the instruction at `site`, which is about to execute.
    ///
    /// The address known when it was translated need not be the one that it
    /// runs at: only the offset in the page is. The vCPU's PC is somewhere in
    /// the same block, and so in the same page.
    fn address(&self, site: Site) -> u64 {
        let pc = self.registers.read(self.registers.pc);
        pc & !0xfff | site.offset()
    }

    /// Counts the instructions from the last change of flow up to, not
    /// including, the one at `end`.
    fn count_run(&mut self, end: u64) {
        if self.recording {
            let count = end.wrapping_sub(self.run_start) / 4;
            self.shared.counts.instructions.add(count);
        }
    }

    /// Cycles: instructions executed where recording was allowed.
    fn now(&self) -> u64 {
        self.shared.counts.instructions.get()
    }

    /// A record was made, or not.
    fn note_record(&mut self, recorded: bool) {
        if recorded {
            self.shared.counts.records.add(1);
            if let Some(log) = &self.shared.log {
                log.record(self.brbe.youngest());
            }
        }
    }

    // --- freezing --------------------------------------------------------------

    /// Freezes if an overflow flag asks for it; level-sensitive, so it is asked
    /// before all that a freeze would change.
    fn check_freeze(&mut self) {
        self.until_poll = POLL_INTERVAL;
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
            self.shared.counts.freezes.add(1);
            if let Some(log) = &self.shared.log {
                log.freeze();
            }
            self.publish();
        }
    }

    /// Before an instruction that changes an overflow flag, or makes one freeze.
    pub(crate) fn before_pmu_write(&mut self) {
        self.check_freeze();
        self.until_poll = 0;
    }

    // --- idling and reset ------------------------------------------------------------

    /// The vCPU has nothing to execute.
    pub(crate) fn idle(&mut self) {
        self.idle_at = Some(self.registers.read(self.registers.pc));
        if let Some(log) = &self.shared.log {
            log.flush();
        }
    }

    /// It goes on. At another address than it stopped at, it was reset: QEMU
    /// tells no plugin of that.
    pub(crate) fn resume(&mut self) {
        let pc = self.registers.read(self.registers.pc);
        if self.idle_at.take().is_some_and(|idle_at| idle_at != pc) {
            self.brbe.warm_reset();
            self.shared.counts.resets.add(1);
            if let Some(log) = &self.shared.log {
                log.reset();
            }
            self.pending = None;
            self.jump_to(pc);
            self.pe = self.read_pe();
            self.publish();
        }
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
