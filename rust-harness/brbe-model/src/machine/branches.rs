//! Taken branches (R_LYGJZ to R_FJYDC).

use super::Brbe;
use crate::branch::BranchKind;
use crate::control::Brbfcr;
use crate::pe::{ExceptionLevel, Pe};
use crate::record::BrbeRecord;

/// The region that the PE is in, as far as it matters for the branches recorded there:
/// [`Brbe::region`].
#[derive(Clone, Copy, Debug)]
pub struct Region {
    el: ExceptionLevel,
    fcr: Brbfcr,
    counting: bool,
}

impl Region {
    /// Whether the filters select branches of this kind (R_FJYDC).
    #[inline]
    pub fn selects(&self, kind: BranchKind) -> bool {
        self.fcr.selects(kind)
    }
}

impl Brbe {
    /// Records a taken branch, if it is to be recorded (R_LYGJZ to R_FJYDC). Its target
    /// is canonical. Returns whether a record was made.
    ///
    /// MPRED stays 0: every branch counts as predicted rightly (R_XHWRB).
    pub fn branch(&mut self, pe: &Pe, kind: BranchKind, src: u64, tgt: u64, now: u64) -> bool {
        match self.region(pe) {
            Some(region) => self.branch_in(&region, kind, src, tgt, now),
            None => false,
        }
    }

    /// The region that the PE is in: what [`Self::branch`] computes from the registers,
    /// computed once. `None` where no branch is recorded. It holds until the PE's state
    /// or a register of BRBE's changes.
    pub fn region(&self, pe: &Pe) -> Option<Region> {
        self.allowed(pe).then(|| Region {
            el: pe.el,
            fcr: self.fcr,
            counting: self.counting(pe),
        })
    }

    /// Records a taken branch in `region`, if the filters select it. This is
    /// [`Self::branch`] for code that executes many branches.
    #[inline]
    pub fn branch_in(
        &mut self,
        region: &Region,
        kind: BranchKind,
        src: u64,
        tgt: u64,
        now: u64,
    ) -> bool {
        let selected = region.selects(kind);
        if selected {
            let cycles = self.cycles(region.counting, now);
            let record = BrbeRecord::full(kind.record_type(), src, tgt, region.el, cycles);
            self.buffer.insert(record);
            self.stamp = now;
            self.cycles_unknown = !region.counting;
        }
        selected
    }
}
