//! Many snapshots as one summary: which paths there are and how often, what of the code was
//! executed most, and how many cycles it took from one point to another.

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Serialize, Serializer};

use crate::capture::{Capture, Returned, Snapshot};
use crate::record::{BranchType, Cycles};
use crate::report::{self, Endpoint, NamedBranch};
use crate::symbol::{Location, Resolve, Symbol};
use crate::walk::{PathTable, Place, Stretch, Walk, WalkBranch, Walker};

mod distribution;
mod point;
pub mod text;

pub use distribution::{Bucket, Distribution};
pub use point::{CodePoint, PointError};

/// The value of `format` in every summary.
const FORMAT: &str = "branch-summary";
/// The version of the JSON. It grows when a field changes its meaning or is removed.
const VERSION: u32 = 1;
/// The most paths, branches, edges and lines that are told.
const MOST: usize = 100;
/// The most stretches of code whose lines are counted: those that were executed most.
const MAX_STRETCHES: usize = 20_000;
/// The most bytes of code, in all stretches, whose lines are counted. Stretches are some tens of
/// bytes long; one that nobody has executed may be of 64 KiB.
const MAX_COUNTED: u64 = 1 << 24;
/// A summary of all snapshots of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
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
    /// The number of snapshots.
    pub snapshots: usize,
    /// The number of those that have no records on a path.
    pub empty: usize,
    /// The number of those from which an interrupt or a fault was left out.
    pub interrupted: usize,
    /// The number of those whose path begins with the entry of the function.
    pub whole: usize,
    /// The names of what was traced, the one with the most snapshots first.
    pub functions: Vec<String>,
    /// The number of different paths.
    pub path_count: usize,
    /// The paths, the most frequent first, and at most 100 of them. So are the other lists.
    pub paths: Vec<SummaryPath>,
    /// The branches that were taken most.
    pub branches: Vec<HotBranch>,
    /// The edges from function to function that were taken most.
    pub edges: Vec<HotEdge>,
    /// The lines of source that were executed most.
    pub lines: Vec<HotLine>,
    /// The cycles between two points, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<Between>,
}

/// A path that snapshots took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SummaryPath {
    /// How many snapshots took it.
    pub snapshots: usize,
    /// What was traced.
    pub function: String,
    /// What the function returned in the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<Returned>,
    /// Whether it begins with the entry of the function.
    pub is_whole: bool,
    /// The cycles from its first branch to its last, where all of them were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<Distribution>,
    /// The branches, oldest first, without the tracing itself and without interrupts.
    pub records: Vec<NamedBranch>,
}

/// A branch, and how often it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HotBranch {
    /// How often.
    pub count: u64,
    /// How often the hardware had predicted it wrongly.
    pub mispredicted: u64,
    /// The source.
    pub from: Endpoint,
    /// The target.
    pub to: Endpoint,
    /// The type.
    #[serde(rename = "type", serialize_with = "type_name")]
    pub kind: BranchType,
}

/// An edge from one function to another: a call, a return, a jump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HotEdge {
    /// How often it was taken.
    pub count: u64,
    /// The function that is left.
    pub from: String,
    /// The function that is entered.
    pub to: String,
}

/// A line of source, and how often it was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HotLine {
    /// How many stretches of code without a branch that were executed have it.
    pub count: u64,
    /// The function, or the innermost one that was inlined there.
    pub function: String,
    /// The source file.
    pub file: String,
    /// The number of the line.
    pub line: u32,
}

/// The cycles between two points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Between {
    /// The first point.
    pub from: CodePoint,
    /// The second point.
    pub to: CodePoint,
    /// How often the second point came after the first, with all cycles counted.
    pub cycles: Distribution,
    /// How often it did, with cycles that were not counted.
    pub not_counted: u64,
}

fn type_name<S: Serializer>(kind: &BranchType, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.name())
}

