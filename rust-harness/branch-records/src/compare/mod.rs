//! What tells two groups of snapshots apart: the branches at which their paths part.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;

use serde::{Serialize, Serializer};

use crate::capture::{Capture, Snapshot};
use crate::filter::{self, Filter, FilterError};
use crate::report::{Endpoint, NamedBranch, SnapshotReport};
use crate::sources::{self, Sources};
use crate::symbol::{Resolve, Symbol};
use crate::walk::{PathTable, Walker};

mod condition;
mod decisions;
pub mod text;

use decisions::{Decided, Outcome, Parted, PartedEnd, SharedPath, decide};

/// The value of `format` in every comparison.
const FORMAT: &str = "branch-comparison";
/// The version of the JSON. It grows when a field changes its meaning or is removed.
const VERSION: u32 = 1;
/// The most paths of a group that are told.
const MAX_PATHS: usize = 100;
/// The most different paths that are compared: the most frequent ones.
const MAX_COMPARED: usize = 10_000;
/// The most outcomes of a branch that are told.
const MAX_OUTCOMES: usize = 16;

/// A group of snapshots: those that pass a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotGroup {
    text: String,
    filter: Filter,
}

impl SnapshotGroup {
    /// The snapshots that pass the filter `text`.
    ///
    /// # Errors
    ///
    /// When the text is no filter of snapshots in a capture.
    pub fn new(text: &str) -> Result<Self, FilterError> {
        Ok(Self {
            text: text.to_owned(),
            filter: filter::parse_captured(text)?,
        })
    }

    /// The filter of the group, as it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The filter of the group.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The groups that are compared if nothing else is asked for: the snapshots of calls that
    /// failed, and of those that did not.
    pub fn by_error() -> [Self; 2] {
        let group = |text: &str, filter| Self {
            text: text.to_owned(),
            filter,
        };
        let failed = Filter::failed();
        [
            group("failed", failed.clone()),
            group("!failed", failed.negated()),
        ]
    }
}

/// Two groups of snapshots, and where their paths part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupComparison {
    format: &'static str,
    version: u32,
    /// What was done to take the snapshots.
    pub scenario: String,
    /// `uname -r` of the kernel that the snapshots were taken in.
    pub kernel: String,
    /// `uname -m` of the machine.
    pub machine: String,
    /// The number of snapshots that were lost because there was no room for them.
    pub dropped: u64,
    /// The names of what was traced, in the order in which they come.
    pub functions: Vec<String>,
    /// Whether all branches were recorded. If not, nothing is known of branches that were not taken.
    pub all_branches: bool,
    /// How paths are laid beside each other.
    pub alignment: PathAlignment,
    /// The two groups.
    pub groups: [GroupReport; 2],
    /// The number of snapshots that are in neither group, in both, or without records.
    pub in_no_group: usize,
    /// Whether each path of the one group is a path of the other.
    pub same_paths: bool,
    /// The branches at which the groups part. The first one tells the most snapshots apart.
    pub partings: Vec<Parting>,
    /// For each group, a snapshot whose path is drawn, without what is not on the path.
    #[serde(skip)]
    pub(crate) drawn: [Option<SnapshotReport>; 2],
}

/// How paths are laid beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathAlignment {
    /// By the entry of the function that was traced. A path that begins in the midst is laid where
    /// its first branches are on a path that is whole.
    Entry,
    /// By the moment of the snapshot: the entry is on no path.
    End,
}

/// A group of snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupReport {
    /// The filter that its snapshots pass.
    pub filter: String,
    /// The number of its snapshots.
    pub snapshots: usize,
    /// The number of those whose records begin in the midst of the call, and were laid where their
    /// first branches are on the path of another.
    pub cut: usize,
    /// The number of those whose records begin in the midst of the call, and nowhere on the path of
    /// another.
    pub not_aligned: usize,
    /// The number of those that are not compared, since there are more than 10,000 different paths.
    pub left_out: usize,
    /// The number of those from which an interrupt or a fault was left out.
    pub interrupted: usize,
    /// The number of those that no parting tells from the other group.
    pub alike: usize,
    /// The number of different paths.
    pub path_count: usize,
    /// The paths, the most frequent first, as far as there are not more than 100.
    pub paths: Vec<GroupPath>,
}

