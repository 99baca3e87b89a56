//! The places at which paths part.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::PathAlignment;
use crate::walk::{Place, Stretch, Walk, WalkBranch};

/// The most places that a path is said to come by: a damaged capture may have any.
const MAX_VISITS: usize = 1 << 14;
/// The most partings that are looked for.
const MAX_PARTINGS: usize = 8;
/// How many branches have to agree before a path that begins in the midst is laid beside another.
const AGREE: usize = 3;
/// With how many whole paths a path that begins in the midst is compared.
const MAX_WHOLE: usize = 32;

/// A path, and how many snapshots of each group took it.
#[derive(Clone, Debug)]
pub(super) struct SharedPath {
    /// The number of the function that was traced. Calls of different functions are not compared.
    pub(super) function: usize,
    pub(super) walk: Walk,
    pub(super) snapshots: [usize; 2],
}

/// What was done at a place that has a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// The branch was taken, to there.
    Taken(Option<Place>),
    /// The branch was not taken.
    NotTaken,
}

/// A place that was passed in a call of a function, for the so-many'th time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Decision {
    function: usize,
    pub(super) at: Place,
    /// How often the place was passed before; with [`PathAlignment::End`], how often it is later.
    pub(super) before: usize,
}

/// A decision that a path comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Visit {
    decision: Decision,
    outcome: Outcome,
    /// The index of the first branch that was taken afterwards.
    next: usize,
}

/// A decision at which groups part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parted {
    pub(super) decision: Decision,
    pub(super) ends: Vec<PartedEnd>,
}

/// An outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartedEnd {
    pub(super) outcome: Outcome,
    /// How many snapshots of each group had it.
    pub(super) snapshots: [usize; 2],
    /// For each group, the path that most of its snapshots took which had this outcome, and the
    /// index of the first branch after it.
    pub(super) paths: [Option<(usize, usize)>; 2],
}

/// What tells two groups of paths apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) alignment: PathAlignment,
    /// The decision that tells the most snapshots comes first.
    pub(super) parted: Vec<Parted>,
    /// How many snapshots of each group are alike in all that was compared.
    pub(super) alike: [usize; 2],
    /// How many snapshots of each group begin in the midst, and were laid beside whole ones.
    pub(super) laid: [usize; 2],
    /// How many snapshots of each group begin in the midst, and nowhere on a whole one, or at
    /// several places of one.
    pub(super) apart: [usize; 2],
}

/// A path with what it comes by.
struct Compared {
    path: usize,
    visits: Vec<Visit>,
    /// Whether a decision has told it from the other group.
    is_told: bool,
}

/// Finds what tells two groups apart: the decision that the most snapshots tell, by an outcome
/// that one group alone had. Of several, the first on the path. What snapshots are then left are
/// looked at in turn. Without `all_branches`, nothing is known of branches that were not taken.
pub(super) fn decide(paths: &[SharedPath], all_branches: bool) -> Decided {
    let is_whole = |path: &SharedPath| path.walk.entry.is_some();
    let alignment = if paths.iter().any(is_whole) {
        PathAlignment::Entry
    } else {
        PathAlignment::End
    };
    let mut sources: BTreeSet<Place> = BTreeSet::new();
    if all_branches {
        let branches = paths.iter().flat_map(|path| &path.walk.branches);
        sources.extend(branches.filter_map(|branch| branch.from));
    }
    let mut decided = Decided {
        alignment,
        parted: Vec::new(),
        alike: [0; 2],
        laid: [0; 2],
        apart: [0; 2],
    };
    let mut whole: Vec<_> = paths.iter().filter(|path| is_whole(path)).collect();
    whole.sort_by_key(|path| Reverse(path.snapshots.iter().sum::<usize>()));
    whole.truncate(MAX_WHOLE);
    let mut compared = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let mut passed = HashMap::new();
        if alignment == PathAlignment::Entry && !is_whole(path) {
            match beside(path, &whole, &sources) {
                Some(before) => {
                    add(&mut decided.laid, path.snapshots);
                    passed = before;
                }
                None => {
                    add(&mut decided.apart, path.snapshots);
                    continue;
                }
            }
        }
        compared.push(Compared {
            path: index,
            visits: visits(path, &sources, alignment, passed),
            is_told: false,
        });
    }
    while decided.parted.len() < MAX_PARTINGS
        && let Some(decision) = best(paths, &compared, alignment)
    {
        let parted = parted(paths, &compared, decision);
        let of_one: HashSet<Outcome> = parted
            .ends
            .iter()
            .filter(|end| end.is_of_one_group())
            .map(|end| end.outcome)
            .collect();
        for one in &mut compared {
            let visit = one.visits.iter().find(|visit| visit.decision == decision);
            one.is_told |= visit.is_some_and(|visit| of_one.contains(&visit.outcome));
        }
        decided.parted.push(parted);
    }
    for one in compared.iter().filter(|one| !one.is_told) {
        add(&mut decided.alike, paths[one.path].snapshots);
    }
    decided
}

