//! Where recording is allowed (R_FHGJN to R_YGGSC, D19.5).

use super::Brbe;
use crate::config::Version;
use crate::control::Brbcr;
use crate::pe::{ExceptionLevel, Pe};

impl Brbe {
    /// Whether there is self-hosted recording at EL3 (D19.5): MDCR_EL3.E3BREC differs
    /// from E3BREW. FEAT_BRBE without v1p1 has none.
    pub(super) fn el3_records(&self, pe: &Pe) -> bool {
        self.config.version >= Version::V1_1
            && pe.el3.as_ref().is_some_and(|el3| el3.e3brec != el3.e3brew)
    }

    /// Whether the PE is in a prohibited region (R_FHGJN to R_YGGSC), PAUSED apart. Debug
    /// state is one (R_LPYBQ).
    pub(super) fn prohibited(&self, pe: &Pe) -> bool {
        if self.halted || pe.aarch32 {
            return true;
        }
        if pe.el == ExceptionLevel::El3 {
            return !self.el3_records(pe);
        }
        let by_el3 = pe.el3.as_ref().is_some_and(|el3| match el3.sbrbe {
            0b00 => true,
            0b01 => el3.secure,
            _ => false,
        });
        by_el3
            || !match pe.el {
                ExceptionLevel::El2 => self.el2.exbre(),
                ExceptionLevel::El1 => self.el1.exbre(),
                _ if pe.tge() => self.el2.e0bre(),
                _ => self.el1.e0bre(),
            }
    }

    /// Whether what executes now may be recorded: BranchRecordAllowed.
    pub fn allowed(&self, pe: &Pe) -> bool {
        !self.fcr.paused() && !self.prohibited(pe)
    }

    /// Whether some Exception level may be recorded. Where none may, exceptions and
    /// exception returns need not be reported: nothing depends on them but the cycle
    /// count, which is unknown then anyway.
    pub fn may_record(&self, pe: &Pe) -> bool {
        let enabled = |brbcr: Brbcr| brbcr.exbre() || brbcr.e0bre();
        !self.fcr.paused() && (enabled(self.el1) || enabled(self.el2) || self.el3_records(pe))
    }
}