/// A path that snapshots of a group took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupPath {
    /// How many snapshots took it.
    pub snapshots: usize,
    /// The index of the first of them in the capture.
    pub first: usize,
    /// Whether it begins with the entry of the function.
    pub is_whole: bool,
    /// The branches, oldest first, without the tracing itself and without interrupts.
    pub records: Vec<NamedBranch>,
}

/// A branch at which groups part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parting {
    /// The address of the branch.
    pub at: Endpoint,
    /// How often a path has come by before. With [`PathAlignment::End`]: how often it does later.
    pub before: usize,
    /// The text of the source line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The condition in it, if that is known.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "condition_text"
    )]
    pub condition: Option<SourceCondition>,
    /// The branches that come before it on the path that most snapshots took, oldest first.
    pub common: Vec<NamedBranch>,
    /// What came of it.
    pub outcomes: Vec<PartingOutcome>,
    /// The number of outcomes more that are not told.
    pub more_outcomes: usize,
}

/// The part of a line that is a branch's condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCondition {
    text: String,
    /// Where it is in the line, in bytes.
    pub(crate) range: Range<usize>,
}

impl SourceCondition {
    /// The condition as it is written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn condition_text<S: Serializer>(
    condition: &Option<SourceCondition>,
    to: S,
) -> Result<S::Ok, S::Error> {
    condition
        .as_ref()
        .map(|condition| &condition.text)
        .serialize(to)
}

/// What came of a branch at which groups part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartingOutcome {
    /// Where the branch led. `None`: it was not taken.
    pub to: Option<Endpoint>,
    /// How many snapshots of each group had this outcome.
    pub snapshots: [usize; 2],
    /// What each group did next: the branches after it on the path that most of its snapshots took,
    /// oldest first.
    pub next: [Option<Vec<NamedBranch>>; 2],
}

impl GroupComparison {
    /// Compares the snapshots of a capture that pass the one filter with those that pass the other.
    /// `sources` is asked for the text of source files.
    pub fn new(
        capture: &Capture,
        symbols: &dyn Resolve,
        groups: &[SnapshotGroup; 2],
        sources: &Sources<'_>,
    ) -> Self {
        let mut grouped = Grouped::new(capture, symbols, groups);
        let decided = decide(&grouped.paths, capture.has_all_branches());
        let partings = decided
            .parted
            .iter()
            .map(|parted| grouped.parting(parted, sources));
        let partings = partings.collect();
        let drawn = [0, 1].map(|group| grouped.drawn(group, &decided));
        let groups = [0, 1].map(|group| grouped.group(group, &groups[group].text, &decided));
        Self {
            format: FORMAT,
            version: VERSION,
            scenario: capture.scenario.clone(),
            kernel: capture.kernel.release.clone(),
            machine: capture.kernel.machine.clone(),
            dropped: capture.dropped,
            functions: grouped.functions,
            all_branches: capture.has_all_branches(),
            alignment: decided.alignment,
            groups,
            in_no_group: grouped.in_no_group,
            same_paths: !grouped.paths.iter().any(|path| path.snapshots.contains(&0)),
            partings,
            drawn,
        }
    }
}

impl Parting {
    /// What is before the condition in the line `text`, the condition, and what is behind it.
    /// Where the condition is not known, all is before it.
    pub(crate) fn around_condition<'t>(&self, text: &'t str) -> [&'t str; 3] {
        let range = self
            .condition
            .as_ref()
            .map(|condition| condition.range.clone());
        let parts = range.and_then(|range| {
            let [before, behind] = [text.get(..range.start)?, text.get(range.end..)?];
            Some([before, text.get(range)?, behind])
        });
        parts.unwrap_or([text, "", ""])
    }
}

