//! What CPUID says of LBRs and performance monitoring.

use crate::pmu::{FIXED, GENERAL, WIDTH};
use crate::stack::Depth;

/// The contents of a leaf: EAX, EBX, ECX and EDX.
pub type Leaf = [u32; 4];

/// The leaf of features, of which EDX has the bit of architectural LBRs.
const FEATURES: u32 = 7;
const ARCHITECTURAL_LBRS: u32 = 1 << 19;
/// The leaf of architectural performance monitoring.
const PERFORMANCE: u32 = 0x0a;
/// The leaf of architectural LBRs.
const LAST_BRANCH_RECORDS: u32 = 0x1c;

/// Whether this leaf describes LBRs or performance monitoring.
pub fn is_concerned(leaf: u32, subleaf: u32) -> bool {
    match leaf {
        PERFORMANCE | LAST_BRANCH_RECORDS => true,
        FEATURES => subleaf == 0,
        _ => false,
    }
}

/// A leaf on a CPU with LBRs of up to `deepest` records. `without` is the leaf on a CPU
/// that has no LBRs.
pub(crate) fn with_lbrs(leaf: u32, subleaf: u32, deepest: Depth, without: Leaf) -> Leaf {
    let [eax, ebx, ecx, edx] = without;
    match (leaf, subleaf) {
        (FEATURES, 0) => [eax, ebx, ecx, edx | ARCHITECTURAL_LBRS],
        (PERFORMANCE, _) => performance(),
        (LAST_BRANCH_RECORDS, 0) => last_branch_records(deepest),
        _ => without,
    }
}

/// The leaf of architectural performance monitoring of version 5, the first that came
/// with architectural LBRs: counters for cycles and instructions.
fn performance() -> Leaf {
    const VERSION: u32 = 5;
    /// `EVENTS` is the number of architectural events. Events 3 to 6, of the last-level
    /// cache and of branches, are not there: `MISSING`.
    const EVENTS: u32 = 7;
    const MISSING: u32 = 0b111_1000;
    const ANY_THREAD_DEPRECATED: u32 = 1 << 15;
    let (general, fixed) = (GENERAL as u32, FIXED as u32);
    [
        VERSION | general << 8 | WIDTH << 16 | EVENTS << 24,
        MISSING,
        (1 << fixed) - 1,
        fixed | WIDTH << 5 | ANY_THREAD_DEPRECATED,
    ]
}

/// The leaf of architectural LBRs: what LBRs of up to `deepest` records can do.
fn last_branch_records(deepest: Depth) -> Leaf {
    /// CPL filtering, branch type filtering, call stacks.
    const FILTERS: u32 = 0b111;
    /// Cycle counts and branch types; whether a branch was predicted is not known.
    const RECORDED: u32 = 0b110;
    let depths = (1 << (deepest.count() / 8)) - 1;
    [depths, FILTERS, RECORDED, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_as_the_manual_lays_them_out() {
        let deepest = Depth::from_count(32).unwrap();
        let shown = |leaf, subleaf| with_lbrs(leaf, subleaf, deepest, [1, 2, 3, 4]);
        assert_eq!(shown(0xa, 0), [0x0730_0405, 0x78, 7, 0x8603]);
        assert_eq!(shown(0x1c, 0), [0x0f, 7, 6, 0]);
        assert_eq!(last_branch_records(Depth::MAX)[0], 0xff);
        assert_eq!(shown(7, 0), [1, 2, 3, 4 | 1 << 19]);
        for other in [(7, 1), (0, 0), (1, 0), (0x1d, 0)] {
            assert_eq!(shown(other.0, other.1), [1, 2, 3, 4], "{other:?}");
            assert!(!is_concerned(other.0, other.1));
        }
        assert!(is_concerned(7, 0) && is_concerned(0xa, 0));
    }
}
