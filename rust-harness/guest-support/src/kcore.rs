//! The kernel's code as it is now, from `/proc/kcore`.
//!
//! `/proc/kcore` is an ELF core file whose segments are parts of the kernel's address
//! space (fs/proc/kcore.c).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Error, Result, ensure};
use branch_records::capture::{CodeRange, MAX_CODE_BYTES};
use branch_records::record::{BranchType, RawRecord};

const PATH: &str = "/proc/kcore";
/// `FILE_HEADER` is `sizeof(Elf64_Ehdr)`, and `SEGMENT` is `sizeof(Elf64_Phdr)`. Both are
/// in bytes.
const FILE_HEADER: usize = 64;
const SEGMENT: usize = 56;
const PT_LOAD: u32 = 1;

/// A segment: a part of the kernel's address space, and the offset of that in the file.
#[derive(Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    size: u64,
    offset: u64,
}

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
        let mut file = File::open(PATH).with_context(|| format!("cannot open {PATH}"))?;
        let mut header = [0; FILE_HEADER];
        file.read_exact(&mut header)
            .with_context(|| format!("cannot read {PATH}"))?;
        let (offset, count) = segment_table(&header)?;
        let mut table = vec![0; SEGMENT * usize::from(count)];
        file.read_exact_at(&mut table, offset)
            .with_context(|| format!("cannot read {PATH}"))?;
        let segments = table.as_chunks().0.iter().filter_map(segment).collect();
        Ok(Self { file, segments })
    }

    /// Reads the code between the records of each list, and the code where they start.
    /// The records of a list are newest first.
    pub fn around<'a>(&self, lists: impl IntoIterator<Item = &'a [RawRecord]>) -> Around {
        let mut around = Around::default();
        for (first, last) in merged(ranges(lists)) {
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

/// The ranges of code to be read: the addresses of the first and the last instruction of
/// each.
fn ranges<'a>(lists: impl IntoIterator<Item = &'a [RawRecord]>) -> BTreeSet<(u64, u64)> {
    let mut ranges = BTreeSet::new();
    for records in lists {
        for (index, newer) in records.iter().enumerate() {
            let end = newer.from;
            // The range includes the SVC, HVC or SMC, which is before the source of its
            // record.
            let call = matches!(newer.decode().kind, BranchType::Syscall);
            let alone = end.saturating_sub(if call { 4 } else { 0 });
            let start = records.get(index + 1).map_or(alone, |older| older.to);
            let way = end.checked_sub(start).unwrap_or(u64::MAX);
            // A64 instructions are at multiples of 4.
            let straight = start != 0 && way <= MAX_CODE_BYTES && way.is_multiple_of(4);
            let start = if straight { start.min(alone) } else { alone };
            if start != 0 && start.is_multiple_of(4) {
                ranges.insert((start, end));
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

/// The offset of the table that describes the segments, and the number of segments.
fn segment_table(header: &[u8; FILE_HEADER]) -> Result<(u64, u16)> {
    // The file has to be of 64 bits and little-endian.
    ensure!(
        header.starts_with(b"\x7fELF\x02\x01"),
        "{PATH} is not a 64-bit little-endian ELF file"
    );
    ensure!(
        half(header, 54).is_some_and(|size| usize::from(size) == SEGMENT),
        "{PATH} has segments of another size"
    );
    let table = word(header, 32).zip(half(header, 56));
    table.with_context(|| format!("{PATH} is cut off"))
}

fn segment(bytes: &[u8; SEGMENT]) -> Option<Segment> {
    let kind = bytes.first_chunk().map(|kind| u32::from_le_bytes(*kind))?;
    let segment = Segment {
        offset: word(bytes, 8)?,
        address: word(bytes, 16)?,
        size: word(bytes, 40)?,
    };
    let sane = segment.offset.checked_add(segment.size).is_some();
    (kind == PT_LOAD && sane).then_some(segment)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*half))
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
        assert_eq!(ranges(twice), BTreeSet::from(expected));
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
            ranges([&records[..]]),
            BTreeSet::from([(0x1ffc, 0x2000), (0x1004, 0x1008)])
        );
    }

    #[test]
    fn headers_are_taken_apart() {
        let mut header = [0; FILE_HEADER];
        assert!(segment_table(&header).is_err());
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[32] = 64;
        header[54] = 56;
        header[56] = 3;
        assert_eq!(segment_table(&header).unwrap(), (64, 3));
        header[54] = 32;
        assert!(segment_table(&header).is_err());

        let mut bytes = [0; SEGMENT];
        bytes[0] = 1;
        (bytes[9], bytes[17], bytes[41]) = (1, 2, 3);
        let expected = Segment {
            offset: 0x100,
            address: 0x200,
            size: 0x300,
        };
        assert_eq!(segment(&bytes), Some(expected));
        bytes[8..16].fill(0xff);
        assert_eq!(segment(&bytes), None);
    }
}