impl PartedEnd {
    pub(super) fn is_of_one_group(&self) -> bool {
        self.snapshots.contains(&0)
    }
}

fn add(to: &mut [usize; 2], snapshots: [usize; 2]) {
    to[0] += snapshots[0];
    to[1] += snapshots[1];
}

/// The places with a branch that a path comes by, oldest first. `passed` is how often it has come
/// by each before it begins.
fn visits(
    path: &SharedPath,
    sources: &BTreeSet<Place>,
    alignment: PathAlignment,
    mut passed: HashMap<Place, usize>,
) -> Vec<Visit> {
    let mut visits = Vec::new();
    let mut visit = |at, outcome, next| {
        let times = passed.entry(at).or_default();
        let decision = Decision {
            function: path.function,
            at,
            before: *times,
        };
        *times += 1;
        visits.push(Visit {
            decision,
            outcome,
            next,
        });
        visits.len() < MAX_VISITS
    };
    let ends = path.walk.branches.iter().zip(path.walk.stretches());
    'path: for (index, (branch, stretch)) in ends.enumerate() {
        let Some(from) = branch.from else { continue };
        // What was passed and not taken on the way to it.
        let passed = stretch.map(|Stretch { from, to }| sources.range(from..to));
        for at in passed.into_iter().flatten() {
            if !visit(*at, Outcome::NotTaken, index) {
                break 'path;
            }
        }
        if !visit(from, Outcome::Taken(branch.to), index + 1) {
            break;
        }
    }
    if alignment == PathAlignment::End {
        for visit in &mut visits {
            let times = passed.get(&visit.decision.at).copied().unwrap_or(0);
            visit.decision.before = times - 1 - visit.decision.before;
        }
    }
    visits
}

/// How often a path that begins in the midst has passed each place before, if its first branches
/// are on whole paths of the same function, and all that agree with it the most say the same.
fn beside(
    path: &SharedPath,
    whole: &[&SharedPath],
    sources: &BTreeSet<Place>,
) -> Option<HashMap<Place, usize>> {
    let agree = |other: &[WalkBranch]| {
        let pairs = path.walk.branches.iter().zip(other);
        pairs.take_while(|(a, b)| a == b).count()
    };
    let of_function = whole.iter().filter(|other| other.function == path.function);
    let places = of_function.flat_map(|other| {
        let branches = &other.walk.branches;
        (0..branches.len()).map(move |at| (agree(&branches[at..]), *other, at))
    });
    let places: Vec<_> = places.filter(|(agree, _, _)| *agree >= AGREE).collect();
    let most = places.iter().map(|(agree, _, _)| *agree).max()?;
    let mut found: Option<HashMap<Place, usize>> = None;
    for (_, other, at) in places.into_iter().filter(|(agree, _, _)| *agree == most) {
        let mut passed = HashMap::new();
        for visit in visits(other, sources, PathAlignment::Entry, HashMap::new()) {
            if visit.next > at {
                break;
            }
            *passed.entry(visit.decision.at).or_default() += 1;
        }
        match &found {
            Some(found) if *found != passed => return None,
            _ => found = Some(passed),
        }
    }
    found
}

