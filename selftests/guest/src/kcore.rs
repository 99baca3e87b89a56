//! The kernel's code as it is now, from `/proc/kcore`.
//!
//! An ELF core file whose segments are parts of the kernel's address space
//! (fs/proc/kcore.c).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result, ensure};
use branch_records::capture::{CodeRange, MAX_CODE_BYTES};
use branch_records::record::RawRecord;

const PATH: &str = "/proc/kcore";
/// `sizeof(Elf64_Ehdr)` and `sizeof(Elf64_Phdr)`.
const FILE_HEADER: usize = 64;
const SEGMENT: usize = 56;
const PT_LOAD: u32 = 1;

/// A part of the address space, and where it is in the file.
#[derive(Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    size: u64,
    offset: u64,
}

/// An open `/proc/kcore`.
#[derive(Debug)]
pub(crate) struct Kcore {
    file: File,
    segments: Vec<Segment>,
}

impl Kcore {
    /// Opens it.
    pub(crate) fn open() -> Result<Self> {
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

    /// The code between the records of each list, newest first, and where they
    /// start. What cannot be read is left out.
    pub(crate) fn around<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a [RawRecord]>,
    ) -> Vec<CodeRange> {
        let read = |(first, last)| self.read(first, last).ok();
        ranges(lists).into_iter().filter_map(read).collect()
    }

    fn read(&self, first: u64, last: u64) -> Result<CodeRange> {
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

/// The first and the last instruction of what is to be read, each once.
fn ranges<'a>(lists: impl IntoIterator<Item = &'a [RawRecord]>) -> BTreeSet<(u64, u64)> {
    let mut ranges = BTreeSet::new();
    for records in lists {
        for (index, newer) in records.iter().enumerate() {
            let start = records.get(index + 1).map_or(newer.from, |older| older.to);
            let way = newer.from.checked_sub(start).unwrap_or(u64::MAX);
            if start != 0 && way <= MAX_CODE_BYTES && way.is_multiple_of(4) {
                ranges.insert((start, newer.from));
            } else if newer.from != 0 {
                ranges.insert((newer.from, newer.from));
            }
        }
    }
    ranges
}

/// Where the segments are described, and how many there are.
fn segment_table(header: &[u8; FILE_HEADER]) -> Result<(u64, u16)> {
    // 64 bits, little-endian.
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
            // From far behind, and half a record.
            record(0x9000_0000, 0x1000),
            record(0x5000, 0),
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
