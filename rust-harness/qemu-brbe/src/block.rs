//! Translated blocks: where one starts, and what branch ends it.

use brbe_model::{BranchKind, Decoded, decode};

/// A block, packed into the word that QEMU hands to a callback, so that nothing
/// is allocated and nothing looked up.
///
/// A block knows only the offsets in its page: QEMU shares translated code between all
/// addresses that a page is mapped at.
///
/// | bits | |
/// |---|---|
/// | 9:0 | the first instruction, in words from the start of the page |
/// | 19:10 | the last instruction |
/// | 45:20 | the distance from a direct branch to its target, in words |
/// | 48:46 | the kind of the branch |
/// | 49 | there is a branch |
/// | 50 | see [`Block::is_ambiguous`] |
/// | 51 | see [`Block::needs_address`] |
/// | 52 | set when the block starts: the branch of the ambiguous block before was reached |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block(u64);

const KINDS: [BranchKind; 6] = [
    BranchKind::Direct,
    BranchKind::Indirect,
    BranchKind::Return,
    BranchKind::IndirectCall,
    BranchKind::DirectCall,
    BranchKind::Conditional,
];

const BRANCH: u64 = 1 << 49;
const AMBIGUOUS: u64 = 1 << 50;
const NEEDS_ADDRESS: u64 = 1 << 51;
const REACHED: u64 = 1 << 52;

/// The number of bytes in the smallest page: blocks do not go over the end of one.
const PAGE: u64 = 4096;

impl Block {
    /// The block from the instruction at the address `first` to the one at `last`, whose
    /// word is `word`.
    pub(crate) fn new(first: u64, last: u64, word: u32) -> Self {
        let (first, last) = (first % PAGE, last % PAGE);
        let place = (first / 4) | ((last / 4) << 10);
        let branch = |kind: BranchKind, offset: i64| {
            let kind = KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u64;
            let distance = (offset / 4).cast_unsigned() & 0x3ff_ffff;
            BRANCH | kind << 46 | distance << 20
        };
        Self(match decode(word) {
            Some(Decoded::Direct { kind, offset, .. }) => {
                let target = last.wrapping_add_signed(offset) % PAGE;
                let falls = kind == BranchKind::Conditional && target == (last + 4) % PAGE;
                let flags = match first < target && target <= last {
                    _ if falls => AMBIGUOUS | NEEDS_ADDRESS,
                    true => AMBIGUOUS,
                    false => 0,
                };
                place | branch(kind, offset) | flags
            }
            Some(Decoded::Indirect(kind)) => place | branch(kind, 0) | AMBIGUOUS | NEEDS_ADDRESS,
            _ => place,
        })
    }

    /// No block, but a vCPU that is at `address`.
    pub(crate) fn at(address: u64) -> Self {
        Self(address % PAGE / 4)
    }

    #[inline]
    pub(crate) fn from_userdata(userdata: *mut std::ffi::c_void) -> Self {
        Self(userdata.addr() as u64)
    }

    pub(crate) fn into_userdata(self) -> *mut std::ffi::c_void {
        qemu_plugin::userdata(self.0)
    }

    /// Bits 11:0 of the first instruction's address.
    #[inline]
    pub(crate) fn first(self) -> u64 {
        (self.0 & 0x3ff) << 2
    }

    /// Bits 11:0 of the last instruction's address.
    #[inline]
    pub(crate) fn last(self) -> u64 {
        (self.0 >> 10 & 0x3ff) << 2
    }

    /// Bits 11:0 of a direct branch's target.
    #[inline]
    pub(crate) fn target(self) -> u64 {
        let distance = self.0 >> 20 & 0x3ff;
        ((self.0 >> 10).wrapping_add(distance) & 0x3ff) << 2
    }

    /// Whether the block is ambiguous: where it led does not show in the offset of what
    /// comes next, and translated code has to report whether its branch was reached. That
    /// is so for
    ///
    /// * an indirect branch;
    /// * a target within this block: QEMU leaves a block in the middle and comes back to
    ///   it, for instance at an access to a device;
    /// * a conditional branch whose target has the offset of the instruction after it. If
    ///   it is that instruction, only a taken branch counts as reached.
    #[inline]
    pub(crate) fn is_ambiguous(self) -> bool {
        self.0 & AMBIGUOUS != 0
    }

    /// Whether the vCPU has to be asked where the block led: that does not follow from
    /// the block's branch and the offset of what comes next.
    #[inline]
    pub(crate) fn needs_address(self) -> bool {
        self.0 & NEEDS_ADDRESS != 0
    }

    /// This block, started after an ambiguous block whose branch was reached or not.
    pub(crate) fn after_ambiguous(self, reached: bool) -> Self {
        Self(self.0 | if reached { REACHED } else { 0 })
    }

    /// Whether the branch of this block leads to `next`, as far as is known without an
    /// address.
    #[inline]
    pub(crate) fn takes(self, next: Self) -> bool {
        let may = self.0 & BRANCH != 0;
        let reached = !self.is_ambiguous() | (next.0 & REACHED != 0);
        let aims = self.needs_address() | (next.first() == self.target());
        may & reached & aims
    }

