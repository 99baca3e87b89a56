//! What pauses the recording (Arm ARM, R_PYBRZ, R_NXCWF, R_LBQZR), and the time stamp
//! (R_QKQZL).

use brbe_model::{Counter, Pe, Pmu};

use super::{Naive, bit};

impl Naive {
    pub(crate) fn freeze_on_overflow(&mut self, pe: &Pe, pmu: &Pmu, counter: &Counter) -> bool {
        if !self.allowed(pe) {
            return false;
        }
        let (fzp_el1, fzp_el2) = (bit(self.brbcr_el1, 8), bit(self.brbcr_el2, 8));
        let mut freeze = pmu.icntr && bit(pmu.overflow, 32) && fzp_el1;
        for m in 0..pmu.counters {
            if !bit(pmu.overflow, m.into()) {
                continue;
            }
            let of_el2 = pe.el2.as_ref().is_some_and(|el2| m >= el2.hpmn);
            if (of_el2 && fzp_el2) || (!of_el2 && fzp_el1) {
                freeze = true;
            }
        }
        if freeze {
            self.freeze(pe, counter);
        }
        freeze
    }

    pub(crate) fn freeze_on_capture(&mut self, pe: &Pe, counter: &Counter) -> bool {
        if !self.allowed(pe) || !bit(self.brbcr_el1, 9) {
            return false;
        }
        if pe.el2.is_some() && !bit(self.brbcr_el2, 9) {
            return false;
        }
        self.freeze(pe, counter);
        true
    }

    fn freeze(&mut self, pe: &Pe, counter: &Counter) {
        self.brbfcr |= 1 << 7;
        let mut source = self.brbcr_el1 >> 5 & 3;
        if pe.el2.is_some() && self.brbcr_el2 >> 5 & 3 != 0 {
            source = self.brbcr_el2 >> 5 & 3;
        }
        let offset = match source {
            0b11 => 0,
            0b10 => counter.physical_offset,
            _ => counter.virtual_offset,
        };
        self.brbts = counter.physical.wrapping_sub(offset);
    }
}
