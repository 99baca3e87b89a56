//! The places at which paths part.

use std::collections::{BTreeSet, HashMap};

use crate::walk::{Place, Walk, WalkBranch};

/// The most bytes of code that are executed without a branch. More means that a record is missing.
const LONGEST: u64 = 64 << 10;
/// The most partings that are looked for.
const MAX_PARTINGS: usize = 8;
/// How many branches have to agree before a path that begins in the midst is laid beside another.
const AGREE: usize = 3;
/// With how many whole paths a path that begins in the midst is compared.
const MAX_WHOLE: usize = 32;

/// Paths that are the same, and how many snapshots of each group took them.
#[derive(Clone, Debug)]
pub(super) struct SharedPath {
    pub(super) walk: Walk,
    pub(super) snapshots: [usize; 2],
}

/// How paths are laid beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alignment {
    /// By the entry of the function. A path that begins in the midst is laid where its first
    /// branches are on a path that is whole.
    Entry,
    /// By the end: no path has an entry.
    End,
}

/// What was done at a place that has a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// The branch was taken, to there.
    Taken(Option<Place>),
    /// The branch was not taken.
    NotTaken,
}

/// A place that was passed, for the so-many'th time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Decision {
    pub(super) at: Place,
    /// How often the place was passed before; with [`Alignment::End`], how often it is later.
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

/// One outcome of a decision.
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
    pub(super) alignment: Alignment,
    /// The decision that tells the most snapshots comes first.
    pub(super) parted: Vec<Parted>,
    /// How many snapshots of each group are alike in all that was compared.
    pub(super) alike: [usize; 2],
    /// How many snapshots of each group begin in the midst, and were laid beside whole ones.
    pub(super) laid: [usize; 2],
    /// How many snapshots of each group begin in the midst, and nowhere on a whole one.
    pub(super) apart: [usize; 2],
}

