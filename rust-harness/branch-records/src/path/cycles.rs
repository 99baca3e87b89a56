//! Whether a record's cycle count is the number of instructions that were executed, on a
//! machine where each takes one cycle: that shows whether a branch was left out.

use crate::record::{BranchType, Cycles};

/// Cycle counts from this one on are rounded: `BRBINF<n>_EL1.CC` is a mantissa and an
/// exponent.
const ROUNDED: u64 = 1 << 8;

/// The number of instructions that are executed from `target`, the target of a record, to
/// `source`, the source of the next newer one, if no branch between the two is left out.
/// `kind` is the type of the newer one. `None` if `source` comes before `target`.
///
/// The source of an exception's record is the preferred return address (Arm ARM, R_YSKQK to
/// R_FYLTC), and the instruction there has not been executed.
pub fn instructions(target: u64, source: u64, kind: BranchType) -> Option<u64> {
    let before = source.checked_sub(target)? / 4;
    let is_exception = matches!(
        kind,
        BranchType::Syscall | BranchType::Irq | BranchType::SystemError | BranchType::Extended(_)
    );
    Some(before + u64::from(!is_exception))
}

/// Whether `cycles` can be the count of so many instructions.
pub fn can_count(cycles: Cycles, instructions: u64) -> bool {
    match cycles {
        Cycles::Unknown => true,
        Cycles::Count(count) | Cycles::AtLeast(count) => {
            let count = u64::from(count);
            count == instructions || count.min(instructions) >= ROUNDED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_executed_and_the_source_of_an_exception_is_not() {
        let to = |source, kind| instructions(0x1000, source, kind);
        assert_eq!(to(0x1000, BranchType::Return), Some(1));
        assert_eq!(to(0x1008, BranchType::Conditional), Some(3));
        assert_eq!(to(0x1008, BranchType::Irq), Some(2));
        assert_eq!(to(0x1008, BranchType::Syscall), Some(2));
        assert_eq!(to(0x0ffc, BranchType::Return), None);
    }

    #[test]
    fn counts_are_exact_until_they_are_rounded() {
        assert!(can_count(Cycles::Count(255), 255));
        assert!(!can_count(Cycles::Count(256), 255));
        assert!(can_count(Cycles::Count(256), 257));
        assert!(!can_count(Cycles::Count(4), 1000));
        assert!(!can_count(Cycles::AtLeast(65535), 255));
        assert!(can_count(Cycles::Unknown, 3));
    }
}