    /// The number of instructions of this block that were executed, if `next` was
    /// executed after it, and this block was left by its branch or not. None were if the
    /// block starts again: QEMU left it at its first instruction.
    #[inline]
    pub(crate) fn instructions(self, next: Self, by_branch: bool) -> u64 {
        let inside = (self.first() <= next.first()) & (next.first() <= self.last());
        let end = if inside & !by_branch {
            next.first()
        } else {
            self.last() + 4
        };
        (end - self.first()) / 4
    }

    /// The branch's kind; without a branch it means nothing.
    #[inline]
    pub(crate) fn kind(self) -> BranchKind {
        KINDS[(self.0 >> 46 & 7) as usize % KINDS.len()]
    }

    /// The distance from the branch to its target in bytes, if the branch is direct.
    #[inline]
    pub(crate) fn offset(self) -> i64 {
        // Sign-extends bits 45:20, and turns words into bytes.
        (self.0 << 18).cast_signed() >> 38 << 2
    }
}

/// Whether `word` is a conditional branch to the instruction after it. Whether such a
/// branch is taken does not show in where it leads.
pub(crate) fn is_conditional_to_next(word: u32) -> bool {
    matches!(
        decode(word),
        Some(Decoded::Direct {
            kind: BranchKind::Conditional,
            offset: 4,
            ..
        })
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;

    #[test]
    fn a_block_survives_the_way_through_qemu() {
        // b.ne .-8, the last of four instructions.
        let block = Block::new(0xffff_8000_1234_5ff0, 0xffff_8000_1234_5ffc, 0x54ff_ffc1);
        let back = Block::from_userdata(block.into_userdata());
        assert_eq!((back.first(), back.last()), (0xff0, 0xffc));
        assert_eq!((back.kind(), back.offset()), (BranchKind::Conditional, -8));
    }

    #[test]
    fn the_farthest_targets_fit() {
        for (word, kind, offset) in [
            (0x15ff_ffff, BranchKind::Direct, (1 << 27) - 4), // b .+128M-4
            (0x9600_0000, BranchKind::DirectCall, -(1 << 27)), // bl .-128M
            (0x5400_0020, BranchKind::Conditional, 4),        // b.eq .+4
        ] {
            let block = Block::new(0, 0x40, word);
            assert_eq!((block.kind(), block.offset()), (kind, offset));
            assert_eq!(block.target(), (0x40 + offset).rem_euclid(4096) as u64);
        }
        for (word, kind) in [
            (RET, BranchKind::Return),
            (0xd61f_0120, BranchKind::Indirect),
            (0xd63f_0120, BranchKind::IndirectCall),
        ] {
            let block = Block::new(0, 8, word);
            assert_eq!((block.kind(), block.needs_address()), (kind, true));
        }
    }

    #[test]
    fn a_block_without_a_branch_takes_none() {
        let block = Block::new(0, 8, NOP);
        assert!((0..1024).all(|n| !block.takes(Block::at(n * 4))));
        assert_eq!(block.instructions(Block::at(12), false), 3);
        // The block is left in the middle.
        assert_eq!(block.instructions(Block::at(8), false), 2);
        assert_eq!(block.instructions(Block::at(0), false), 0);
        assert_eq!(
            Block::new(8, 0xffc, NOP).instructions(Block::at(0), false),
            1022
        );
    }

    /// b.ne .-4 in a block that starts before the branch's target. At 0x104, the branch
    /// may have been taken, or the block was left there and come back to.
    #[test]
    fn an_ambiguous_branch_is_taken_if_it_was_reached() {
        let block = Block::new(0x100, 0x108, 0x54ff_ffe1);
        let next = Block::at(0x104);
        assert!(!block.takes(next));
        assert!(block.takes(next.after_ambiguous(true)));
        assert_eq!(block.instructions(next, false), 1);
        assert_eq!(block.instructions(next, true), 3);
    }

    #[test]
    fn what_is_ambiguous() {
        // b.ne .-8 at 0x108.
        let ambiguous = |first: u64, last: u64, word| Block::new(first, last, word).is_ambiguous();
        assert!(!ambiguous(0x100, 0x108, 0x54ff_ffc1));
        assert!(ambiguous(0xf0, 0x108, 0x54ff_ffc1));
        assert!(!ambiguous(0x104, 0x108, 0x54ff_ffc1));
        // b .+4096-4: the offset of an instruction of this block, in the next page.
        assert!(ambiguous(0x100, 0x108, 0x1400_03ff));
        // b.eq .+4 and .+4096+4, b .+4.
        assert!(ambiguous(0x100, 0x108, 0x5400_0020));
        assert!(ambiguous(0x100, 0x108, 0x5400_8020));
        assert!(!ambiguous(0x100, 0x108, 0x1400_0001));
        assert!(ambiguous(0x100, 0x108, RET));
        assert!(!ambiguous(0x100, 0x108, NOP));
    }

    #[test]
    fn conditional_to_next() {
        assert!(is_conditional_to_next(0x5400_0020)); // b.eq .+4
        assert!(is_conditional_to_next(0xb400_0029)); // cbz x9, .+4
        assert!(!is_conditional_to_next(0x5400_0040)); // b.eq .+8
        assert!(!is_conditional_to_next(0x1400_0001)); // b .+4
    }
}
