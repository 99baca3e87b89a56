//! The trail of a vCPU: the blocks that it executed lately, and which branches they took.
//!
//! While a vCPU records, each block that it executes costs a push here and nothing else.
//! What was recorded is worked out of the blocks when software or a reader of the counts
//! may look, or when there is no more room.

use brbe_model::BranchKind;

use crate::block::Block;

/// The number of blocks that a trail has room for.
const ROOM: usize = 2048;

/// The index of the block whose address is asked for, so that the blocks before it need
/// not be gone through if those after it are enough.
const MARK: usize = ROOM - 192;

const PAGE: u64 = 4096;

/// A branch that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrailBranch {
    pub(crate) kind: BranchKind,
    pub(crate) src: u64,
    pub(crate) tgt: u64,
}

/// A number of instructions that were executed, and the branch that was taken then, if
/// one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrailStep {
    pub(crate) instructions: u64,
    pub(crate) branch: Option<TrailBranch>,
}

/// How much of a trail is of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    /// No more than the last branches, this many of them.
    Last(usize),
}

/// The block at the index [`MARK`].
#[derive(Clone, Copy)]
struct Mark {
    /// The block's address.
    start: u64,
    /// The number of addresses in the trail that belong to blocks before it.
    addresses: usize,
}

/// Executed blocks, oldest first; the last is the one that is executed now.
pub(crate) struct Trail {
    blocks: Box<[Block; ROOM]>,
    /// The addresses of the blocks that start after a block that needs the address.
    addresses: Vec<u64>,
    len: usize,
    /// The number of blocks from which on a push has to look closer: there is no room, or
    /// the last block is ambiguous, or there is no block.
    simple: usize,
    /// The address of the first block.
    start: u64,
    mark: Option<Mark>,
}

impl Trail {
    /// A trail without a block, for a vCPU that goes on at `address`.
    pub(crate) fn new(address: u64) -> Self {
        Self {
            blocks: Box::new([Block::default(); ROOM]),
            addresses: Vec::with_capacity(ROOM),
            len: 0,
            simple: 0,
            start: address,
            mark: None,
        }
    }

    /// Forgets the blocks: the vCPU goes on at `address`, for another reason than
    /// a branch.
    pub(crate) fn restart(&mut self, address: u64) {
        self.addresses.clear();
        self.len = 0;
        self.simple = 0;
        self.start = address;
        self.mark = None;
    }

    /// The block that is executed now.
    pub(crate) fn current(&self) -> Option<Block> {
        self.blocks[..self.len].last().copied()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == ROOM
    }

    /// Whether the next block's address is of use, whatever comes before it.
    pub(crate) fn wants_address(&self) -> bool {
        self.len == MARK
    }

    /// The address at which the vCPU went on, if it has executed no block since.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Pushes a block that starts, if it can be pushed as it is: there is room for it,
    /// and the offsets show where the block before it led. Returns whether that was done.
    #[inline]
    pub(crate) fn push(&mut self, block: Block) -> bool {
        if self.len >= self.simple {
            return false;
        }
        self.append(block);
        true
    }

    /// Pushes a block that starts and that could not be pushed as it is. There is room
    /// for it. `address` is the block's address, if it was asked for.
    pub(crate) fn push_with(&mut self, block: Block, address: Option<u64>) {
        let needed = self.current().is_some_and(Block::needs_address);
        self.addresses.extend(address.filter(|_| needed));
        if self.len == MARK {
            self.mark = address.map(|start| Mark {
                start,
                addresses: self.addresses.len(),
            });
        }
        self.simple = if self.len < MARK { MARK } else { ROOM };
        self.append(block);
    }

    #[inline]
    fn append(&mut self, block: Block) {
        if let Some(slot) = self.blocks.get_mut(self.len) {
            *slot = block;
            self.len += 1;
            if block.is_ambiguous() {
                self.simple = 0;
            }
        }
    }

