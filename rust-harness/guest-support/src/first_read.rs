//! Where a snapshot reads its first record, by the kernel's own code: whatever the functions are
//! called, it is in the middle of the snapshot, with BRBE paused.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;

use anyhow::Result;
use branch_records::path::{Flow, flow};

use crate::kallsyms::Kallsyms;
use crate::kcore::Kcore;

/// The instructions `MRS <Xt>, BRBINF0_EL1`, `BRBSRC0_EL1` and `BRBTGT0_EL1`, which differ in the
/// low bits of `op2` (Arm ARM, `BRBINF<n>_EL1`, `BRBSRC<n>_EL1`, `BRBTGT<n>_EL1`).
const READS: Range<u32> = 0xd531_8000..0xd531_8060;
/// The most bytes of a function that are looked at.
const MOST_BYTES: u64 = 1 << 16;
/// The most functions that are looked at.
const MOST_FUNCTIONS: usize = 256;

/// The place of the instruction that reads a snapshot's first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstRead {
    /// The name of the function that it is in.
    pub function: String,
    /// How many bytes it is from the function's beginning.
    pub offset: u64,
}

impl fmt::Display for FirstRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.function, self.offset)
    }
}

/// The first instruction that reads the first record, in the function at `entry` or in one that
/// it calls, directly or not. `None` if there is none, as where the kernel does not read BRBE, or
/// calls what does by a pointer.
///
/// # Errors
///
/// When the kernel's memory cannot be read.
pub fn find(symbols: &Kallsyms, entry: u64) -> Result<Option<FirstRead>> {
    let kcore = Kcore::open()?;
    let code =
        |function: Range<u64>| Some(kcore.read(function.start, function.end - 4).ok()?.words);
    let address = search(entry, |address| symbols.until_next(address), code);
    Ok(address
        .and_then(|address| symbols.symbol(address))
        .map(|symbol| FirstRead {
            function: symbol.name,
            offset: symbol.offset,
        }))
}

/// The address of the first such instruction. The nearest functions come first. `function` tells
/// where the one at an address is, and `code` its instructions.
fn search(
    entry: u64,
    function: impl Fn(u64) -> Option<Range<u64>>,
    code: impl Fn(Range<u64>) -> Option<Vec<u32>>,
) -> Option<u64> {
    let (mut seen, mut next) = (BTreeSet::from([entry]), VecDeque::from([entry]));
    while let Some(start) = next.pop_front() {
        let range = function(start).filter(|range| range.end - range.start <= MOST_BYTES);
        let Some((range, words)) = range.and_then(|range| Some((range.clone(), code(range)?)))
        else {
            continue;
        };
        let instructions = || (range.start..).step_by(4).zip(&words);
        let mut reads = instructions().filter(|(_, word)| READS.contains(word));
        if let Some((address, _)) = reads.next() {
            return Some(address);
        }
        for (address, word) in instructions() {
            let Flow::Direct { offset, .. } = flow(*word) else {
                continue;
            };
            let target = address.wrapping_add_signed(offset);
            if !range.contains(&target) && seen.len() < MOST_FUNCTIONS && seen.insert(target) {
                next.push_back(target);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;
    /// Calls what is 0x100 bytes behind.
    const BL: u32 = 0x9400_0040;
    /// Calls itself.
    const BL_HERE: u32 = 0x9400_0000;

    /// Functions of 0x100 bytes each, from 0.
    fn found(functions: &[&[u32]]) -> Option<u64> {
        search(
            0,
            |address| Some(address..address + 0x100),
            |range| Some(functions.get(range.start as usize / 0x100)?.to_vec()),
        )
    }

    #[test]
    fn the_nearest_read_is_found_and_a_circle_ends() {
        let reads_source = READS.start | 0x20 | 7;
        assert_eq!(found(&[&[NOP, reads_source, RET]]), Some(4));
        assert_eq!(found(&[&[NOP, BL, RET], &[]]), None);
        assert_eq!(found(&[&[BL, RET], &[READS.start, RET]]), Some(0x100));
        assert_eq!(found(&[&[BL_HERE, RET]]), None);
        // BRBINF1_EL1, and a write to BRBINF0_EL1's place.
        for other in [0xd531_8100, 0xd511_8000] {
            assert_eq!(found(&[&[other, RET]]), None, "{other:#x}");
        }
        assert_eq!(found(&[]), None);
    }
}
