//! Which instructions were executed between two records.

use std::ops::Range;

use super::{PathBranch, STRAIGHT, Source, source_of};

/// The addresses of the instructions that were executed from the target of the record `older` up
/// to the branch of the record `newer`, that one included. An exception has no instruction of its
/// own: there, the range ends before the instruction to which the exception returns. Where the way
/// is not known, the range has the branch alone.
pub(crate) fn executed(older: Option<PathBranch>, newer: PathBranch) -> Range<u64> {
    if newer.from == 0 {
        return 0..0;
    }
    let (last, end) = match source_of(newer.kind) {
        // An `SVC`, `HVC` or `SMC` lies before its record's source.
        Source::BehindCall => (newer.from.saturating_sub(4), newer.from),
        Source::Any => (newer.from, newer.from),
        Source::Branch(_) | Source::ExceptionReturn | Source::Unknown | Source::None => {
            (newer.from, newer.from.saturating_add(4))
        }
    };
    let start = straight_from(older, last).filter(|start| (last - start).is_multiple_of(4));
    start.unwrap_or(last)..end
}

/// The target of the record `older`, if the instruction at `last` is not too far behind it to have
/// been executed after it without a branch.
pub(crate) fn straight_from(older: Option<PathBranch>, last: u64) -> Option<u64> {
    let start = older.map(|older| older.to).filter(|start| *start != 0)?;
    let way = last.checked_sub(start)?;
    (way <= STRAIGHT).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BranchType;

    #[test]
    fn the_branch_is_executed_and_an_interrupted_instruction_is_not() {
        let branch = |from, to, kind| PathBranch { from, to, kind };
        let older = Some(branch(0x8, 0x1000, BranchType::Call));
        let way = |newer| executed(older, newer);
        assert_eq!(way(branch(0x1010, 0, BranchType::Return)), 0x1000..0x1014);
        assert_eq!(way(branch(0x1010, 0, BranchType::Irq)), 0x1000..0x1010);
        assert_eq!(way(branch(0x1000, 0, BranchType::Irq)), 0x1000..0x1000);
        // The SVC is at 0x100c.
        assert_eq!(way(branch(0x1010, 0, BranchType::Syscall)), 0x1000..0x1010);
        // Before the target, far behind it, or no way at all.
        assert_eq!(way(branch(0xffc, 0, BranchType::Return)), 0xffc..0x1000);
        assert_eq!(
            way(branch(0x9_0000, 0, BranchType::Return)),
            0x9_0000..0x9_0004
        );
        assert_eq!(way(branch(0, 0x1000, BranchType::Return)), 0..0);
        let alone = executed(None, branch(0x1010, 0, BranchType::Return));
        assert_eq!(alone, 0x1010..0x1014);
        let half = executed(
            Some(branch(0x8, 0, BranchType::Call)),
            branch(0x1010, 0, BranchType::Syscall),
        );
        assert_eq!(half, 0x100c..0x1010);
    }
}
