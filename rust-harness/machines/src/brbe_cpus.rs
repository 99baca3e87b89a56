//! Which CPUs of a machine with heterogeneous CPUs have BRBE.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The numbers of the CPUs that have BRBE, at least one. The other CPUs of the machine are of
/// another kind.
///
/// In JSON it is the number of CPUs where those are the first ones, and else an array of their
/// numbers. As text it is a list as the kernel's parameters have it: `0,2-3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Json", into = "Json")]
pub struct BrbeCpus(BTreeSet<u8>);

/// Why there is no such list of CPUs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no list of CPUs such as 0,2-3")]
pub struct NoList(String);

impl BrbeCpus {
    /// The first CPUs, so many of them; at least one.
    pub fn first(count: u8) -> Self {
        Self((0..count.max(1)).collect())
    }

    /// Whether the CPU of this number has BRBE.
    pub fn contains(&self, cpu: u8) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs' numbers, in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for BrbeCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.numbers().map(|cpu| cpu.to_string()).collect();
        f.write_str(&numbers.join(","))
    }
}

impl FromStr for BrbeCpus {
    type Err = NoList;

    fn from_str(text: &str) -> Result<Self, NoList> {
        let no_list = || NoList(text.to_owned());
        let number = |digits: &str| digits.parse::<u8>().map_err(|_| no_list());
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(no_list());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

/// The form in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Json {
    First(u8),
    Numbers(BTreeSet<u8>),
}

impl From<BrbeCpus> for Json {
    fn from(BrbeCpus(cpus): BrbeCpus) -> Self {
        match u8::try_from(cpus.len()) {
            Ok(count) if BrbeCpus::first(count).0 == cpus => Self::First(count),
            _ => Self::Numbers(cpus),
        }
    }
}

impl TryFrom<Json> for BrbeCpus {
    type Error = NoList;

    fn try_from(json: Json) -> Result<Self, NoList> {
        match json {
            Json::First(0) => Err(NoList("0".to_owned())),
            Json::First(count) => Ok(Self::first(count)),
            Json::Numbers(cpus) if cpus.is_empty() => Err(NoList(String::new())),
            Json::Numbers(cpus) => Ok(Self(cpus)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_the_kernel_reads_it() {
        let list = |text: &str| text.parse::<BrbeCpus>().map(|cpus| cpus.to_string());
        assert_eq!(list("0,2-3").unwrap(), "0,2,3");
        assert_eq!(list("3,1").unwrap(), "1,3");
        for wrong in ["", "x", "1-", "-1", "3-1", "1,,2", "256", "0:2"] {
            assert_eq!(list(wrong), Err(NoList(wrong.to_owned())));
        }
    }

    #[test]
    fn the_first_cpus_are_a_number_in_json() {
        let json = |text: &str| {
            let cpus: BrbeCpus = text.parse().unwrap();
            let json = serde_json::to_string(&cpus).unwrap();
            assert_eq!(serde_json::from_str::<BrbeCpus>(&json).unwrap(), cpus);
            json
        };
        assert_eq!(json("0-1"), "2");
        assert_eq!(json("1,3"), "[1,3]");
        for wrong in ["0", "[]", "[256]", "\"0\"", "-1"] {
            assert!(serde_json::from_str::<BrbeCpus>(wrong).is_err(), "{wrong}");
        }
    }
}
