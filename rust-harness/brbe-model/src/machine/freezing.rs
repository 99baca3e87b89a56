//! Events that pause the recording (D19.6).

use super::Brbe;
use crate::freeze::{Counter, Pmu};
use crate::pe::Pe;

impl Brbe {
    /// Freezes where a counter overflow asks for it (R_NXCWF); level-sensitive,
    /// so it may be asked at any time. Says whether it froze just now.
    #[inline]
    pub fn freeze_on_overflow(
        &mut self,
        pe: &Pe,
        pmu: &Pmu,
        counter: impl FnOnce() -> Counter,
    ) -> bool {
        let freeze = pmu.overflowed(pe, self.el1, self.el2) && self.allowed(pe);
        if freeze {
            self.freeze(pe, &counter());
        }
        freeze
    }

    /// A successful PMU snapshot Capture event (R_LBQZR). Says whether it froze.
    pub fn freeze_on_capture(&mut self, pe: &Pe, counter: &Counter) -> bool {
        let fzpss = self.el1.fzpss() && (pe.el2.is_none() || self.el2.fzpss());
        let freeze = fzpss && self.allowed(pe);
        if freeze {
            self.freeze(pe, counter);
        }
        freeze
    }

    /// BRBFCR_EL1.PAUSED and BRBTS_EL1, nothing else (R_PYBRZ).
    fn freeze(&mut self, pe: &Pe, counter: &Counter) {
        self.fcr = self.fcr.pause();
        self.ts = counter.timestamp(pe, self.el1, self.el2);
    }
}