/// Finds what tells two groups apart: the decision that the most snapshots tell, by an outcome
/// that one group alone had. Of several, the first on the path. What snapshots are then left are
/// looked at in turn.
pub(super) fn decide(paths: &[SharedPath]) -> Decided {
    let is_whole = |path: &SharedPath| path.walk.entry.is_some();
    let alignment = if paths.iter().any(is_whole) {
        Alignment::Entry
    } else {
        Alignment::End
    };
    let sources: BTreeSet<Place> = paths
        .iter()
        .flat_map(|path| path.walk.branches.iter().filter_map(|branch| branch.from))
        .collect();
    let mut decided = Decided {
        alignment,
        parted: Vec::new(),
        alike: [0; 2],
        laid: [0; 2],
        apart: [0; 2],
    };
    let whole: Vec<_> = paths.iter().filter(|path| is_whole(path)).collect();
    let whole = &whole[..whole.len().min(MAX_WHOLE)];
    let mut left = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let before = match alignment {
            Alignment::Entry if !is_whole(path) => match beside(&path.walk, whole, &sources) {
                Some(before) => {
                    add(&mut decided.laid, path.snapshots);
                    before
                }
                None => {
                    add(&mut decided.apart, path.snapshots);
                    continue;
                }
            },
            _ => HashMap::new(),
        };
        left.push((index, visits(&path.walk, &sources, alignment, before)));
    }
    while decided.parted.len() < MAX_PARTINGS
        && let Some(parted) = best(paths, &left)
    {
        let pure = |outcome: Outcome| {
            let end = parted.ends.iter().find(|end| end.outcome == outcome);
            end.is_some_and(PartedEnd::is_of_one_group)
        };
        left.retain(|(_, visits)| {
            let visit = visits
                .iter()
                .find(|visit| visit.decision == parted.decision);
            !visit.is_some_and(|visit| pure(visit.outcome))
        });
        decided.parted.push(parted);
    }
    for (index, _) in left {
        add(&mut decided.alike, paths[index].snapshots);
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

/// The places with a branch that a path comes by, oldest first.
fn visits(
    walk: &Walk,
    sources: &BTreeSet<Place>,
    alignment: Alignment,
    mut passed: HashMap<Place, usize>,
) -> Vec<Visit> {
    let mut visits = Vec::new();
    let mut visit = |at, outcome, next| {
        let times = passed.entry(at).or_default();
        let decision = Decision { at, before: *times };
        *times += 1;
        visits.push(Visit {
            decision,
            outcome,
            next,
        });
    };
    let mut place = walk.entry;
    for (index, branch) in walk.branches.iter().enumerate() {
        if let Some(from) = branch.from {
            for at in straight(place, from, sources) {
                visit(at, Outcome::NotTaken, index);
            }
            visit(from, Outcome::Taken(branch.to), index + 1);
        }
        place = branch.to;
    }
    if alignment == Alignment::End {
        for visit in &mut visits {
            let times = passed.get(&visit.decision.at).copied().unwrap_or(0);
            visit.decision.before = times - 1 - visit.decision.before;
        }
    }
    visits
}

/// The branches that were passed and not taken on the path from a branch's target to the next
/// branch.
fn straight(
    place: Option<Place>,
    from: Place,
    sources: &BTreeSet<Place>,
) -> impl Iterator<Item = Place> {
    let is_near = |place: &Place| place.distance_to(from).is_some_and(|by| by <= LONGEST);
    let place = place.filter(is_near).unwrap_or(from);
    sources.range(place..from).copied()
}

/// How often a path that begins in the midst has passed each place before, if its first branches
/// are on a whole path.
fn beside(
    walk: &Walk,
    whole: &[&SharedPath],
    sources: &BTreeSet<Place>,
) -> Option<HashMap<Place, usize>> {
    let agree = |other: &[WalkBranch]| {
        let pairs = walk.branches.iter().zip(other);
        pairs.take_while(|(a, b)| a == b).count()
    };
    let enough = AGREE.min(walk.branches.len()).max(1);
    let (_, path, at) = whole
        .iter()
        .flat_map(|path| {
            let from = &path.walk.branches;
            (0..from.len()).map(move |at| (agree(&from[at..]), path, at))
        })
        .filter(|(agree, _, _)| *agree >= enough)
        .max_by_key(|(agree, _, _)| *agree)?;
    let mut passed = HashMap::new();
    let begin = &path.walk.branches[at];
    for visit in visits(&path.walk, sources, Alignment::Entry, HashMap::new()) {
        if visit.next > at && Some(visit.decision.at) == begin.from {
            break;
        }
        *passed.entry(visit.decision.at).or_default() += 1;
    }
    Some(passed)
}

/// The decision that tells the most snapshots. Of several, the one that comes first.
fn best(paths: &[SharedPath], left: &[(usize, Vec<Visit>)]) -> Option<Parted> {
    struct Tally {
        outcomes: HashMap<Outcome, [usize; 2]>,
        /// How many visits come before it, on the path on which it comes first.
        position: usize,
    }
    let mut tallies: HashMap<Decision, Tally> = HashMap::new();
    for (index, visits) in left {
        for (position, visit) in visits.iter().enumerate() {
            let tally = tallies.entry(visit.decision).or_insert_with(|| Tally {
                outcomes: HashMap::new(),
                position,
            });
            tally.position = tally.position.min(position);
            add(
                tally.outcomes.entry(visit.outcome).or_default(),
                paths[*index].snapshots,
            );
        }
    }
    let told = |tally: &Tally| -> usize {
        let reached = tally.outcomes.values().fold([0; 2], |mut sum, one| {
            add(&mut sum, *one);
            sum
        });
        if reached.contains(&0) {
            return 0;
        }
        let pure = tally.outcomes.values().filter(|one| one.contains(&0));
        pure.flatten().sum()
    };
    let (decision, tally) = tallies
        .iter()
        .filter(|(_, tally)| told(tally) > 0)
        .max_by_key(|(decision, tally)| {
            let early = std::cmp::Reverse((tally.position, **decision));
            (told(tally), early)
        })?;
    let mut outcomes: Vec<_> = tally.outcomes.iter().collect();
    // The group that is named first comes first.
    outcomes.sort_by_key(|(outcome, [a, b])| (std::cmp::Reverse(*a), *b, **outcome));
    let ends = outcomes.into_iter().map(|(outcome, snapshots)| PartedEnd {
        outcome: *outcome,
        snapshots: *snapshots,
        paths: [0, 1].map(|group| common(paths, left, *decision, *outcome, group)),
    });
    Some(Parted {
        decision: *decision,
        ends: ends.collect(),
    })
}

/// The path that most snapshots of a group took which had this outcome, and the index of the first
/// branch after it.
fn common(
    paths: &[SharedPath],
    left: &[(usize, Vec<Visit>)],
    decision: Decision,
    outcome: Outcome,
    group: usize,
) -> Option<(usize, usize)> {
    let with = left.iter().filter_map(|(index, visits)| {
        let is_it = |visit: &&Visit| visit.decision == decision && visit.outcome == outcome;
        Some((*index, visits.iter().find(is_it)?.next))
    });
    with.filter(|(index, _)| paths[*index].snapshots[group] > 0)
        // Of several, the first.
        .min_by_key(|(index, _)| (std::cmp::Reverse(paths[*index].snapshots[group]), *index))
}
