//! What is implemented: the choices an implementation of FEAT_BRBE has.

/// Number of records, BRBIDR0_EL1.NUMREC (D24.8.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumRecords {
    /// 8 records, NUMREC = 0x08.
    R8 = 8,
    /// 16 records, NUMREC = 0x10.
    R16 = 16,
    /// 32 records, NUMREC = 0x20.
    R32 = 32,
    /// 64 records, NUMREC = 0x40.
    #[default]
    R64 = 64,
}

impl NumRecords {
    /// The number of records. It is also the encoding in NUMREC.
    pub const fn count(self) -> usize {
        self as usize
    }

    /// The size with this number of records, if there is one: the architecture has no
    /// other sizes.
    pub const fn from_count(count: u64) -> Option<Self> {
        match count {
            8 => Some(Self::R8),
            16 => Some(Self::R16),
            32 => Some(Self::R32),
            64 => Some(Self::R64),
            _ => None,
        }
    }
}

/// Version of the extension, ID_AA64DFR0_EL1.BRBE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// FEAT_BRBE.
    V1_0 = 1,
    /// FEAT_BRBEv1p1: records at EL3 too (D19.5).
    #[default]
    V1_1 = 2,
}

/// The choices of one implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Size of the record buffer.
    pub records: NumRecords,
    /// FEAT_BRBE or FEAT_BRBEv1p1.
    pub version: Version,
    /// Whether FEAT_PMUv3 is implemented: without it BRBCR_ELx.FZP is RES0.
    pub pmu: bool,
    /// Whether there are cycle counts. If not, every one is unknown (CCU), as where
    /// firmware leaves BRBCR_EL2.CC zero.
    pub cycle_counts: bool,
    /// Whether FEAT_PMUv3_SS is implemented: without it BRBCR_ELx.FZPSS is RES0.
    pub pmu_snapshot: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            records: NumRecords::default(),
            version: Version::default(),
            pmu: true,
            cycle_counts: true,
            pmu_snapshot: false,
        }
    }
}

impl Config {
    /// BRBIDR0_EL1 (D24.8.4): a 20-bit cycle counter (CC = 0b0101) and record
    /// format 0.
    pub const fn brbidr0(&self) -> u64 {
        0b0101 << 12 | self.records as u64
    }

    /// `id_aa64dfr0` with the BRBE field, bits 55:52, of this implementation.
    pub const fn id_aa64dfr0(&self, id_aa64dfr0: u64) -> u64 {
        id_aa64dfr0 & !(0xf << 52) | (self.version as u64) << 52
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brbidr0_is_0x5000_and_the_number_of_records() {
        for (records, value) in [
            (NumRecords::R8, 0x5008),
            (NumRecords::R16, 0x5010),
            (NumRecords::R32, 0x5020),
            (NumRecords::R64, 0x5040),
        ] {
            let config = Config {
                records,
                ..Config::default()
            };
            assert_eq!(config.brbidr0(), value);
            assert_eq!(NumRecords::from_count(value & 0xff), Some(records));
        }
        assert_eq!(NumRecords::from_count(24), None);
    }

    #[test]
    fn id_aa64dfr0_replaces_bits_55_to_52_only() {
        let v1p0 = Config {
            version: Version::V1_0,
            ..Config::default()
        };
        assert_eq!(v1p0.id_aa64dfr0(u64::MAX), 0xff1f_ffff_ffff_ffff);
        assert_eq!(Config::default().id_aa64dfr0(0), 2 << 52);
    }
}
