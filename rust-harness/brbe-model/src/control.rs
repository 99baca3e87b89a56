//! BRBCR_EL1, BRBCR_EL2 and BRBFCR_EL1 (D24.8.1 to D24.8.3).

use crate::branch::BranchKind;
use crate::config::Config;

const BRBCR_CC: u64 = 1 << 3;
const BRBCR_FZP: u64 = 1 << 8;
const BRBCR_FZPSS: u64 = 1 << 9;
/// The fields of BRBCR that do not depend on other features: EXCEPTION, ERTN, TS, MPRED,
/// CC, ExBRE, E0BRE.
const BRBCR_ALWAYS: u64 = 1 << 23 | 1 << 22 | 3 << 5 | 1 << 4 | BRBCR_CC | 3;

/// BRBCR_EL1 or BRBCR_EL2: the two have the same layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brbcr(u64);

impl Brbcr {
    /// The value that a write of `value` leaves: RES0 bits read as zero.
    pub const fn from_write(value: u64, config: &Config) -> Self {
        let fzp = if config.pmu { BRBCR_FZP } else { 0 };
        let fzpss = if config.pmu_snapshot { BRBCR_FZPSS } else { 0 };
        Self(value & (BRBCR_ALWAYS | fzp | fzpss))
    }

    /// The register's value.
    pub const fn bits(self) -> u64 {
        self.0
    }

    const fn bit(self, n: u32) -> bool {
        self.0 >> n & 1 != 0
    }

    /// E0BRE or E0HBRE: record at EL0.
    pub const fn e0bre(self) -> bool {
        self.bit(0)
    }

    /// E1BRE or E2BRE: record at the register's own Exception level.
    pub const fn exbre(self) -> bool {
        self.bit(1)
    }

    /// TS: the time stamp's source.
    pub(crate) const fn ts(self) -> u64 {
        self.0 >> 5 & 3
    }

    /// The register after a Warm reset of FEAT_BRBE without v1p1: every field but
    /// FZPSS is zero or UNKNOWN.
    pub(crate) const fn only_fzpss(self) -> Self {
        Self(self.0 & BRBCR_FZPSS)
    }

    /// The register after a reset that clears its recording enables only.
    pub(crate) const fn without_enables(self) -> Self {
        Self(self.0 & !3)
    }

    /// CC: allow cycle counts.
    pub const fn cc(self) -> bool {
        self.bit(3)
    }

    /// FZP: freeze on an overflow of the counters that this register governs.
    pub const fn fzp(self) -> bool {
        self.bit(8)
    }

    /// FZPSS: freeze on a PMU snapshot.
    pub const fn fzpss(self) -> bool {
        self.bit(9)
    }

    /// ERTN: record exception returns executed at this Exception level.
    pub const fn ertn(self) -> bool {
        self.bit(22)
    }

    /// EXCEPTION: record exceptions taken to this Exception level.
    pub const fn exception(self) -> bool {
        self.bit(23)
    }
}

const BRBFCR_PAUSED: u64 = 1 << 7;
const BRBFCR_ENI: u64 = 1 << 16;
/// The bits of BRBFCR_EL1 that can be written: BANK, the six type filters, EnI and
/// PAUSED. LASTFAILED needs FEAT_TME.
const BRBFCR_MASK: u64 = 3 << 28 | 0x7f << 16 | BRBFCR_PAUSED;

/// BRBFCR_EL1: one per PE, for every Exception level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brbfcr(u64);

impl Brbfcr {
    /// The value that a write of `value` leaves.
    pub const fn from_write(value: u64) -> Self {
        Self(value & BRBFCR_MASK)
    }

    /// The register's value.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// PAUSED: nothing is recorded.
    pub const fn paused(self) -> bool {
        self.0 & BRBFCR_PAUSED != 0
    }

    /// The register with PAUSED set.
    pub(crate) const fn pause(self) -> Self {
        Self(self.0 | BRBFCR_PAUSED)
    }

    /// The register after a Warm reset of FEAT_BRBEv1p1: BANK is UNKNOWN.
    pub(crate) const fn without_bank(self) -> Self {
        Self(self.0 & !(3 << 28))
    }

    /// The index of the first record that the registers numbered 0 show: 32 per BANK.
    pub(crate) const fn bank_base(self) -> usize {
        (self.0 >> 28 & 3) as usize * 32
    }

    /// Whether the type filters select branches of this kind. EnI inverts the selection
    /// (R_FJYDC).
    #[inline]
    pub(crate) const fn selects(self, kind: BranchKind) -> bool {
        let matches = self.0 >> kind.filter_bit() & 1 != 0;
        matches != (self.0 & BRBFCR_ENI != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [BranchKind; 6] = [
        BranchKind::Direct,
        BranchKind::Indirect,
        BranchKind::Return,
        BranchKind::IndirectCall,
        BranchKind::DirectCall,
        BranchKind::Conditional,
    ];

    #[test]
    fn brbcr_res0() {
        let with = |pmu, pmu_snapshot| {
            let config = Config {
                pmu,
                pmu_snapshot,
                ..Config::default()
            };
            Brbcr::from_write(u64::MAX, &config).bits()
        };
        assert_eq!(with(true, true), 0x00c0_037b);
        assert_eq!(with(true, false), 0x00c0_017b);
        assert_eq!(with(false, false), 0x00c0_007b);
    }

    #[test]
    fn brbfcr_res0() {
        assert_eq!(Brbfcr::from_write(u64::MAX).bits(), 0x307f_0080);
    }

    #[test]
    fn each_filter_bit_selects_one_kind() {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let only = Brbfcr::from_write(1 << (17 + n));
            let but = Brbfcr::from_write(1 << (17 + n) | BRBFCR_ENI);
            for other in KINDS {
                assert_eq!(only.selects(other), other == kind);
                assert_eq!(but.selects(other), other != kind);
            }
        }
    }

    /// S_XZRTW: two ways to select everything, two to select nothing.
    #[test]
    fn all_or_nothing() {
        for kind in KINDS {
            assert!(Brbfcr::from_write(0x7e << 16).selects(kind));
            assert!(Brbfcr::from_write(BRBFCR_ENI).selects(kind));
            assert!(!Brbfcr::from_write(0).selects(kind));
            assert!(!Brbfcr::from_write(0x7f << 16).selects(kind));
        }
    }
}
