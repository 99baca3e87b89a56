//! The state of the processing element that BRBE's rules consult.

/// An Exception level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExceptionLevel {
    /// Applications.
    El0 = 0,
    /// An operating system.
    #[default]
    El1 = 1,
    /// A hypervisor, or an operating system under FEAT_VHE.
    El2 = 2,
    /// Firmware.
    El3 = 3,
}

impl ExceptionLevel {
    /// The Exception level in PSTATE.EL, CurrentEL or SPSR_ELx.M\[3:2\].
    pub const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::El0,
            1 => Self::El1,
            2 => Self::El2,
            _ => Self::El3,
        }
    }
}

/// Effective values of the fields of HCR_EL2 that BRBE looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hcr {
    /// E2H: EL2 hosts an operating system (FEAT_VHE).
    pub e2h: bool,
    /// TGE: exceptions from EL0 go to EL2.
    pub tge: bool,
    /// NV: accesses to EL2 registers at EL1 trap.
    pub nv: bool,
    /// NV1.
    pub nv1: bool,
    /// NV2: accesses at EL1 go to memory.
    pub nv2: bool,
}

/// FEAT_FGT: the bits of HDFGRTR_EL2, HDFGWTR_EL2 and HFGITR_EL2, where 0 traps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FineGrainedTraps {
    /// HDFGRTR_EL2.
    pub hdfgrtr: u64,
    /// HDFGWTR_EL2.
    pub hdfgwtr: u64,
    /// HFGITR_EL2.
    pub hfgitr: u64,
}

/// EL2, where it is implemented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct El2 {
    /// Whether EL2 is enabled in the current Security state.
    pub enabled: bool,
    /// HCR_EL2.
    pub hcr: Hcr,
    /// MDCR_EL2.HPMN: event counters from this one on belong to EL2.
    pub hpmn: u8,
    /// The fine-grained traps, where FEAT_FGT is implemented and
    /// SCR_EL3.FGTEn does not switch them off.
    pub fgt: Option<FineGrainedTraps>,
}

/// EL3, where it is implemented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct El3 {
    /// MDCR_EL3.SBRBE, bits 33:32.
    pub sbrbe: u8,
    /// MDCR_EL3.E3BREC, bit 38.
    pub e3brec: bool,
    /// MDCR_EL3.E3BREW, bit 37.
    pub e3brew: bool,
    /// Whether the Security state below EL3 is Secure: SCR_EL3.NS == 0.
    pub secure: bool,
}

/// The state of the processing element (PE) at one moment.
///
/// The default is AArch64 at EL1 where neither EL2 nor EL3 is implemented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pe {
    /// PSTATE.EL.
    pub el: ExceptionLevel,
    /// Whether the current Exception level uses AArch32.
    pub aarch32: bool,
    /// EL2, `None` where it is not implemented.
    pub el2: Option<El2>,
    /// EL3, `None` where it is not implemented.
    pub el3: Option<El3>,
}

impl Pe {
    /// EL2 where it is implemented and enabled in the current Security state.
    pub(crate) fn el2_enabled(&self) -> Option<&El2> {
        self.el2.as_ref().filter(|el2| el2.enabled)
    }

    /// Whether HCR_EL2.E2H makes EL2 a host: ELIsInHost(EL2).
    pub(crate) fn e2h(&self) -> bool {
        self.el2_enabled().is_some_and(|el2| el2.hcr.e2h)
    }

    /// HCR_EL2 where its Effective value of NV is 1.
    pub(crate) fn nv(&self) -> Option<&Hcr> {
        self.el2_enabled().map(|el2| &el2.hcr).filter(|hcr| hcr.nv)
    }

    /// Whether HCR_EL2.TGE is 1, with EL2 enabled.
    pub(crate) fn tge(&self) -> bool {
        self.el2_enabled().is_some_and(|el2| el2.hcr.tge)
    }
}

#[cfg(test)]
mod tests {
    use super::ExceptionLevel::{self, El0, El1, El2, El3};

    #[test]
    fn exception_levels_by_their_bits() {
        for (bits, level) in [
            (0, El0),
            (1, El1),
            (2, El2),
            (3, El3),
            (0b1101, El1),
            (8, El0),
        ] {
            assert_eq!(ExceptionLevel::from_bits(bits), level);
        }
    }
}
