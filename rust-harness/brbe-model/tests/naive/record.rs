//! One record: how its fields read, and how a cycle count is encoded.

use super::bit;

pub(crate) const CCU: u64 = 1 << 46;
pub(crate) const TARGET_ONLY: u64 = 0b01;
pub(crate) const SOURCE_ONLY: u64 = 0b10;
pub(crate) const FULL: u64 = 0b11;

const CC: u64 = 0x3fff << 32;
const EL: u64 = 0b11 << 6;
const MPRED: u64 = 1 << 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) inf: u64,
    pub(crate) src: u64,
    pub(crate) tgt: u64,
}

impl Entry {
    /// The fields that read as zero by VALID, CCU and TYPE (Arm ARM, R_BNGTH, R_WLSWP,
    /// R_WRJLW).
    pub(crate) fn as_read(mut self) -> Self {
        match self.inf & 0b11 {
            0b00 => self = Self::default(),
            TARGET_ONLY => {
                self.src = 0;
                self.inf &= !MPRED;
            }
            SOURCE_ONLY => {
                self.tgt = 0;
                self.inf &= !EL;
            }
            _ => {}
        }
        if bit(self.inf, 46) {
            self.inf &= !CC;
        }
        if bit(self.inf, 13) {
            self.inf &= !MPRED;
        }
        self
    }
}

/// The code of a cycle count (Arm ARM, D19.1.2 and J1, BranchEncCycleCount).
pub(crate) fn encode(mut count: u64) -> u64 {
    if count < 256 {
        return count;
    }
    if count >= 1 << 20 {
        return 63 << 8 | 255;
    }
    let mut exponent = 1;
    while count >= 512 {
        count /= 2;
        exponent += 1;
    }
    exponent << 8 | (count & 0xff)
}
