//! Which tests of a run are wanted: by their names, and by which part of them this
//! machine is to run.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::tier::Tier;

/// The most partitions that there can be.
const MOST: u32 = 1000;

/// A part of all tests: `2/8` is the second of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Partition {
    of: NonZeroU32,
    number: NonZeroU32,
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

impl TryFrom<String> for Partition {
    type Error = NotAPartition;

    fn try_from(text: String) -> Result<Self, NotAPartition> {
        text.parse()
    }
}

impl From<Partition> for String {
    fn from(partition: Partition) -> Self {
        partition.to_string()
    }
}

impl Partition {
    /// All parts that this one is one of, in their order.
    pub(crate) fn all(self) -> impl Iterator<Item = Self> {
        let of = self.of;
        let numbers = (1..=of.get()).filter_map(NonZeroU32::new);
        numbers.map(move |number| Self { of, number })
    }

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

/// What a test has to be called to be wanted.
#[derive(Clone, Debug)]
enum Only {
    /// Anything.
    All,
    /// Its line, `subject: name`, contains this text.
    Text(String),
    /// Its name is one of these.
    Names(BTreeSet<String>),
}

/// Which tests are wanted.
#[derive(Clone, Debug)]
pub struct Selection {
    only: Only,
    /// The tier whose tests are wanted.
    tier: Tier,
}

impl Selection {
    /// The tests of `tier` whose line, `subject: name`, contains `only`. `None` does not
    /// restrict them.
    pub fn of(only: Option<String>, tier: Tier) -> Self {
        let only = only.map_or(Only::All, Only::Text);
        Self { only, tier }
    }

    /// The tests of these names, in whichever tier.
    pub fn named(names: BTreeSet<String>) -> Self {
        Self {
            only: Only::Names(names),
            tier: Tier::All,
        }
    }

    /// Whether a test is wanted that is in `tier` and those after it.
    pub(crate) fn takes(&self, subject: &str, test: &str, tier: Tier) -> bool {
        let is_wanted = match &self.only {
            Only::All => true,
            Only::Text(text) => format!("{subject}: {test}").contains(text),
            Only::Names(names) => names.contains(test),
        };
        is_wanted && tier <= self.tier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole() {
        let selection = Selection::named(["twice".to_owned()].into());
        assert!(selection.takes("7.3.4 patched", "twice", Tier::All));
        assert!(!selection.takes("7.3.4 patched", "twice, debug kernel", Tier::Quick));
    }

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
