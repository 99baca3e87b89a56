//! The record buffer (D19.4): index 0 is the youngest record.

use crate::config::NumRecords;
use crate::record::BrbeRecord;

const MAX: usize = NumRecords::R64.count();

/// NUMREC records. A ring, so that an insertion moves nothing: software sees
/// indices only, never where the youngest record is kept.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    records: [BrbeRecord; MAX],
    youngest: usize,
    mask: usize,
}

impl Buffer {
    /// An empty buffer.
    pub(crate) fn new(size: NumRecords) -> Self {
        // The sizes are powers of two: a mask wraps an index.
        Self {
            records: [BrbeRecord::default(); MAX],
            youngest: 0,
            mask: size.count() - 1,
        }
    }

    /// Makes `record` the youngest; the oldest falls off a full buffer
    /// (R_TJGLK, R_HTRNR).
    #[inline]
    pub(crate) fn insert(&mut self, record: BrbeRecord) {
        self.youngest = self.youngest.wrapping_add(1) & self.mask;
        self.records[self.youngest] = record;
    }

    /// The record at `index`, zero where that index has none (R_BNGTH).
    pub(crate) fn get(&self, index: usize) -> BrbeRecord {
        if index > self.mask {
            return BrbeRecord::default();
        }
        self.records[self.youngest.wrapping_sub(index) & self.mask]
    }

    /// BRB IALL: every record becomes invalid and zero (J1.3.1 BRB_IALL).
    pub(crate) fn invalidate(&mut self) {
        self.records.fill(BrbeRecord::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(n: u64) -> BrbeRecord {
        BrbeRecord {
            inf: 3,
            src: n,
            tgt: n,
        }
    }

    /// R_TJGLK: shift by one, drop the oldest; for every size.
    #[test]
    fn insertion_shifts_and_drops_the_oldest() {
        for size in [
            NumRecords::R8,
            NumRecords::R16,
            NumRecords::R32,
            NumRecords::R64,
        ] {
            let mut buffer = Buffer::new(size);
            for inserted in 1..=200_u64 {
                buffer.insert(numbered(inserted));
                for index in 0..MAX as u64 {
                    let expected = if index < inserted && index < size.count() as u64 {
                        numbered(inserted - index)
                    } else {
                        BrbeRecord::default()
                    };
                    assert_eq!(buffer.get(index as usize), expected, "{size:?} {index}");
                }
            }
        }
    }

    #[test]
    fn invalidate_zeroes_every_record() {
        let mut buffer = Buffer::new(NumRecords::R16);
        (0..20).for_each(|n| buffer.insert(numbered(n)));
        buffer.invalidate();
        assert!((0..64).all(|index| buffer.get(index) == BrbeRecord::default()));
    }
}
