//! The last branch records (LBRs) of one CPU.

use crate::branch::{TakenBranch, TransferKind};
use crate::control::Control;
use crate::stack::{Depth, LbrRecord, Stack};

/// `FROM_IP` of a branch from a level that is not recorded to one that is (SDM, "CPL
/// filtering").
const FILTERED: u64 = 0xffff_ffff;
/// `CYC_CNT`, bits 15:0 of `IA32_LBR_x_INFO`.
const CYCLES: u64 = 0xffff;
/// `CYC_CNT_VALID`.
const CYCLES_VALID: u64 = 1 << 60;

/// The LBRs of one CPU: the registers that control them, and the records.
#[derive(Clone, Debug)]
pub struct Lbr {
    pub(crate) control: Control,
    stack: Stack,
    /// When a record was last made, or recording enabled, in cycles.
    updated: u64,
}

impl Lbr {
    /// LBRs as they are after a reset, with this depth.
    pub fn new(depth: Depth) -> Self {
        Self {
            control: Control::default(),
            stack: Stack::new(depth),
            updated: 0,
        }
    }

    /// The value of `IA32_LBR_CTL`: what is recorded.
    pub fn control(&self) -> Control {
        self.control
    }

    /// Writes `IA32_LBR_CTL`.
    pub fn set_control(&mut self, control: Control, now: u64) {
        if control.is_enabled() && !self.control.is_enabled() {
            self.updated = now;
        }
        self.control = control;
    }

    /// The number of records.
    pub fn depth(&self) -> Depth {
        self.stack.depth()
    }

    /// Writes `IA32_LBR_DEPTH`: all records are zero then, whether the depth changes or
    /// not.
    pub fn set_depth(&mut self, depth: Depth) {
        self.stack = Stack::new(depth);
    }

    /// The `age`-th youngest record, from 0.
    pub fn record(&self, age: usize) -> Option<&LbrRecord> {
        self.stack.get(age)
    }

    /// The `age`-th youngest record, from 0, to be written: software restores what it
    /// saved.
    pub fn record_mut(&mut self, age: usize) -> Option<&mut LbrRecord> {
        self.stack.get_mut(age)
    }

