//! Which tests of a run are wanted: by their names, and by which part of them this
//! machine is to run.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::tier::Tier;

/// The most partitions that there can be.
const MOST: u32 = 1000;

/// A part of all tests: `2/8` is the second of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    number: NonZeroU32,
    of: NonZeroU32,
}

/// The error for a text that is no partition such as `2/8`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no partition such as 2/8, the second of eight")]
pub struct NotAPartition(String);

impl FromStr for Partition {
    type Err = NotAPartition;

    fn from_str(text: &str) -> Result<Self, NotAPartition> {
        let parse = || {
            let (number, of) = text.split_once('/')?;
            let (number, of) = (number.parse().ok()?, of.parse::<NonZeroU32>().ok()?);
            (number <= of && of.get() <= MOST).then_some(Self { number, of })
        };
        parse().ok_or_else(|| NotAPartition(text.to_owned()))
    }
}

impl Partition {
    /// How many partitions there are.
    pub(crate) fn count(self) -> usize {
        usize::try_from(self.of.get()).unwrap_or(usize::MAX)
    }

    /// The place of this one among them.
    pub(crate) fn place(self) -> usize {
        usize::try_from(self.number.get() - 1).unwrap_or_default()
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Which tests are wanted.
#[derive(Clone, Debug)]
pub struct Selection {
    /// A text that the line of each wanted test contains. `None`: all tests are wanted.
    only: Option<String>,
    /// The tier whose tests are wanted.
    tier: Tier,
}

impl Selection {
    /// The tests of `tier` whose line, `subject: name`, contains `only`. `None` does not
    /// restrict them.
    pub fn of(only: Option<String>, tier: Tier) -> Self {
        Self { only, tier }
    }

    /// Whether a test is wanted that is in `tier` and those after it.
    pub(crate) fn takes(&self, subject: &str, test: &str, tier: Tier) -> bool {
        let line = || format!("{subject}: {test}");
        tier <= self.tier && self.only.as_ref().is_none_or(|only| line().contains(only))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_parsed() {
        assert!("1/1".parse::<Partition>().is_ok());
        assert!("8/8".parse::<Partition>().is_ok());
        for wrong in [
            "", "2", "0/8", "9/8", "1/0", "-1/2", "a/b", "1/2/3", "1/1001",
        ] {
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }
}
