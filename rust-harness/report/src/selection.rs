//! Which tests of a run are wanted: by their names, and by which part of them this
//! machine is to run.

use std::num::NonZeroU32;
use std::str::FromStr;

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
            let (number, of) = (number.parse().ok()?, of.parse().ok()?);
            (number <= of).then_some(Self { number, of })
        };
        parse().ok_or_else(|| NotAPartition(text.to_owned()))
    }
}

/// Decides which tests are wanted. Counts jobs, to deal them out to partitions.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// A text that the line of each wanted test contains. `None`: all tests are wanted.
    only: Option<String>,
    partition: Option<Partition>,
    /// How many jobs with a wanted name were counted so far.
    counted: u32,
}

impl Selection {
    /// A selection of the tests whose line, `subject: name`, contains `only`, and of those
    /// the ones in `partition`. `None` does not restrict it.
    pub fn new(only: Option<String>, partition: Option<Partition>) -> Self {
        Self {
            only,
            partition,
            counted: 0,
        }
    }

    /// Whether the selection takes all tests.
    pub fn is_all(&self) -> bool {
        self.only.is_none() && self.partition.is_none()
    }

    /// Whether a test has a wanted name: whether its line, `subject: name`, contains the text
    /// that was asked for.
    pub fn names(&self, subject: &str, test: &str) -> bool {
        let line = || format!("{subject}: {test}");
        self.only.as_ref().is_none_or(|only| line().contains(only))
    }

    /// Counts the next job with a wanted name, and returns whether it belongs to this
    /// partition. All partitions of a run count the same jobs in the same order, and deal
    /// them out like cards.
    pub fn takes_next(&mut self) -> bool {
        let place = self.counted;
        self.counted += 1;
        self.partition
            .is_none_or(|part| place % part.of == part.number.get() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_parsed() {
        assert!("1/1".parse::<Partition>().is_ok());
        assert!("8/8".parse::<Partition>().is_ok());
        for wrong in ["", "2", "0/8", "9/8", "1/0", "-1/2", "a/b", "1/2/3"] {
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_job_is_in_one_partition() {
        let mut parts: Vec<_> = ["1/3", "2/3", "3/3"]
            .iter()
            .map(|part| Selection::new(None, Some(part.parse().unwrap())))
            .collect();
        for _ in 0..10 {
            let taken = parts
                .iter_mut()
                .filter_map(|part| part.takes_next().then_some(()));
            assert_eq!(taken.count(), 1);
        }
        assert!(Selection::default().takes_next());
    }
}
