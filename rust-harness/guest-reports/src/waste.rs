//! Wasted records: records of a snapshot that are not of the traced function, but of what the
//! kernel does to run the program that takes the snapshot.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The sets of branches that are recorded, by perf's names.
pub const FILTERS: [&str; 4] = ["any", "any_call,any_ret", "any_ret", "cond,any_call"];

/// The source or the target of a record, as a place in a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FunctionOffset {
    /// The name of the function.
    pub name: String,
    /// Bytes from the function's first instruction.
    pub offset: u64,
}

/// A record with the names that the guest puts to its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedRecord {
    /// The source, unless it is not recorded.
    pub from: Option<FunctionOffset>,
    /// The target, unless it is not recorded.
    pub to: Option<FunctionOffset>,
    /// perf's name of the branch type.
    pub kind: String,
}

/// Snapshots of one way to attach a program and one filter, as the guest took them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// The name of the way, such as `fexit` or `kprobe.multi`.
    pub way: String,
    /// The function that was traced.
    pub function: String,
    /// The branches that were recorded, by perf's names.
    pub filter: String,
    /// The snapshots. The records of each are newest first.
    pub snapshots: Vec<Vec<NamedRecord>>,
}

/// Why snapshots do not say what a way to attach a program wastes.
#[derive(Debug, thiserror::Error)]
pub enum Unclear {
    /// The guest did not use the filters that it should.
    #[error("the guest recorded {0:?}")]
    Filters(Vec<String>),
    /// There is no snapshot.
    #[error("the guest took no snapshot")]
    NoSnapshot,
    /// The newest record of a snapshot is of the traced function.
    #[error("a snapshot wastes nothing")]
    NothingWasted,
    /// Not the path that was taken where all branches are recorded.
    #[error(
        "with {filter} no snapshot begins with the {count} records that the filter lets through \
         that all branches begin with: number {same} is {instead:?}, not {expected:?}"
    )]
    AnotherPath {
        /// The filter.
        filter: String,
        /// The number of records that a snapshot should begin with.
        count: usize,
        /// The number of those of them that the nearest snapshot begins with.
        same: usize,
        /// What is there instead of the next one.
        instead: Option<Box<NamedRecord>>,
        /// The next one.
        expected: Option<Box<NamedRecord>>,
    },
}

/// What one way to attach a program wastes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachedBy {
    /// The name of the way, such as `fexit` or `kprobe.multi`.
    pub name: String,
    /// The wasted records with each filter, in the order of [`FILTERS`].
    pub wasted: [Wasted; 4],
}

/// The records that one way to attach a program wastes with one filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wasted {
    /// The wasted records, newest first.
    pub records: Vec<NamedRecord>,
    /// In how many snapshots these were the newest records.
    pub seen: usize,
    /// How many snapshots there are. An interrupt may come in between.
    pub of: usize,
    /// A snapshot has nothing but wasted records: more are wasted than the buffer holds.
    pub all: bool,
}

impl NamedRecord {
    /// Whether the record begins or ends in a function.
    fn touches(&self, function: &str) -> bool {
        self.is_from(function) || self.is_to(function)
    }

    fn is_from(&self, function: &str) -> bool {
        self.from.as_ref().is_some_and(|at| at.name == function)
    }

    fn is_to(&self, function: &str) -> bool {
        self.to.as_ref().is_some_and(|at| at.name == function)
    }

    /// Whether the record is of the traced function or of its caller, and would be made
    /// without a tracer, too. The function is left for the tracer by a call, which is patched
    /// in where the function begins, or by an exception. Such a record is not its own.
    fn is_own(&self, function: &str) -> bool {
        let leaves = self.is_from(function) && !self.is_to(function);
        self.touches(function) && !(leaves && self.is_call())
    }

    /// Whether the branch is a call or an exception. The driver has no type for a debug
    /// exception.
    fn is_call(&self) -> bool {
        !self.is_return() && !["COND", "UNCOND", "IND"].contains(&self.kind.as_str())
    }

    fn is_return(&self) -> bool {
        ["RET", "COND_RET", "ERET", "SYSRET"].contains(&self.kind.as_str())
    }

    /// Whether a filter has the branch recorded (`branch_type_to_brbfcr()` and
    /// `branch_type_to_brbcr()` of the driver).
    fn passes(&self, filter: &str) -> bool {
        filter.split(',').any(|name| match name {
            "any_call" => self.is_call(),
            "any_ret" => self.is_return(),
            "cond" => self.kind == "COND",
            _ => true,
        })
    }
}

