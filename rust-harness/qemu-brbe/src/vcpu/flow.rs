//! From block to block: which branches were taken.

use brbe_model::{BranchKind, Decoded, decode};

use super::{Pending, Vcpu};
use crate::block::{Block, End};
use crate::insn::Site;
use crate::scoreboard::Word;

/// What is known of the address that the vCPU goes on at.
#[derive(Clone, Copy)]
enum Next {
    /// Bits 11:0, from the block that starts there.
    Offset(u64),
    /// All of it.
    Address(u64),
}

impl Vcpu {
    /// A block starts.
    pub(crate) fn block_start(&mut self, block: Block) {
        if self.pending.is_some() {
            self.complete(self.registers.read(self.registers.pc), self.read_pe());
        } else {
            self.start = self.leave(Next::Offset(block.first()));
        }
        self.block = block;
        if block.is_ambiguous() {
            self.scoreboard.set(Word::Reached, self.shared.index, false);
        }
    }

    /// The block ends because an exception was taken, with `address` what would
    /// have been executed next.
    pub(super) fn interrupt_block(&mut self, address: u64) {
        self.start = self.leave(Next::Address(address));
        self.block = Block::default();
    }

    /// The address that the current block leads to, the branch there recorded.
    fn leave(&mut self, next: Next) -> u64 {
        let block = self.block;
        let src = self.start & !0xfff | block.last();
        let reached =
            !block.is_ambiguous() || self.scoreboard.get(Word::Reached, self.shared.index);
        match block.end() {
            _ if !reached => self.fall_through(next),
            End::None => self.fall_through(next),
            End::Direct { kind, offset } => {
                let tgt = src.wrapping_add_signed(offset);
                if self.takes(kind, src, tgt, next) {
                    self.branch(kind, src, tgt);
                    tgt
                } else {
                    self.fall_through(next)
                }
            }
            End::Indirect { kind } => {
                let tgt = self.resolve(next);
                self.branch(kind, src, tgt);
                tgt
            }
        }
    }

    /// Is the direct branch at `src` taken, if the vCPU goes on at `next`?
    fn takes(&self, kind: BranchKind, src: u64, tgt: u64, next: Next) -> bool {
        let not_taken = src.wrapping_add(4);
        if kind == BranchKind::Conditional && tgt == not_taken {
            return self.taken_to_next;
        }
        match next {
            Next::Address(address) => address == tgt,
            Next::Offset(offset) if offset != tgt & 0xfff => false,
            Next::Offset(offset) => {
                kind != BranchKind::Conditional
                    || offset != not_taken & 0xfff
                    || self.resolve(next) == tgt
            }
        }
    }

    /// The next address, asked of QEMU where it is not known.
    fn resolve(&self, next: Next) -> u64 {
        match next {
            Next::Address(address) => address,
            Next::Offset(_) => self.registers.read(self.registers.pc),
        }
    }

    /// The next address without a branch: in this page, or the first of the next
    /// one.
    fn fall_through(&self, next: Next) -> u64 {
        match next {
            Next::Address(address) => address,
            Next::Offset(0) if self.start & 0xfff != 0 => (self.start | 0xfff).wrapping_add(1),
            Next::Offset(offset) => self.start & !0xfff | offset,
        }
    }

    fn branch(&mut self, kind: BranchKind, src: u64, tgt: u64) {
        match self.until_poll.checked_sub(1) {
            Some(left) => self.until_poll = left,
            None => self.check_freeze(),
        }
        self.count_run(src.wrapping_add(4));
        self.run_start = tgt;
        let now = self.now();
        let recorded = self.brbe.branch(&self.pe, kind, src, tgt, now);
        self.note_record(recorded);
    }

    /// A conditional branch to the next instruction is about to execute.
    pub(crate) fn conditional_to_next(&mut self, site: Site) {
        if let Some(Decoded::Direct {
            condition: Some(condition),
            ..
        }) = decode(site.word())
        {
            let r = &self.registers;
            // PSTATE.NZCV in bits 31:28.
            let nzcv = r.read(r.cpsr) as u32;
            self.taken_to_next = condition.holds(nzcv, |n| r.read_x(n));
        }
    }

    /// A register that the PE's state depends on is about to be written.
    pub(crate) fn before_state_write(&mut self) {
        self.until_poll = 0;
        if self.pending.is_none() {
            self.pending = Some(Pending::Refresh);
            self.publish();
        }
    }
}