    /// Reports to `each` what was executed up to the current block, and keeps the current
    /// block alone.
    ///
    /// `wanted` is about branches of the kinds that are `selected`. At least one more is
    /// reported than is wanted, so that the cycles between the branches can be counted.
    pub(crate) fn drain(
        &mut self,
        wanted: Wanted,
        selected: impl Fn(BranchKind) -> bool,
        each: impl FnMut(TrailStep),
    ) {
        let Some(last) = self.len.checked_sub(1) else {
            return;
        };
        let blocks = &self.blocks[..self.len];
        let (from, start, used) = match (wanted, self.mark) {
            (Wanted::Last(count), Some(Mark { start, addresses }))
                if count_certain(&blocks[MARK..], selected) > count =>
            {
                (MARK, start, addresses)
            }
            _ => (0, self.start, 0),
        };
        let mut walk = Walk {
            start,
            addresses: self.addresses[used..].iter(),
        };
        blocks[from..]
            .windows(2)
            .map(|pair| walk.step(pair[0], pair[1]))
            .for_each(each);
        let (current, start) = (self.blocks[last], walk.start);
        self.restart(start);
        self.push_with(current, None);
    }

    /// Ends the current block, when all blocks before it are reported. The vCPU leaves it
    /// for `address`, and not for another block. `reached` says whether its branch was
    /// reached.
    pub(crate) fn finish(&mut self, address: u64, reached: bool) -> Option<TrailStep> {
        let current = self.current()?;
        let next = Block::at(address).after_ambiguous(reached);
        let addresses = [address];
        let mut walk = Walk {
            start: self.start,
            addresses: addresses.iter(),
        };
        let step = walk.step(current, next);
        self.restart(address);
        Some(step)
    }

    /// The number of instructions of the current block that were executed before the one
    /// at `end`, when all blocks before it are reported.
    pub(crate) fn run_to(&self, end: u64) -> u64 {
        end.wrapping_sub(self.start) / 4
    }
}

/// A walk along a trail, from block to block.
struct Walk<'a> {
    /// The address of the next block.
    start: u64,
    addresses: std::slice::Iter<'a, u64>,
}

impl Walk<'_> {
    /// Takes the step from `block` to `next`.
    #[inline]
    fn step(&mut self, block: Block, next: Block) -> TrailStep {
        let src = self.start & !(PAGE - 1) | block.last();
        let address = if block.needs_address() {
            self.addresses.next().copied()
        } else {
            None
        };
        let tgt = match block.kind() {
            BranchKind::Indirect | BranchKind::Return | BranchKind::IndirectCall => address,
            _ => Some(src.wrapping_add_signed(block.offset())),
        };
        let branch = match tgt {
            Some(tgt) if block.takes(next) && address.is_none_or(|address| address == tgt) => {
                Some(TrailBranch {
                    kind: block.kind(),
                    src,
                    tgt,
                })
            }
            _ => None,
        };
        self.start = match (branch, address) {
            (Some(TrailBranch { tgt, .. }), _) => tgt,
            (None, Some(address)) => address,
            (None, None) => without_branch(self.start, next),
        };
        TrailStep {
            instructions: block.instructions(next, branch.is_some()),
            branch,
        }
    }
}

/// The number of branches between `blocks` of `selected` kinds that are certain to be
/// taken: for other branches that depends on addresses.
fn count_certain(blocks: &[Block], selected: impl Fn(BranchKind) -> bool) -> usize {
    let certain = |pair: &&[Block]| {
        let kind = pair[0].kind();
        let known = !pair[0].needs_address() || kind != BranchKind::Conditional;
        known & pair[0].takes(pair[1]) && selected(kind)
    };
    blocks.windows(2).filter(certain).count()
}

/// The address of `next`, after the block at `start` was left without a branch: in the
/// same page, or at the start of the next one. A block at the start of a page does not lead
/// to the next one: QEMU's blocks have no more than 512 instructions.
#[inline]
fn without_branch(start: u64, next: Block) -> u64 {
    let page = start & !(PAGE - 1);
    let is_over = next.first() == 0 && start != page;
    let over = if is_over { PAGE } else { 0 };
    page.wrapping_add(over) | next.first()
}

#[cfg(test)]
mod tests;
