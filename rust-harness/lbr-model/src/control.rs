//! The register `IA32_LBR_CTL`.

use crate::branch::{Cpl, TransferKind};

/// The value of `IA32_LBR_CTL`: what is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control(u64);

const ENABLED: u64 = 1 << 0;
const OS: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const CALL_STACK: u64 = 1 << 3;
/// The branch type filters.
const KINDS: u64 = 0x7f << 16;

impl Control {
    /// The value as software writes it, without reserved bits.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & (ENABLED | OS | USER | CALL_STACK | KINDS))
    }

    /// The value as software reads it.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// `LBREn`: whether anything is recorded.
    pub fn is_enabled(self) -> bool {
        self.0 & ENABLED != 0
    }

    /// `CALL_STACK`: whether calls are pushed, and returns pop them.
    pub fn is_call_stack(self) -> bool {
        self.0 & CALL_STACK != 0
    }

    /// `OS`, `USR`: whether what arrives at this level is recorded.
    pub fn selects_level(self, cpl: Cpl) -> bool {
        let bit = match cpl {
            Cpl::Kernel => OS,
            Cpl::User => USER,
        };
        self.0 & bit != 0
    }

    /// Whether branches of this kind are recorded.
    pub fn selects_kind(self, kind: TransferKind) -> bool {
        self.0 >> kind.filter() & 1 != 0
    }
}
