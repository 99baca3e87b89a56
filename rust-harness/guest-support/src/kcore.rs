//! The kernel's code as it is now, from `/proc/kcore`.
//!
//! `/proc/kcore` is an ELF core file whose segments are parts of the kernel's address
//! space (fs/proc/kcore.c).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Error, Result};
use branch_records::InstructionSet;
use branch_records::capture::{CodeRange, MAX_CODE_BYTES};
use branch_records::record::{BranchType, RawRecord};
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, ReadCache, ReadRef};

/// The kernel's memory as a file.
pub const PATH: &str = "/proc/kcore";

/// A segment: a part of the kernel's address space, and the offset of that in the file.
#[derive(Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    size: u64,
    offset: u64,
}

/// The instructions of this machine.
const OURS: InstructionSet = if cfg!(target_arch = "x86_64") {
    InstructionSet::X86
} else {
    InstructionSet::A64
};

/// The code around records.
#[derive(Debug, Default)]
pub struct Around {
    /// The ranges of code, sorted by address and without overlap.
    pub code: Vec<CodeRange>,
    /// Why some of the code could not be read, if so.
    pub missing: Option<Error>,
}

impl Around {
    /// No code at all, for the reason `why`.
    pub fn without(why: Error) -> Self {
        Self {
            code: Vec::new(),
            missing: Some(why),
        }
    }
}

/// An open `/proc/kcore`.
#[derive(Debug)]
pub struct Kcore {
    file: File,
    segments: Vec<Segment>,
}

impl Kcore {
    /// Opens `/proc/kcore`, and reads which parts of the address space it has.
    pub fn open() -> Result<Self> {
        let file = File::open(PATH).with_context(|| format!("cannot open {PATH}"))?;
        let segments = segments(&ReadCache::new(&file));
        Ok(Self {
            segments: segments.with_context(|| format!("cannot read {PATH}"))?,
            file,
        })
    }

    /// Reads the code between the records of each list, and the code where they start.
    /// The records of a list are newest first.
    pub fn around<'a>(&self, lists: impl IntoIterator<Item = &'a [RawRecord]>) -> Around {
        let mut around = Around::default();
        for (first, last) in merged(ranges(lists, OURS)) {
            match self.read(first, last) {
                Ok(range) => around.code.push(range),
                Err(error) => around.missing = around.missing.or(Some(error)),
            }
        }
        around
    }

    /// Reads the code from the word at `first` to the word at `last`, both included.
    pub fn read(&self, first: u64, last: u64) -> Result<CodeRange> {
        let inside = |segment: &&Segment| {
            let offset = first.checked_sub(segment.address);
            offset
                .is_some_and(|offset| offset < segment.size && last - first < segment.size - offset)
        };
        let segment = self.segments.iter().find(inside);
        let segment = segment.with_context(|| format!("{PATH} does not have {first:#x}"))?;
        let mut bytes = vec![0; usize::try_from(last - first)? + 4];
        self.file
            .read_exact_at(&mut bytes, segment.offset + (first - segment.address))
            .with_context(|| format!("cannot read {first:#x} in {PATH}"))?;
        let words = bytes.as_chunks().0.iter();
        Ok(CodeRange {
            address: first,
            words: words.map(|word| u32::from_le_bytes(*word)).collect(),
        })
    }
}

/// The ranges of code to be read: the addresses of the first and the last word of each. Words are
/// at multiples of 4.
fn ranges<'a>(
    lists: impl IntoIterator<Item = &'a [RawRecord]>,
    instructions: InstructionSet,
) -> BTreeSet<(u64, u64)> {
    let (alignment, longest) = instructions.lengths().into_inner();
    let word = |address: u64| address & !3;
    let mut ranges = BTreeSet::new();
    for records in lists {
        for (index, newer) in records.iter().enumerate() {
            let end = newer.from;
            // The range includes the SVC, HVC or SMC, which is before the source of its
            // record. On x86 the source is the instruction.
            let is_behind = alignment > 1 && newer.decode().kind == BranchType::Syscall;
            let alone = end.saturating_sub(if is_behind { alignment } else { 0 });
            let start = records.get(index + 1).map_or(alone, |older| older.to);
            let way = end.checked_sub(start).unwrap_or(u64::MAX);
            let room = MAX_CODE_BYTES - (longest - alignment);
            let straight = start != 0 && way <= room && way.is_multiple_of(alignment);
            let start = if straight { start.min(alone) } else { alone };
            if start != 0 && start.is_multiple_of(alignment) {
                // The last instruction is read whole.
                ranges.insert((word(start), word(end.saturating_add(longest - 1))));
            }
        }
    }
    ranges
}

