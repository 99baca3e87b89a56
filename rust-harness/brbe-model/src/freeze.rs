//! Freezing: when a counter overflow stops the recording, and the time stamp
//! taken then (D19.6 and D19.7).

use crate::control::Brbcr;
use crate::pe::Pe;

/// What BRBE sees of the performance monitors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// The overflow flags, PMOVSCLR_EL0. Enables, PMCR_EL0.E and interrupt masks are not
    /// looked at: a flag that software set freezes too. With FEAT_SEBEP, the flags of
    /// synchronous counters are left out.
    pub overflow: u64,
    /// PMCR_EL0.N, the number of event counters. With FEAT_PMUv3_EXTPMN, the number of
    /// those that are not for an external agent.
    pub counters: u8,
    /// Whether FEAT_PMUv3_ICNTR is implemented: flag 32 is the instruction counter's
    /// then.
    pub icntr: bool,
}

/// The flags of event counters below `n`. The cycle counter, flag 31, is no event
/// counter.
const fn below(n: u8) -> u64 {
    if n >= 31 { 0x7fff_ffff } else { (1 << n) - 1 }
}

impl Pmu {
    /// Whether a counter overflow asks for a freeze: CheckPMUOverflowCondition (R_GXGWY,
    /// R_PKTXQ, R_LDMVK). BRBCR_EL1.FZP governs the counters below MDCR_EL2.HPMN and the
    /// instruction counter, BRBCR_EL2.FZP the counters from HPMN on; at whatever
    /// Exception level.
    pub(crate) const fn overflowed(&self, pe: &Pe, el1: Brbcr, el2: Brbcr) -> bool {
        let all = below(self.counters);
        let first = match pe.el2 {
            Some(ref el2) => all & below(el2.hpmn),
            None => all,
        };
        let icntr = if self.icntr { 1 << 32 } else { 0 };
        (el1.fzp() && self.overflow & (first | icntr) != 0)
            || (pe.el2.is_some() && el2.fzp() && self.overflow & all & !first != 0)
    }
}

/// The generic timer's counts, for BRBTS_EL1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The physical count.
    pub physical: u64,
    /// CNTVOFF_EL2; 0 where EL2 is not implemented.
    pub virtual_offset: u64,
    /// CNTPOFF_EL2 where FEAT_ECV_POFF and its enables make it count, else 0.
    pub physical_offset: u64,
}

impl Counter {
    /// The time stamp of a freeze: BRBETimeStamp (R_QKQZL, Table D19-11). For a reserved
    /// selection, the virtual count is taken.
    pub(crate) const fn timestamp(&self, pe: &Pe, el1: Brbcr, el2: Brbcr) -> u64 {
        let source = match el2.ts() {
            ts if pe.el2.is_some() && ts != 0 => ts,
            _ => el1.ts(),
        };
        match source {
            0b11 => self.physical,
            0b10 => self.physical.wrapping_sub(self.physical_offset),
            _ => self.physical.wrapping_sub(self.virtual_offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::pe::El2;

    fn brbcr(bits: u64) -> Brbcr {
        Brbcr::from_write(bits, &Config::default())
    }

    const FZP: u64 = 1 << 8;

    fn overflowed(flag: u32, hpmn: Option<u8>, el1: u64, el2: u64) -> bool {
        let pe = Pe {
            el2: hpmn.map(|hpmn| El2 {
                hpmn,
                ..El2::default()
            }),
            ..Pe::default()
        };
        let pmu = Pmu {
            overflow: 1 << flag,
            counters: 6,
            icntr: false,
        };
        pmu.overflowed(&pe, brbcr(el1), brbcr(el2))
    }

    /// R_GXGWY, R_LDMVK: the range that a counter is in picks the register.
    #[test]
    fn hpmn_splits_the_counters() {
        for counter in 0..6 {
            let first = counter < 4;
            assert_eq!(overflowed(counter, Some(4), FZP, 0), first);
            assert_eq!(overflowed(counter, Some(4), 0, FZP), !first);
        }
    }

    /// R_PKTXQ: without EL2 every event counter is in EL1's range.
    #[test]
    fn without_el2_all_counters_are_el1s() {
        assert!((0..6).all(|counter| overflowed(counter, None, FZP, 0)));
        assert!(!(0..6).any(|counter| overflowed(counter, None, 0, FZP)));
    }

    #[test]
    fn the_cycle_counter_and_absent_counters_never_freeze() {
        for flag in (6..33).filter(|flag| *flag != 32) {
            assert!(!overflowed(flag, None, FZP, FZP), "{flag}");
            assert!(!overflowed(flag, Some(6), FZP, FZP), "{flag}");
        }
        let all = Pmu {
            overflow: 1 << 31,
            counters: 31,
            icntr: true,
        };
        assert!(!all.overflowed(&Pe::default(), brbcr(FZP), brbcr(0)));
    }

    #[test]
    fn the_instruction_counter_needs_feat_pmuv3_icntr() {
        let pmu = |icntr| Pmu {
            overflow: 1 << 32,
            counters: 6,
            icntr,
        };
        assert!(pmu(true).overflowed(&Pe::default(), brbcr(FZP), brbcr(0)));
        assert!(!pmu(true).overflowed(&Pe::default(), brbcr(0), brbcr(0)));
        assert!(!pmu(false).overflowed(&Pe::default(), brbcr(FZP), brbcr(0)));
    }

    /// Table D19-11.
    #[test]
    fn timestamp_sources() {
        let counter = Counter {
            physical: 1000,
            virtual_offset: 1,
            physical_offset: 10,
        };
        let with_el2 = Pe {
            el2: Some(El2::default()),
            ..Pe::default()
        };
        let stamp =
            |pe: &Pe, el1: u64, el2: u64| counter.timestamp(pe, brbcr(el1 << 5), brbcr(el2 << 5));
        for (ts, value) in [(0b01, 999), (0b10, 990), (0b11, 1000)] {
            assert_eq!(stamp(&with_el2, ts, 0), value);
            assert_eq!(stamp(&with_el2, 0b01, ts), value);
            assert_eq!(stamp(&Pe::default(), ts, 0b11), value);
        }
    }
}
