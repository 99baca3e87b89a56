//! Translated blocks: where one starts, and what branch ends it.

use brbe_model::{BranchKind, Decoded, decode};

/// The branch instruction that ends a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It ends without one: at a page's end, at a system instruction, or because
    /// it became too long.
    None,
    /// A branch to its own address plus `offset` bytes.
    Direct { kind: BranchKind, offset: i64 },
    /// A branch to where a register says.
    Indirect { kind: BranchKind },
}

/// A block, packed into the word that QEMU hands to a callback, so that nothing
/// is allocated and nothing looked up.
///
/// It knows the offsets in its page only: QEMU shares translated code between
/// all addresses that a page is mapped at.
///
/// | bits | |
/// |---|---|
/// | 9:0 | its first instruction, in words from the start of the page |
/// | 19:10 | its last instruction |
/// | 45:20 | distance of a direct branch's target from the branch, in words |
/// | 48:46 | kind of the branch |
/// | 49 | there is a branch |
/// | 50 | see [`Block::is_ambiguous`] |
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

/// Bytes in the smallest page: blocks do not go over the end of one.
const PAGE: u64 = 4096;

impl Block {
    /// The block from the instruction at `first` to the one at `last`, which is
    /// `word`.
    pub(crate) fn new(first: u64, last: u64, word: u32) -> Self {
        let (first, last) = (first % PAGE, last % PAGE);
        let place = first / 4 | last / 4 << 10;
        let branch = |kind: BranchKind, offset: i64| {
            let kind = KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u64;
            let distance = (offset / 4).cast_unsigned() & 0x3ff_ffff;
            BRANCH | kind << 46 | distance << 20
        };
        Self(match decode(word) {
            Some(Decoded::Direct { kind, offset, .. }) => {
                let target = last.wrapping_add_signed(offset) % PAGE;
                let within = (first..=last).contains(&target);
                let ambiguous = if within { AMBIGUOUS } else { 0 };
                place | branch(kind, offset) | ambiguous
            }
            Some(Decoded::Indirect(kind)) => place | branch(kind, 0) | AMBIGUOUS,
            _ => place,
        })
    }

    pub(crate) fn from_userdata(userdata: *mut std::ffi::c_void) -> Self {
        Self(userdata.addr() as u64)
    }

    pub(crate) fn into_userdata(self) -> *mut std::ffi::c_void {
        std::ptr::without_provenance_mut(self.0 as usize)
    }

    /// Bits 11:0 of the first instruction's address.
    pub(crate) fn first(self) -> u64 {
        (self.0 & 0x3ff) << 2
    }

    /// Bits 11:0 of the last instruction's address.
    pub(crate) fn last(self) -> u64 {
        (self.0 >> 10 & 0x3ff) << 2
    }

    /// The branch that ends it.
    pub(crate) fn end(self) -> End {
        if self.0 & BRANCH == 0 {
            return End::None;
        }
        let kind = KINDS[(self.0 >> 46 & 7) as usize % KINDS.len()];
        match kind {
            BranchKind::Indirect | BranchKind::Return | BranchKind::IndirectCall => {
                End::Indirect { kind }
            }
            _ => {
                // Sign-extends bits 45:20, and turns words into bytes.
                let offset = (self.0 << 18).cast_signed() >> 38 << 2;
                End::Direct { kind, offset }
            }
        }
    }

    /// What comes next may be the branch's target as well as an instruction of
    /// this block: QEMU leaves a block in the middle and comes back to it, for
    /// instance at an access to a device. Translated code then says whether the
    /// branch was reached.
    pub(crate) fn is_ambiguous(self) -> bool {
        self.0 & AMBIGUOUS != 0
    }
}

/// Is `word` a conditional branch to the instruction behind it? Whether it is
/// taken does not show in where it leads.
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
        let end = End::Direct {
            kind: BranchKind::Conditional,
            offset: -8,
        };
        assert_eq!(back.end(), end);
    }

    #[test]
    fn the_farthest_targets_fit() {
        for (word, kind, offset) in [
            (0x15ff_ffff, BranchKind::Direct, (1 << 27) - 4), // b .+128M-4
            (0x9600_0000, BranchKind::DirectCall, -(1 << 27)), // bl .-128M
            (0x5400_0020, BranchKind::Conditional, 4),        // b.eq .+4
        ] {
            assert_eq!(Block::new(0, 0, word).end(), End::Direct { kind, offset });
        }
        for (word, kind) in [
            (RET, BranchKind::Return),
            (0xd61f_0120, BranchKind::Indirect),
            (0xd63f_0120, BranchKind::IndirectCall),
        ] {
            assert_eq!(Block::new(0, 8, word).end(), End::Indirect { kind });
        }
        assert_eq!(Block::new(0, 8, NOP).end(), End::None);
    }

    #[test]
    fn a_target_in_the_same_block_is_ambiguous() {
        // b.ne .-8 at 0x108.
        let ends = |first: u64, last: u64, word| Block::new(first, last, word).is_ambiguous();
        assert!(ends(0x100, 0x108, 0x54ff_ffc1));
        assert!(ends(0xf0, 0x108, 0x54ff_ffc1));
        assert!(!ends(0x104, 0x108, 0x54ff_ffc1));
        // b .+4096-4: the same offset in the next page.
        assert!(ends(0x100, 0x108, 0x1400_03ff));
        assert!(ends(0x100, 0x108, RET));
        assert!(!ends(0x100, 0x108, NOP));
    }

    #[test]
    fn conditional_to_next() {
        assert!(is_conditional_to_next(0x5400_0020)); // b.eq .+4
        assert!(is_conditional_to_next(0xb400_0029)); // cbz x9, .+4
        assert!(!is_conditional_to_next(0x5400_0040)); // b.eq .+8
        assert!(!is_conditional_to_next(0x1400_0001)); // b .+4
    }
}