    /// Records a branch that was taken, at the cycle `now`, if it is to be recorded.
    /// Returns whether the records changed.
    pub fn branch(&mut self, branch: &TakenBranch, now: u64) -> bool {
        let control = self.control;
        // The level at the end of an operation decides.
        if !control.is_enabled()
            || !control.selects_level(branch.to.cpl)
            || !control.selects_kind(branch.kind)
        {
            return false;
        }
        if control.is_call_stack() {
            match branch.kind {
                TransferKind::DirectCall | TransferKind::IndirectCall if branch.to_next => {
                    return false;
                }
                TransferKind::Return => {
                    self.stack.pop();
                    return true;
                }
                _ => {}
            }
        }
        let from = if control.selects_level(branch.from.cpl) {
            branch.from.ip
        } else {
            FILTERED
        };
        let cycles = now.saturating_sub(self.updated).min(CYCLES);
        self.updated = now;
        self.stack.push(LbrRecord {
            from,
            to: branch.to.ip,
            info: branch.kind.in_record() << 56 | CYCLES_VALID | cycles,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::branch::{CodePlace, Cpl};

    const ALL_KINDS: u64 = 0x7f << 16;
    const EVERYWHERE: u64 = 7;

    fn lbr(control: u64) -> Lbr {
        let mut lbr = Lbr::new(Depth::MAX);
        lbr.set_control(Control::from_bits(control), 0);
        lbr
    }

    fn branch(kind: TransferKind, from: (u64, Cpl), to: (u64, Cpl)) -> TakenBranch {
        let place = |(ip, cpl)| CodePlace { ip, cpl };
        TakenBranch {
            kind,
            from: place(from),
            to: place(to),
            to_next: false,
        }
    }

    fn in_kernel(kind: TransferKind) -> TakenBranch {
        branch(kind, (0x10, Cpl::Kernel), (0x20, Cpl::Kernel))
    }

    #[test]
    fn a_record_says_where_what_and_when() {
        let mut lbr = lbr(EVERYWHERE | ALL_KINDS);
        let types = [0, 1, 2, 3, 4, 5, 8];
        for (kind, number) in TransferKind::ALL.into_iter().zip(types) {
            assert!(lbr.branch(&in_kernel(kind), 100));
            let record = *lbr.record(0).unwrap();
            assert_eq!((record.from, record.to), (0x10, 0x20));
            assert_eq!(record.info >> 56 & 0xf, number, "{kind:?}");
        }
        assert_eq!(lbr.record(6).unwrap().info & 0xffff, 100);
        assert_eq!(lbr.record(0).unwrap().info & 0xffff, 0);
        lbr.branch(&in_kernel(TransferKind::Return), 1 << 20);
        assert_eq!(lbr.record(0).unwrap().info, 5 << 56 | 1 << 60 | 0xffff);
    }

    #[test]
    fn each_filter_selects_its_kind() {
        let bits = [16, 18, 17, 20, 19, 21, 22];
        for (kind, bit) in TransferKind::ALL.into_iter().zip(bits) {
            for other in TransferKind::ALL {
                let mut lbr = lbr(EVERYWHERE | 1 << bit);
                assert_eq!(lbr.branch(&in_kernel(other), 1), kind == other);
            }
        }
    }

    #[test]
    fn nothing_is_recorded_while_disabled() {
        let mut lbr = lbr((EVERYWHERE & !1) | ALL_KINDS);
        assert!(!lbr.branch(&in_kernel(TransferKind::Return), 1));
        assert_eq!(lbr.record(0), Some(&LbrRecord::default()));
    }

    /// SDM: the level at the end of the operation decides, and an address at the other
    /// level is not recorded.
    #[test]
    fn the_level_that_is_reached_decides() {
        let (os, user) = (1 << 1, 1 << 2);
        let entry = branch(TransferKind::Other, (0x10, Cpl::User), (0x20, Cpl::Kernel));
        let exit = branch(TransferKind::Other, (0x30, Cpl::Kernel), (0x40, Cpl::User));
        for (levels, expected) in [
            (os | user, [Some(0x10), Some(0x30)]),
            (os, [Some(FILTERED), None]),
            (user, [None, Some(FILTERED)]),
        ] {
            for (crossing, from) in [entry, exit].iter().zip(expected) {
                let mut lbr = lbr(1 | levels | ALL_KINDS);
                let recorded = lbr.branch(crossing, 1);
                let record = lbr.record(0).filter(|_| recorded);
                assert_eq!(record.map(|record| record.from), from);
            }
        }
    }

    #[test]
    fn returns_take_calls_back() {
        let mut lbr = lbr(EVERYWHERE | 1 << 3 | 0b111 << 19);
        lbr.branch(&in_kernel(TransferKind::DirectCall), 1);
        lbr.branch(&in_kernel(TransferKind::IndirectCall), 2);
        let next = TakenBranch {
            to_next: true,
            ..in_kernel(TransferKind::DirectCall)
        };
        assert!(!lbr.branch(&next, 3));
        assert!(lbr.branch(&in_kernel(TransferKind::Return), 4));
        assert_eq!(lbr.record(0).unwrap().info >> 56 & 0xf, 4);
        assert_eq!(lbr.record(1), Some(&LbrRecord::default()));
    }

    #[test]
    fn a_new_depth_has_no_records() {
        let mut lbr = lbr(EVERYWHERE | ALL_KINDS);
        lbr.branch(&in_kernel(TransferKind::Return), 1);
        lbr.set_depth(lbr.depth());
        assert_eq!(lbr.record(0), Some(&LbrRecord::default()));
        lbr.set_depth(Depth::from_count(8).unwrap());
        assert_eq!(lbr.record(8), None);
    }
}
