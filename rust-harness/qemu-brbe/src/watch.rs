//! `watch=START-END`, `watch-log=FILE`: each block executed in a range of
//! addresses, and what a counter overflow and an interrupt hit there.
//!
//! ```text
//! 0 block 0xffff800080b5d398 5
//! 0 overflow 0x80000000
//! 0 block 0xffff800080b5d3ac 1
//! 0 interrupt 0xffff800080b5d3b0 0x1
//! ```
//!
//! A line `block` has the block's address and its number of instructions. A line
//! `overflow` has the value of PMOVSSET_EL0. It comes before the first block that finds a
//! bit set there that was not set for the block before it. Where QEMU ends a block at
//! each event (`-icount`), it comes right after an instruction. A line `interrupt` has
//! the address of the instruction that the interrupt came before, and the value of
//! PMOVSSET_EL0.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::log::Log;

/// A block of watched code: the offset of its first instruction in the page, and its
/// number of instructions. The block's address is known when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchedBlock {
    offset: u16,
    instructions: u16,
}

impl WatchedBlock {
    pub(crate) fn new(first: u64, instructions: usize) -> Self {
        Self {
            offset: (first & 0xfff) as u16,
            instructions: u16::try_from(instructions).unwrap_or(u16::MAX),
        }
    }

    pub(crate) fn into_userdata(self) -> *mut c_void {
        let packed = usize::from(self.offset) << 16 | usize::from(self.instructions);
        qemu_plugin::userdata(packed as u64)
    }

    pub(crate) fn from_userdata(userdata: *mut c_void) -> Self {
        let packed = userdata.addr();
        Self {
            offset: (packed >> 16) as u16,
            instructions: packed as u16,
        }
    }

    /// The block's address, where `pc` is in the same page.
    fn address(self, pc: u64) -> u64 {
        pc & !0xfff | u64::from(self.offset)
    }
}

/// Ranges of virtual addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Parses ranges such as `0x1000-0x1040:0x2000-0x2080`. The end is not part of a
    /// range.
    pub(crate) fn parse(list: &str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let range = |text: &str| {
            let (start, end) = text.split_once('-')?;
            let range = number(start)?..number(end)?;
            (!range.is_empty()).then_some(range)
        };
        list.split(':').map(range).collect::<Option<_>>().map(Self)
    }

    pub(crate) fn contain(&self, address: u64) -> bool {
        self.0.iter().any(|range| range.contains(&address))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The watch of one vCPU: its ranges of addresses, and its log.
#[derive(Debug)]
pub(crate) struct Watch {
    log: Log,
    ranges: Ranges,
    /// The value of PMOVSSET_EL0 that the last block found.
    overflow: AtomicU64,
}

impl Watch {
    pub(crate) fn new(log: Log, ranges: Ranges) -> Self {
        Self {
            log,
            ranges,
            overflow: AtomicU64::new(0),
        }
    }

    /// Logs a watched block that starts.
    pub(crate) fn block(&self, block: WatchedBlock, pc: u64, overflow: u64) {
        // The vCPU's thread alone calls this.
        if overflow & !self.overflow.swap(overflow, Ordering::Relaxed) != 0 {
            self.log.line(format_args!("overflow {overflow:#x}"));
        }
        let (address, instructions) = (block.address(pc), block.instructions);
        self.log
            .line(format_args!("block {address:#x} {instructions}"));
    }

    /// Whether an interrupt at `address` is logged.
    pub(crate) fn covers(&self, address: u64) -> bool {
        self.ranges.contain(address)
    }

    pub(crate) fn interrupt(&self, address: u64, overflow: u64) {
        self.log
            .line(format_args!("interrupt {address:#x} {overflow:#x}"));
    }

    pub(crate) fn flush(&self) {
        self.log.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open() {
        let ranges = Ranges::parse("0x1000-0x1040:0xffff800080000000-0xffff800080000004").unwrap();
        assert!(ranges.contain(0x1000) && ranges.contain(0x103c));
        assert!(!ranges.contain(0x1040) && !ranges.contain(0xfff));
        assert!(ranges.contain(0xffff_8000_8000_0000));
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in ["", "0x10", "0x10-0x10", "0x20-0x10", "16-32", "0x1-0x2,"] {
            assert_eq!(Ranges::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_block_comes_back_from_user_data() {
        let block = WatchedBlock::new(0xffff_8000_8001_2ffc, 512);
        assert_eq!(WatchedBlock::from_userdata(block.into_userdata()), block);
        assert_eq!(block.address(0xffff_8000_8001_2ffc), 0xffff_8000_8001_2ffc);
    }
}