impl Summary {
    /// Sums up the snapshots of a capture. `between` are two points of the code.
    pub fn new(capture: &Capture, symbols: &dyn Resolve, between: Option<&[CodePoint; 2]>) -> Self {
        let mut sum = Sum::new(capture, symbols, between.cloned());
        for (index, snapshot) in capture.snapshots.iter().enumerate() {
            sum.add(index, snapshot);
        }
        sum.summary()
    }
}

impl SummaryPath {
    /// The error that the function returned, as a positive number, if it did.
    pub fn errno(&self) -> Option<u16> {
        self.returned.and_then(Returned::errno)
    }
}

/// What has been summed up so far.
struct Sum<'a, R: ?Sized> {
    capture: &'a Capture,
    walker: Walker<'a, R>,
    functions: Counts<&'a str>,
    table: PathTable<'a>,
    of_paths: Vec<OfPath>,
    branches: Vec<OfBranch>,
    stretches: Counts<Stretch>,
    between: Option<Passing>,
    empty: usize,
    interrupted: usize,
    whole: usize,
}

struct OfPath {
    first: usize,
    snapshots: usize,
    is_whole: bool,
    cycles: Vec<u64>,
}

struct OfBranch {
    branch: WalkBranch,
    count: u64,
    mispredicted: u64,
}

/// How often there is each of many things.
struct Counts<T>(HashMap<T, u64>);

impl<T: Clone + Eq + Hash + Ord> Counts<T> {
    fn new() -> Self {
        Self(HashMap::new())
    }

    fn add(&mut self, what: T, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    /// The things, the most frequent first, and at most this many.
    fn most(&self, most: usize) -> Vec<(T, u64)> {
        let mut all: Vec<_> = self
            .0
            .iter()
            .map(|(what, count)| (what.clone(), *count))
            .collect();
        all.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
        all.truncate(most);
        all
    }
}

/// The cycles between two points, as they are found.
struct Passing {
    points: [CodePoint; 2],
    /// How far into a stretch each of the points is, if it is there.
    known: HashMap<Stretch, [Option<usize>; 2]>,
    cycles: Vec<u64>,
    not_counted: u64,
}

impl<'a, R: Resolve + ?Sized> Sum<'a, R> {
    fn new(capture: &'a Capture, symbols: &'a R, between: Option<[CodePoint; 2]>) -> Self {
        Self {
            capture,
            walker: Walker::new(capture, symbols),
            functions: Counts::new(),
            table: PathTable::default(),
            of_paths: Vec::new(),
            branches: Vec::new(),
            stretches: Counts::new(),
            between: between.map(|points| Passing {
                points,
                known: HashMap::new(),
                cycles: Vec::new(),
                not_counted: 0,
            }),
            empty: 0,
            interrupted: 0,
            whole: 0,
        }
    }

    fn add(&mut self, index: usize, snapshot: &'a Snapshot) {
        self.functions.add(&snapshot.function, 1);
        let walk = self.walker.walk(snapshot);
        self.interrupted += usize::from(walk.interrupts > 0);
        if walk.branches.is_empty() {
            self.empty += 1;
            return;
        }
        self.whole += usize::from(walk.entry.is_some());
        let records = walk
            .numbers
            .iter()
            .map(|number| snapshot.records[*number].decode());
        let records: Vec<_> = records.collect();
        for (branch, record) in walk.branches.iter().zip(&records) {
            let number = self.table.branch(*branch) as usize;
            if number == self.branches.len() {
                self.branches.push(OfBranch {
                    branch: *branch,
                    count: 0,
                    mispredicted: 0,
                });
            }
            let of_branch = &mut self.branches[number];
            of_branch.count += 1;
            of_branch.mispredicted += u64::from(record.mispredicted);
        }
        let cycles: Vec<_> = records.iter().map(|record| record.cycles).collect();
        for stretch in walk.stretches().flatten() {
            self.stretches.add(stretch, 1);
        }
        self.pass(&walk, &cycles);
        let path = self.table.path(&snapshot.function, &walk);
        if path == self.of_paths.len() {
            self.of_paths.push(OfPath {
                first: index,
                snapshots: 0,
                is_whole: walk.entry.is_some(),
                cycles: Vec::new(),
            });
        }
        let path = &mut self.of_paths[path];
        path.snapshots += 1;
        // Those of the first branch are since a branch that is not on the path, if it does not
        // begin with the function.
        let first = usize::from(walk.entry.is_none());
        path.cycles.extend(added(&cycles[first..]));
    }

