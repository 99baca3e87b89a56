//! Tiers: how much of the tests a run has.

use std::fmt;

/// How much of the tests a run has. Each tier has the tests of those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// What a change of the patches, the model or the harness breaks first.
    #[default]
    Quick,
    /// What has to hold before a change is taken: all bases, languages and kernels.
    Full,
    /// All tests: proofs, documents, and what takes long and seldom fails.
    All,
}

impl Tier {
    /// All tiers, from the one with the fewest tests on.
    pub const EACH: [Self; 3] = [Self::Quick, Self::Full, Self::All];

    /// The name of the tier on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
            Self::All => "all",
        }
    }

    /// The tier that has more tests than this one. There is none after the last.
    pub fn next(self) -> Option<Self> {
        Self::EACH.into_iter().find(|tier| *tier > self)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