impl PartingOutcome {
    /// Whether one group alone had this outcome.
    pub fn is_of_one_group(&self) -> bool {
        self.snapshots.contains(&0)
    }
}

/// The snapshots of a capture, as paths of two groups.
struct Grouped<'a, R: ?Sized> {
    capture: &'a Capture,
    walker: Walker<'a, R>,
    paths: Vec<SharedPath>,
    /// For each path, the index of the first snapshot of each group.
    firsts: Vec<[Option<usize>; 2]>,
    functions: Vec<String>,
    in_no_group: usize,
    /// How many snapshots of each group were interrupted.
    interrupted: [usize; 2],
    /// How many snapshots of each group took paths that are not compared.
    left_out: [usize; 2],
}

/// A path that was found: how many snapshots of each group took it, and the first one of each.
#[derive(Default)]
struct Found {
    snapshots: [usize; 2],
    firsts: [Option<usize>; 2],
}

impl<'a, R: Resolve + ?Sized> Grouped<'a, R> {
    fn new(capture: &'a Capture, symbols: &'a R, groups: &[SnapshotGroup; 2]) -> Self {
        let mut grouped = Self {
            capture,
            walker: Walker::new(capture, symbols),
            paths: Vec::new(),
            firsts: Vec::new(),
            functions: Vec::new(),
            in_no_group: 0,
            interrupted: [0; 2],
            left_out: [0; 2],
        };
        let mut table = PathTable::default();
        let mut found: Vec<Found> = Vec::new();
        for (index, snapshot) in capture.snapshots.iter().enumerate() {
            let holds = groups
                .each_ref()
                .map(|group| group.filter.holds(snapshot) == Some(true));
            let group = match holds {
                [true, false] if snapshot.errno.is_none() => 0,
                [false, true] if snapshot.errno.is_none() => 1,
                _ => {
                    grouped.in_no_group += 1;
                    continue;
                }
            };
            let walk = grouped.walker.walk(snapshot);
            grouped.interrupted[group] += usize::from(walk.interrupts > 0);
            let path = table.path(&snapshot.function, &walk);
            if path == found.len() {
                found.push(Found::default());
            }
            found[path].snapshots[group] += 1;
            found[path].firsts[group].get_or_insert(index);
        }
        found.sort_by_key(|path| Reverse(path.snapshots.iter().sum::<usize>()));
        let left_out = found.split_off(found.len().min(MAX_COMPARED));
        for path in left_out {
            for group in [0, 1] {
                grouped.left_out[group] += path.snapshots[group];
            }
        }
        for Found { snapshots, firsts } in found {
            let Some(first) = firsts.into_iter().flatten().min() else {
                continue;
            };
            let snapshot = &capture.snapshots[first];
            let known = grouped
                .functions
                .iter()
                .position(|name| *name == snapshot.function);
            let function = known.unwrap_or_else(|| {
                grouped.functions.push(snapshot.function.clone());
                grouped.functions.len() - 1
            });
            grouped.paths.push(SharedPath {
                function,
                walk: grouped.walker.walk(snapshot),
                snapshots,
            });
            grouped.firsts.push(firsts);
        }
        grouped
    }

    fn group(&mut self, group: usize, filter: &str, decided: &Decided) -> GroupReport {
        let mut of_group: Vec<_> = (0..self.paths.len())
            .filter(|path| self.paths[*path].snapshots[group] > 0)
            .collect();
        of_group.sort_by_key(|path| Reverse(self.paths[*path].snapshots[group]));
        let path_count = of_group.len();
        let paths = of_group.into_iter().take(MAX_PATHS).filter_map(|path| {
            let first = self.firsts[path][group]?;
            let SharedPath {
                walk, snapshots, ..
            } = &self.paths[path];
            let (snapshots, count) = (snapshots[group], walk.branches.len());
            Some(GroupPath {
                snapshots,
                first,
                is_whole: walk.entry.is_some(),
                records: self.named(first, 0..count),
            })
        });
        let paths = paths.collect();
        let snapshots = self.paths.iter().map(|path| path.snapshots[group]);
        GroupReport {
            filter: filter.to_owned(),
            snapshots: snapshots.sum::<usize>() + self.left_out[group],
            left_out: self.left_out[group],
            cut: decided.laid[group],
            not_aligned: decided.apart[group],
            interrupted: self.interrupted[group],
            alike: decided.alike[group],
            path_count,
            paths,
        }
    }