/// The decision that tells the most snapshots which none has told. Of several, the one that comes
/// first. Whole paths count first: one that begins in the midst comes by the later decisions alone.
fn best(paths: &[SharedPath], compared: &[Compared], alignment: PathAlignment) -> Option<Decision> {
    #[derive(Default)]
    struct Tally {
        /// For each outcome, all snapshots of each group, and those that are not told yet: those on
        /// whole paths and all.
        outcomes: HashMap<Outcome, ([usize; 2], [usize; 2])>,
        /// How early it comes: the more, the earlier. With [`PathAlignment::Entry`] on the path on which
        /// it comes first, else on that on which it comes last.
        position: i64,
    }
    let mut tallies: HashMap<Decision, Tally> = HashMap::new();
    for one in compared {
        let path = &paths[one.path];
        let count: usize = path.snapshots.iter().sum();
        for (index, visit) in one.visits.iter().enumerate() {
            let position = match alignment {
                PathAlignment::Entry => index,
                PathAlignment::End => one.visits.len() - index,
            };
            let position = i64::try_from(position).unwrap_or(i64::MAX);
            let early = match alignment {
                PathAlignment::Entry => -position,
                PathAlignment::End => position,
            };
            let tally = tallies.entry(visit.decision).or_insert_with(|| Tally {
                position: early,
                ..Tally::default()
            });
            tally.position = match alignment {
                PathAlignment::Entry => tally.position.max(early),
                PathAlignment::End => tally.position.min(early),
            };
            let (all, untold) = tally.outcomes.entry(visit.outcome).or_default();
            add(all, path.snapshots);
            if !one.is_told {
                let whole = if path.walk.entry.is_some() { count } else { 0 };
                add(untold, [whole, count]);
            }
        }
    }
    let told = |tally: &Tally| -> [usize; 2] {
        let mut reached = [0; 2];
        let mut told = [0; 2];
        for (all, untold) in tally.outcomes.values() {
            add(&mut reached, *all);
            if all.contains(&0) {
                add(&mut told, *untold);
            }
        }
        if reached.contains(&0) { [0; 2] } else { told }
    };
    let tells = tallies
        .iter()
        .map(|(decision, tally)| (decision, tally, told(tally)));
    let (decision, ..) = tells.filter(|(_, _, [_, all])| *all > 0).max_by_key(
        |(decision, tally, [whole, all])| {
            let of_cut = if *whole > 0 { 0 } else { *all };
            (*whole, of_cut, tally.position, Reverse(**decision))
        },
    )?;
    Some(*decision)
}

/// What came of a decision.
fn parted(paths: &[SharedPath], compared: &[Compared], decision: Decision) -> Parted {
    let mut ends: HashMap<Outcome, PartedEnd> = HashMap::new();
    for one in compared {
        let Some(visit) = one.visits.iter().find(|visit| visit.decision == decision) else {
            continue;
        };
        let snapshots = paths[one.path].snapshots;
        let end = ends.entry(visit.outcome).or_insert_with(|| PartedEnd {
            outcome: visit.outcome,
            snapshots: [0; 2],
            paths: [None; 2],
        });
        add(&mut end.snapshots, snapshots);
        for group in [0, 1] {
            let most = end.paths[group].map_or(0, |(path, _)| paths[path].snapshots[group]);
            if snapshots[group] > most {
                end.paths[group] = Some((one.path, visit.next));
            }
        }
    }
    let mut ends: Vec<_> = ends.into_values().collect();
    // The group that is named first comes first.
    ends.sort_by_key(|end| {
        let [a, b] = end.snapshots;
        (b > 0, Reverse(a), Reverse(b), end.outcome)
    });
    Parted { decision, ends }
}