/// What a way to attach a program wastes, from its snapshots with each filter, which are in
/// the order of [`FILTERS`].
///
/// # Errors
///
/// When the snapshots are not of one path, or do not say.
pub fn of_way(seen: &[Answers]) -> Result<AttachedBy, Unclear> {
    let filters: Vec<_> = seen.iter().map(|seen| seen.filter.as_str()).collect();
    let unlike = || Unclear::Filters(filters.iter().map(|&filter| filter.to_owned()).collect());
    if filters != FILTERS {
        return Err(unlike());
    }
    let any = of_all_branches(&seen[0])?;
    let wasted = seen.iter().map(|seen| match seen.filter.as_str() {
        "any" => Ok(any.clone()),
        _ => of_some(seen, &any),
    });
    let wasted: Vec<_> = wasted.collect::<Result<_, _>>()?;
    let wasted: [Wasted; 4] = wasted.try_into().map_err(|_| unlike())?;
    Ok(AttachedBy {
        name: seen[0].way.clone(),
        wasted,
    })
}

/// The wasted records where all branches are recorded: those that are newer than any of the
/// traced function's own. If snapshots differ, what most of them show counts.
///
/// # Errors
///
/// When there is no snapshot, or nothing is wasted, which cannot be.
pub fn of_all_branches(seen: &Answers) -> Result<Wasted, Unclear> {
    let wasted = |snapshot: &Vec<NamedRecord>| {
        let own = snapshot
            .iter()
            .position(|record| record.is_own(&seen.function));
        snapshot[..own.unwrap_or(snapshot.len())].to_vec()
    };
    let each: Vec<_> = seen.snapshots.iter().map(wasted).collect();
    // The first time memory may be allocated, and an interrupt may come in between.
    let mut times = HashMap::<_, usize>::new();
    for records in &each {
        *times.entry(records).or_default() += 1;
    }
    let records = each
        .iter()
        .max_by_key(|records| (times[records], Reverse(records.len())));
    let records = records.ok_or(Unclear::NoSnapshot)?.clone();
    if records.is_empty() {
        return Err(Unclear::NothingWasted);
    }
    let all = seen
        .snapshots
        .iter()
        .any(|snapshot| snapshot.len() == records.len());
    Ok(Wasted {
        seen: times[&records],
        of: each.len(),
        records,
        all,
    })
}

/// The wasted records with another filter than `any`. The same path was taken as with `any`,
/// and less of it is recorded: those of its records that the filter lets through.
///
/// # Errors
///
/// When no snapshot begins with these records.
fn of_some(seen: &Answers, any: &Wasted) -> Result<Wasted, Unclear> {
    let records = any
        .records
        .iter()
        .filter(|record| record.passes(&seen.filter));
    let records: Vec<_> = records.cloned().collect();
    let begins = |snapshot: &&Vec<NamedRecord>| snapshot.starts_with(&records);
    let count = seen.snapshots.iter().filter(begins).count();
    if count == 0 {
        let nearest = seen.snapshots.iter().map(|snapshot| {
            let both = snapshot.iter().zip(&records);
            let same = both.take_while(|(one, other)| one == other).count();
            (same, snapshot.get(same))
        });
        let (same, instead) = nearest.max_by_key(|(same, _)| *same).unwrap_or_default();
        return Err(Unclear::AnotherPath {
            filter: seen.filter.clone(),
            count: records.len(),
            same,
            instead: instead.cloned().map(Box::new),
            expected: records.get(same).cloned().map(Box::new),
        });
    }
    Ok(Wasted {
        seen: count,
        of: seen.snapshots.len(),
        records,
        all: any.all,
    })
}

/// What is kept of a way to attach a program: how much it wastes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWaste {
    /// The name of the way, such as `fexit` or `kprobe.multi`.
    pub way: String,
    /// How many records the way wastes with each filter, in the order of [`FILTERS`].
    pub wasted: [usize; 4],
    /// The way wastes more records than the buffer holds.
    pub all: bool,
    /// The wasted records where all branches are recorded, newest first.
    pub path: Vec<String>,
}

impl KeptWaste {
    /// The number of records that the way wastes with the filter `FILTERS[filter]`, in words:
    /// `64 or more` where the buffer does not hold them all.
    pub fn count(&self, filter: usize) -> String {
        let more = if self.all { " or more" } else { "" };
        format!("{}{more}", self.wasted[filter])
    }
}

impl AttachedBy {
    /// What is kept of this way.
    pub fn kept(&self) -> KeptWaste {
        let any = &self.wasted[0];
        KeptWaste {
            way: self.name.clone(),
            wasted: self.wasted.each_ref().map(|wasted| wasted.records.len()),
            all: any.all,
            path: any.records.iter().map(NamedRecord::to_string).collect(),
        }
    }
}

impl fmt::Display for NamedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |at: &Option<FunctionOffset>| match at {
            Some(FunctionOffset { name, offset }) => {
                format!("{}+{offset:#x}", without_number(name))
            }
            None => "?".to_owned(),
        };
        write!(f, "{} -> {} {}", at(&self.from), at(&self.to), self.kind)
    }
}

/// The name of a function without the number of a trampoline or the hash of a program, which
/// differ each time.
fn without_number(name: &str) -> &str {
    let prefixes = ["bpf_trampoline_", "bpf_prog_"];
    let prefix = prefixes.iter().find(|prefix| name.starts_with(**prefix));
    prefix.map_or(name, |prefix| prefix.trim_end_matches('_'))
}

#[cfg(test)]
mod tests;