    /// Some branches of the path that the snapshot of this index took, with names.
    fn named(&mut self, index: usize, branches: Range<usize>) -> Vec<NamedBranch> {
        let mut named = self.walker.named(&self.capture.snapshots[index]);
        named.truncate(branches.end);
        named.split_off(branches.start)
    }

    /// A snapshot of the group on the path that is drawn: the one that most of its snapshots took
    /// which are told apart first, or else that most took.
    fn drawn(&mut self, group: usize, decided: &Decided) -> Option<SnapshotReport> {
        let told = decided.parted.first().and_then(|parted| {
            let mut ends = parted.ends.iter().filter(|end| end.is_of_one_group());
            ends.find_map(|end| Some(end.paths[group]?.0))
        });
        let most = || (0..self.paths.len()).max_by_key(|path| self.paths[*path].snapshots[group]);
        let index = self.firsts[told.or_else(most)?][group]?;
        let snapshot: &Snapshot = &self.capture.snapshots[index];
        let walk = self.walker.walk(snapshot);
        let mut report = SnapshotReport::new(snapshot, self.walker.symbols());
        let on_path: HashSet<_> = walk.entering.into_iter().chain(walk.numbers).collect();
        report
            .records
            .retain(|branch| on_path.contains(&branch.number));
        Some(report)
    }

    fn parting(&mut self, parted: &Parted, sources: &Sources<'_>) -> Parting {
        // The path to it is that of the first outcome.
        let mut paths = parted.ends.iter().flat_map(|end| end.paths).flatten();
        let (path, next) = paths.next().unwrap_or_default();
        let first = self.firsts[path].into_iter().flatten().next().unwrap_or(0);
        let taken = matches!(parted.ends.first(), Some(end) if end.outcome != Outcome::NotTaken);
        let common = self.named(first, 0..next - usize::from(taken && next > 0));
        let at = self.walker.endpoint(Some(parted.decision.at));
        let location = at.symbol.as_deref().and_then(Symbol::innermost);
        let line = location.and_then(|location| {
            let text = sources::line(sources, location)?;
            let condition = location
                .column
                .and_then(|column| condition::in_line(&text, column));
            let condition = condition.map(|range| SourceCondition {
                text: text[range.clone()].to_owned(),
                range,
            });
            Some((text, condition))
        });
        let (text, condition) = line.unzip();
        Parting {
            before: parted.decision.before,
            text,
            condition: condition.flatten(),
            common,
            outcomes: parted
                .ends
                .iter()
                .take(MAX_OUTCOMES)
                .map(|end| self.outcome(end))
                .collect(),
            more_outcomes: parted.ends.len().saturating_sub(MAX_OUTCOMES),
            at,
        }
    }

    fn outcome(&mut self, end: &PartedEnd) -> PartingOutcome {
        let to = match end.outcome {
            Outcome::NotTaken => None,
            Outcome::Taken(place) => Some(self.walker.endpoint(place)),
        };
        let next = [0, 1].map(|group| {
            let (path, next) = end.paths[group]?;
            let first = self.firsts[path][group]?;
            Some(self.named(first, next..self.paths[path].walk.branches.len()))
        });
        PartingOutcome {
            to,
            snapshots: end.snapshots,
            next,
        }
    }
}

#[cfg(test)]
mod tests;
