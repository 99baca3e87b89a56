//! Follows a vCPU from block to block: which branches were taken.

use brbe_model::{Decoded, ExceptionLevel, decode};

use super::{Pending, Vcpu};
use crate::block::Block;
use crate::insn::Site;
use crate::trail::{TrailBranch, TrailStep, Wanted};
use crate::watch::{Place, PmuState, WatchedBlock};
use crate::words::Word;

/// The number of the register that has the address to return to.
const LR: u8 = 30;

impl Vcpu {
    /// Called when a block starts.
    #[inline]
    pub(crate) fn block_start(&mut self, block: Block) {
        if !self.trail.push(block) {
            self.block_start_slowly(block);
        }
    }

    /// Handles a block that starts and that the trail did not take: the trail is full, or
    /// empty because something is to be completed, or the last block needs a closer look.
    #[inline(never)]
    fn block_start_slowly(&mut self, block: Block) {
        let pc = || self.registers.read(self.registers.pc);
        let Some(last) = self.trail.current() else {
            let due = self.pending.is_some() || self.idle_at.is_some();
            if due || self.trail.start() & 0xfff != block.first() {
                let pc = pc();
                self.wake(pc);
                self.complete(pc, self.read_pe());
            }
            // The word may have been set by code that was executed and not followed.
            self.take_reached();
            self.trail.push_with(block, None);
            return;
        };
        let address = (last.needs_address() || self.trail.wants_address()).then(pc);
        let block = if last.is_ambiguous() {
            block.after_ambiguous(self.take_reached())
        } else {
            block
        };
        if self.trail.is_full() {
            self.drain();
            self.check_freeze();
        }
        self.trail.push_with(block, address);
    }

    /// Called when a block starts that may be of a watched call.
    pub(crate) fn watched_block(&mut self, block: WatchedBlock) {
        let Some(watch) = &self.shared.watch else {
            return;
        };
        let r = &self.registers;
        let place = Place {
            address: block.address(r.read(r.pc)),
            sp: r.read(r.sp),
        };
        let pmu = PmuState {
            overflow: r.read(r.pmovsset),
            pmcr: r.read(r.pmcr),
        };
        let was_called = self.call.is_some();
        watch.block(&mut self.call, place, block, r.read_x(LR), pmu);
        let is_called = self.call.is_some();
        if is_called != was_called {
            let index = self.shared.index;
            self.scoreboard.set(Word::Called, index, is_called.into());
        }
    }

    /// Whether the current block's branch was reached. Translated code reports that once:
    /// the word is cleared.
    fn take_reached(&self) -> bool {
        self.scoreboard.take(Word::Reached, self.shared.index) != 0
    }

    /// Passes the branches on the trail to the model. To be called before the model
    /// learns of anything that comes after them.
    pub(super) fn drain(&mut self) {
        let (shared, brbe) = (self.shared, &mut self.brbe);
        let Some(region) = &self.region else { return };
        let wanted = if shared.counts_exactly {
            Wanted::All
        } else {
            Wanted::Last(brbe.config().records.count())
        };
        let selected = |kind| region.selects(kind);
        self.trail.drain(wanted, selected, |step| {
            shared.counts.instructions.add(step.instructions);
            if let Some(TrailBranch { kind, src, tgt }) = step.branch {
                let now = shared.counts.instructions.get();
                if brbe.branch_in(region, kind, src, tgt, now) {
                    shared.note_record(brbe);
                }
            }
        });
    }

    /// Ends the current block, which is left for `address`, by an interrupt or because
    /// the next instruction cannot be fetched.
    pub(super) fn finish_block(&mut self, address: u64) {
        if self.region.is_none() {
            self.trail.restart(address);
            return;
        }
        self.drain();
        let reached = self.take_reached();
        let Some(TrailStep {
            instructions,
            branch,
        }) = self.trail.finish(address, reached)
        else {
            return;
        };
        self.shared.counts.instructions.add(instructions);
        if let Some(TrailBranch { kind, src, tgt }) = branch
            && self.brbe.branch(&self.pe, kind, src, tgt, self.now())
        {
            self.shared.note_record(&self.brbe);
        }
    }

    /// Called before a semihosting call, which may end QEMU.
    pub(crate) fn before_host_call(&mut self) {
        self.drain();
    }

    /// Called before a conditional branch to the next instruction executes.
    pub(crate) fn conditional_to_next(&mut self, site: Site) {
        if let Some(Decoded::Direct {
            condition: Some(condition),
            ..
        }) = decode(site.word())
        {
            let r = &self.registers;
            // PSTATE.NZCV in bits 31:28.
            let nzcv = r.read(r.cpsr) as u32;
            let taken = condition.holds(nzcv, |n| r.read_x(n));
            let index = self.shared.index;
            self.scoreboard.set(Word::Reached, index, taken.into());
        }
    }

    /// Called before an instruction writes a register that the PE's state depends on. Below
    /// EL2 it writes none: it raises an exception, or HCR_EL2.NV2 makes it a store, after
    /// which the block goes on.
    pub(crate) fn before_state_write(&mut self, site: Site) {
        let el = ExceptionLevel::from_bits(self.pstate() >> 2);
        if !self.aarch32 && el >= ExceptionLevel::El2 {
            self.before_last_write(site);
        }
    }

    /// Called before an instruction writes a register that the freezing depends on.
    pub(crate) fn before_pmu_write(&mut self, site: Site) {
        self.before_last_write(site);
    }

    /// Prepares for a write of a register by the last instruction of a block.
    fn before_last_write(&mut self, site: Site) {
        let address = self.address(site);
        self.drain();
        self.check_freeze();
        self.count_run(address.wrapping_add(4));
        self.trail.restart(address.wrapping_add(4));
        self.pending = Some(Pending::Refresh);
        self.publish();
    }
}