    /// Looks for the two points on a path.
    fn pass(&mut self, walk: &Walk, cycles: &[Cycles]) {
        let Some(passing) = &mut self.between else {
            return;
        };
        // The cycles since the first point; `None`: it has not come yet.
        let mut since: Option<Option<u64>> = None;
        for (stretch, cycles) in walk.stretches().zip(cycles) {
            let walker = &mut self.walker;
            let points = &passing.points;
            let mut look = |stretch: Stretch| {
                let step = report::step_of(&self.capture.kernel.machine);
                let mut symbols = Vec::new();
                each_symbol(walker, stretch, step, |symbol| symbols.push(symbol.clone()));
                let at = |point: &CodePoint| symbols.iter().position(|symbol| point.is_at(symbol));
                points.each_ref().map(at)
            };
            let known = &mut passing.known;
            // Neither is where the tracing itself was left out.
            let [from, to] = stretch.map_or([None; 2], |stretch| {
                *known.entry(stretch).or_insert_with(|| look(stretch))
            });
            match (from, to) {
                (Some(from), Some(to)) if from < to => {
                    passing.cycles.push(0);
                    since = None;
                }
                _ => {
                    match since.take_if(|_| to.is_some()) {
                        Some(Some(cycles)) => passing.cycles.push(cycles),
                        Some(None) => passing.not_counted += 1,
                        None => {}
                    }
                    if from.is_some() {
                        since = Some(Some(0));
                    }
                }
            }
            if let Some(counted) = &mut since {
                *counted = counted
                    .zip(counted_cycles(*cycles))
                    .map(|(sum, more)| sum + more);
            }
        }
    }

    fn summary(mut self) -> Summary {
        let mut order: Vec<_> = (0..self.of_paths.len()).collect();
        order.sort_by_key(|path| std::cmp::Reverse(self.of_paths[*path].snapshots));
        order.truncate(MOST);
        let paths = order.into_iter().map(|path| self.path(path)).collect();
        let edges = self.edges();
        let lines = self.lines();
        let branches = self.hot_branches();
        let Self {
            capture, between, ..
        } = self;
        let between = between.map(|passing| {
            let [from, to] = passing.points;
            Between {
                from,
                to,
                cycles: Distribution::of(passing.cycles),
                not_counted: passing.not_counted,
            }
        });
        let functions = self.functions.most(MOST).into_iter();
        Summary {
            format: FORMAT,
            version: VERSION,
            scenario: capture.scenario.clone(),
            kernel: capture.kernel.release.clone(),
            machine: capture.kernel.machine.clone(),
            dropped: capture.dropped,
            snapshots: capture.snapshots.len(),
            empty: self.empty,
            interrupted: self.interrupted,
            whole: self.whole,
            functions: functions.map(|(name, _)| name.to_owned()).collect(),
            path_count: self.of_paths.len(),
            paths,
            branches,
            edges,
            lines,
            between,
        }
    }

    fn path(&mut self, path: usize) -> SummaryPath {
        let of_path = &mut self.of_paths[path];
        let cycles = std::mem::take(&mut of_path.cycles);
        let snapshot = &self.capture.snapshots[of_path.first];
        SummaryPath {
            snapshots: of_path.snapshots,
            function: snapshot.function.clone(),
            returned: snapshot.returned,
            is_whole: of_path.is_whole,
            cycles: (cycles.len() == of_path.snapshots).then(|| Distribution::of(cycles)),
            records: self.walker.named(snapshot),
        }
    }

