//! Events that pause the recording (D19.6).

use super::Brbe;
use crate::freeze::{Counter, Pmu};
use crate::pe::Pe;

impl Brbe {
    /// Freezes BRBE if a counter overflow asks for it (R_NXCWF). The flags are
    /// level-sensitive, so this may be called at any time. Returns whether BRBE was
    /// frozen just now.
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

    /// Notes a successful PMU snapshot Capture event (R_LBQZR). Returns whether that
    /// froze BRBE.
    pub fn freeze_on_capture(&mut self, pe: &Pe, counter: &Counter) -> bool {
        let fzpss = self.el1.fzpss() && (pe.el2.is_none() || self.el2.fzpss());
        let freeze = fzpss && self.allowed(pe);
        if freeze {
            self.freeze(pe, counter);
        }
        freeze
    }

    /// Sets BRBFCR_EL1.PAUSED and BRBTS_EL1, nothing else (R_PYBRZ).
    fn freeze(&mut self, pe: &Pe, counter: &Counter) {
        self.fcr = self.fcr.pause();
        self.ts = counter.timestamp(pe, self.el1, self.el2);
    }
}
