//! Model-specific registers by their addresses (SDM, volume 4).

use crate::pmu::{FIXED, GENERAL};
use crate::stack::Depth;

/// A register that [`Cpu`](crate::Cpu) has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Msr {
    /// `IA32_LBR_CTL`.
    LbrControl,
    /// `IA32_LBR_DEPTH`.
    LbrDepth,
    /// `IA32_LBR_x_FROM_IP`.
    LbrFrom(u8),
    /// `IA32_LBR_x_TO_IP`.
    LbrTo(u8),
    /// `IA32_LBR_x_INFO`.
    LbrInfo(u8),
    /// `IA32_PMCx`.
    General(u8),
    /// `IA32_PERFEVTSELx`.
    Select(u8),
    /// `IA32_FIXED_CTRx`.
    Fixed(u8),
    /// `IA32_FIXED_CTR_CTRL`.
    FixedControl,
    /// `IA32_PERF_GLOBAL_STATUS`.
    GlobalStatus,
    /// `IA32_PERF_GLOBAL_CTRL`.
    GlobalControl,
    /// `IA32_PERF_GLOBAL_STATUS_RESET`, once `IA32_PERF_GLOBAL_OVF_CTRL`.
    GlobalStatusReset,
    /// `IA32_PERF_GLOBAL_STATUS_SET`.
    GlobalStatusSet,
    /// `IA32_DEBUGCTL`.
    DebugControl,
}

impl Msr {
    /// The register at this address, if it is one of these.
    pub fn from_address(address: u32) -> Option<Self> {
        let within = |first: u32, count: usize| {
            let n = u8::try_from(address.checked_sub(first)?).ok()?;
            (usize::from(n) < count).then_some(n)
        };
        let records = Depth::MAX.count();
        Some(match address {
            0x1d9 => Self::DebugControl,
            0x38d => Self::FixedControl,
            0x38e => Self::GlobalStatus,
            0x38f => Self::GlobalControl,
            0x390 => Self::GlobalStatusReset,
            0x391 => Self::GlobalStatusSet,
            0x14ce => Self::LbrControl,
            0x14cf => Self::LbrDepth,
            _ => within(0x1500, records)
                .map(Self::LbrFrom)
                .or_else(|| within(0x1600, records).map(Self::LbrTo))
                .or_else(|| within(0x1200, records).map(Self::LbrInfo))
                .or_else(|| within(0xc1, GENERAL).map(Self::General))
                .or_else(|| within(0x186, GENERAL).map(Self::Select))
                .or_else(|| within(0x309, FIXED).map(Self::Fixed))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_manual() {
        for (address, msr) in [
            (0x14ce, Some(Msr::LbrControl)),
            (0x14cf, Some(Msr::LbrDepth)),
            (0x14d0, None),
            (0x1200, Some(Msr::LbrInfo(0))),
            (0x123f, Some(Msr::LbrInfo(63))),
            (0x1240, None),
            (0x1500, Some(Msr::LbrFrom(0))),
            (0x1601, Some(Msr::LbrTo(1))),
            (0xc0, None),
            (0xc1, Some(Msr::General(0))),
            (0xc4, Some(Msr::General(3))),
            (0xc5, None),
            (0x186, Some(Msr::Select(0))),
            (0x30b, Some(Msr::Fixed(2))),
            (0x30c, None),
            (0x390, Some(Msr::GlobalStatusReset)),
            (0x1d9, Some(Msr::DebugControl)),
            (0xc000_0080, None),
        ] {
            assert_eq!(Msr::from_address(address), msr, "{address:#x}");
        }
    }
}