    fn hot_branches(&mut self) -> Vec<HotBranch> {
        let mut order: Vec<_> = (0..self.branches.len()).collect();
        order.sort_by_key(|branch| std::cmp::Reverse(self.branches[*branch].count));
        order.truncate(MOST);
        let walker = &mut self.walker;
        let hot = order.into_iter().map(|branch| {
            let of_branch = &self.branches[branch];
            HotBranch {
                count: of_branch.count,
                mispredicted: of_branch.mispredicted,
                from: walker.endpoint(of_branch.branch.from),
                to: walker.endpoint(of_branch.branch.to),
                kind: of_branch.branch.kind,
            }
        });
        hot.collect()
    }

    fn edges(&mut self) -> Vec<HotEdge> {
        let mut edges = Counts::new();
        for of_branch in &self.branches {
            let WalkBranch { from, to, .. } = of_branch.branch;
            let mut name = |place: Option<Place>| {
                let symbol = self.walker.endpoint(place).symbol?;
                Some(symbol.base_name().to_owned())
            };
            if let (Some(from), Some(to)) = (name(from), name(to))
                && from != to
            {
                edges.add((from, to), of_branch.count);
            }
        }
        let edges = edges.most(MOST).into_iter();
        edges
            .map(|((from, to), count)| HotEdge { count, from, to })
            .collect()
    }

    fn lines(&mut self) -> Vec<HotLine> {
        let step = report::step_of(&self.capture.kernel.machine);
        let mut lines = Counts::new();
        let mut left = MAX_COUNTED;
        for (stretch, count) in self.stretches.most(MAX_STRETCHES) {
            let length = stretch.from.distance_to(stretch.to).unwrap_or(0);
            let Some(rest) = left.checked_sub(length) else {
                continue;
            };
            left = rest;
            let mut here: Vec<(String, String, u32)> = Vec::new();
            each_symbol(&mut self.walker, stretch, step, |symbol| {
                let function = symbol
                    .inlined
                    .last()
                    .map_or(symbol.base_name(), |it| &it.name);
                if let Some(Location {
                    file,
                    line: Some(line),
                    ..
                }) = symbol.innermost()
                {
                    let same = |it: &&(String, String, u32)| {
                        (&it.0[..], &it.1[..], it.2) == (function, &file[..], *line)
                    };
                    if here.iter().rev().find(same).is_none() {
                        here.push((function.to_owned(), file.clone(), *line));
                    }
                }
            });
            for line in here {
                lines.add(line, count);
            }
        }
        let lines = lines.most(MOST).into_iter();
        lines
            .map(|((function, file, line), count)| HotLine {
                count,
                function,
                file,
                line,
            })
            .collect()
    }
}

/// Calls `see` for the symbol at each instruction of a stretch.
fn each_symbol<R: Resolve + ?Sized>(
    walker: &mut Walker<'_, R>,
    stretch: Stretch,
    step: u64,
    mut see: impl FnMut(&Symbol),
) {
    let length = stretch.from.distance_to(stretch.to).unwrap_or(0);
    for offset in (0..=length).step_by(step as usize) {
        if let Some(symbol) = walker.symbol_behind(stretch.from, offset) {
            see(&symbol);
        }
    }
}

/// The sum of these cycles, if all of them were counted.
fn added(cycles: &[Cycles]) -> Option<u64> {
    cycles.iter().map(|cycles| counted_cycles(*cycles)).sum()
}

fn counted_cycles(cycles: Cycles) -> Option<u64> {
    match cycles {
        Cycles::Count(count) => Some(count.into()),
        Cycles::Unknown | Cycles::AtLeast(_) => None,
    }
}

#[cfg(test)]
mod tests;