/// Merges ranges that overlap. None becomes longer than a capture may have it.
fn merged(ranges: BTreeSet<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (mut first, last) in ranges {
        if let Some(before) = merged.last_mut()
            && first <= before.1
        {
            if last <= before.1 {
                continue;
            }
            if last - before.0 <= MAX_CODE_BYTES {
                before.1 = last;
                continue;
            }
            first = before.1 + 4;
        }
        merged.push((first, last));
    }
    merged
}

/// The segments of an ELF core file. Those that no file of this size can have are left out.
fn segments<'data>(core: impl ReadRef<'data>) -> Result<Vec<Segment>, object::Error> {
    let header = FileHeader64::<LittleEndian>::parse(core)?;
    let endian = header.endian()?;
    let loads = header.program_headers(endian, core)?.iter();
    let loads = loads.filter(|segment| segment.p_type(endian) == PT_LOAD);
    let segments = loads.map(|segment| Segment {
        address: segment.p_vaddr(endian),
        size: segment.p_memsz(endian),
        offset: segment.p_offset(endian),
    });
    Ok(segments
        .filter(|segment| segment.offset.checked_add(segment.size).is_some())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_records_is_read() {
        let record = |from, to| RawRecord { from, to, flags: 0 };
        let records = [
            record(0x2010, 0x3000),
            record(0x1008, 0x2000),
            // A source that is far from the target before it, and a half record.
            record(0x9000_0000, 0x1000),
            record(0x5000, 0),
            // A source between two instructions.
            record(0x6002, 0x6100),
        ];
        let expected = [
            (0x1000, 0x1008),
            (0x2000, 0x2010),
            (0x5000, 0x5000),
            (0x9000_0000, 0x9000_0000),
        ];
        let twice = [&records[..], &records[..]];
        assert_eq!(ranges(twice, InstructionSet::A64), BTreeSet::from(expected));
    }

    #[test]
    fn nothing_is_read_twice() {
        let around = |ranges: &[(u64, u64)]| merged(ranges.iter().copied().collect());
        assert_eq!(
            around(&[
                (0x1000, 0x1008),
                (0x1000, 0x1010),
                (0x1004, 0x100c),
                (0x1010, 0x1020)
            ]),
            [(0x1000, 0x1020)]
        );
        assert_eq!(
            around(&[(0x1000, 0x1008), (0x100c, 0x100c)]),
            [(0x1000, 0x1008), (0x100c, 0x100c)]
        );
        // Each is as long as it may be, both together are longer.
        let end = 0x1000 + MAX_CODE_BYTES;
        assert_eq!(
            around(&[(0x1000, end), (0x2000, end + 0x1000)]),
            [(0x1000, end), (end + 4, end + 0x1000)]
        );
    }

    #[test]
    fn a_system_call_is_read_with_its_instruction() {
        let record = |from, to| RawRecord {
            from,
            to,
            flags: 7 << 20,
        };
        let records = [record(0x2000, 0x8400), record(0x1008, 0x2000)];
        assert_eq!(
            ranges([&records[..]], InstructionSet::A64),
            BTreeSet::from([(0x1ffc, 0x2000), (0x1004, 0x1008)])
        );
    }

    #[test]
    fn instructions_of_x86_are_anywhere_and_the_last_is_read_whole() {
        let record = |from, to| RawRecord { from, to, flags: 0 };
        let far = 0x3001 + MAX_CODE_BYTES;
        let records = [
            record(far, 0x3000),
            record(0x2007, 0x3001),
            record(0x1005, 0x2003),
        ];
        assert_eq!(
            ranges([&records[..]], InstructionSet::X86),
            BTreeSet::from([
                (0x1004, 0x1010),
                (0x2000, 0x2014),
                (far & !3, (far + 14) & !3)
            ])
        );
        let longest = [record(far - 14, 0), records[1]];
        assert!(ranges([&longest[..]], InstructionSet::X86).contains(&(0x3000, far & !3)));
    }

    #[test]
    fn segments_are_those_that_are_loaded() {
        let mut core = [0; 64 + 2 * 56];
        assert!(segments(&core[..]).is_err());
        // 64 bits, little-endian, version 1.
        core[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        // Two segments of 56 bytes behind the header. The first is loaded.
        (core[32], core[54], core[56]) = (64, 56, 2);
        (core[64], core[120]) = (1, 4);
        (core[64 + 9], core[64 + 17], core[64 + 41]) = (1, 2, 3);
        let expected = Segment {
            offset: 0x100,
            address: 0x200,
            size: 0x300,
        };
        assert_eq!(segments(&core[..]).unwrap(), [expected]);
        core[64 + 8..64 + 16].fill(0xff);
        assert!(segments(&core[..]).unwrap().is_empty());
        core[54] = 32;
        assert!(segments(&core[..]).is_err());
    }
}
