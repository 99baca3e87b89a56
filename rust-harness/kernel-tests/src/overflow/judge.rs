//! Judges the rounds of a sweep: whether snapshot and samples are right for where the counter
//! overflowed.
//!
//! A counter that overflows freezes BRBE, and its handler finds the records that were there
//! (`BRBFCR_EL1.PAUSED`, Arm ARM rule group "Freeze"). What a snapshot has depends on when
//! the overflow was:
//!
//! * before the snapshot sampled `BRBFCR_EL1`: the snapshot has no record, and the handler
//!   has the records;
//! * after that, and before the records were read: the snapshot has the records, and the
//!   handler has them, too;
//! * later: the snapshot has the records, and the handler may have none, since they are
//!   discarded then.
//!
//! Another implementation may also return the records of a BRBE that was frozen before
//! ([`FrozenBefore`]), if the handler has them, too.
//!
//! Each snapshot that is not empty has to be the path that led to it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use branch_records::sweep::{Round, Sweep};

use crate::watch::{Hit, Position, Window};

/// How many wrong rounds are described in words. The others are only counted.
const EXAMPLES: usize = 5;

/// What a snapshot may do with the records of a BRBE that was frozen before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrozenBefore {
    /// They are the handler's alone: the snapshot has none.
    LeftAlone,
    /// The snapshot has none of them, or those that the handler has.
    Shared,
}

/// What all rounds of a sweep showed.
#[derive(Clone, Debug, Default)]
pub struct SweepFindings {
    /// Rounds looked at.
    pub rounds: usize,
    /// How many instructions a snapshot has that no overflow disturbs.
    pub instructions: u64,
    /// The instructions of a snapshot that overflows hit: the index of each, from 0, and the
    /// offset of the last undisturbed round that hit it, if there is one.
    pub hit: BTreeMap<u64, i64>,
    /// The indices of those instructions that no overflow can hit.
    pub stopped: Range<u64>,
    /// Overflows before the snapshot, handled after it.
    pub pending: usize,
    /// Overflows that interrupted the snapshot at once.
    pub interrupted: usize,
    /// Overflows while their interrupt was masked.
    pub masked: usize,
    /// Snapshots without a record.
    pub empty: usize,
    /// Snapshots with records of a BRBE that was frozen before.
    pub taken_frozen: usize,
    /// Samples of an overflow in the snapshot that have no record.
    pub empty_samples: usize,
    /// Steps from record to record that are possible.
    pub possible: usize,
    /// Steps from record to record that could not be checked.
    pub undecided: usize,
    /// Rounds with something wrong.
    pub wrong: usize,
    /// What is wrong with the first wrong rounds, in words.
    pub examples: Vec<String>,
}

impl SweepFindings {
    /// The indices of the instructions that no overflow hit, and that one could have hit.
    pub fn missed(&self) -> Vec<u64> {
        (0..self.instructions)
            .filter(|index| !self.hit.contains_key(index) && !self.stopped.contains(index))
            .collect()
    }

    /// The offsets that should hit the instructions that were missed: those from the instruction
    /// before the first of them to the one behind the last, and `margin` cycles more at either
    /// end. Where the snapshot begins or ends with them, those around the one on the other side.
    /// None if no instruction was missed, or all.
    pub fn offsets_around_missed(&self, margin: i64) -> Option<Range<i64>> {
        let missed = self.missed();
        let (first, last) = (missed.first()?, missed.last()?);
        let before = self.hit.range(..first).next_back();
        let behind = self.hit.range(last..).next();
        let (_, before) = before.or(behind)?;
        let (_, behind) = behind.unwrap_or((last, before));
        let first = before.min(behind).saturating_sub(margin);
        Some(first..before.max(behind).saturating_add(margin))
    }

    /// Notes that the overflow of `round` hit an instruction.
    fn note_hit(&mut self, index: u64, round: &Round) {
        let offset = self.hit.entry(index).or_insert(round.offset);
        // The offset of a disturbed round is not the one that leads there.
        if !round.disturbed {
            *offset = round.offset;
        }
    }

    /// Adds what another sweep of the same kind showed.
    pub fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.hit.extend(other.hit);
        self.pending += other.pending;
        self.interrupted += other.interrupted;
        self.masked += other.masked;
        self.empty += other.empty;
        self.taken_frozen += other.taken_frozen;
        self.empty_samples += other.empty_samples;
        self.possible += other.possible;
        self.undecided += other.undecided;
        self.wrong += other.wrong;
        self.examples.extend(other.examples);
    }
}

/// Judges the rounds of `sweep`. `windows` are all its snapshots, from the plugin's log.
/// `impossible` says what is impossible about the records of a snapshot or sample, if
/// anything is. `frozen_before` says what the snapshot may do with records that are the
/// handler's.
///
/// # Errors
///
/// When the log has not as many snapshots as the guest says that it took, or an overflow is
/// in each of them.
pub fn judge(
    sweep: &Sweep,
    windows: &[Window],
    frozen_before: FrozenBefore,
    mut impossible: impl FnMut(&[RawRecord]) -> Option<String>,
) -> Result<SweepFindings> {
    ensure!(
        windows.len() == sweep.measured as usize + sweep.rounds.len(),
        "the plugin saw {} snapshots, the guest took {} and {}",
        windows.len(),
        sweep.measured,
        sweep.rounds.len()
    );
    let mut findings = SweepFindings {
        rounds: sweep.rounds.len(),
        ..SweepFindings::default()
    };
    let windows = &windows[sweep.measured as usize..];
    let usual = usual(windows).context("not one snapshot without an overflow in it")?;
    findings.instructions = usual.instructions;
    findings.stopped = usual.stopped.clone().unwrap_or_default();
    for (round, window) in sweep.rounds.iter().zip(windows) {
        let index = match window.hit {
            Some(Hit::Interrupted(position)) => {
                findings.interrupted += 1;
                Some(position.index)
            }
            Some(Hit::Masked(position)) => {
                findings.masked += 1;
                Some(position.index)
            }
            Some(Hit::Pending) => {
                findings.pending += 1;
                // Between the last instruction before the snapshot and its first one.
                Some(0)
            }
            None => None,
        };
        if let Some(index) = index {
            findings.note_hit(index, round);
        }
        findings.empty += usize::from(round.snapshot.is_empty());
        let is_frozen = window.is_frozen_before() && !round.snapshot.is_empty();
        findings.taken_frozen += usize::from(is_frozen);
        let first = round.samples.first();
        findings.empty_samples +=
            usize::from(window.hit.is_some() && first.is_some_and(|sample| sample.0.is_empty()));
        if let Some(problem) = problem(round, window, frozen_before, &mut impossible) {
            findings.wrong += 1;
            if findings.examples.len() < EXAMPLES {
                let place = HitPlace(window.hit);
                let offset = round.offset;
                findings
                    .examples
                    .push(format!("offset {offset}, {place}: {problem}"));
            }
        }
    }
    Ok(findings)
}

/// A snapshot that no overflow disturbs, with as many instructions as most of them have. A few
/// are longer or shorter than the rest, since that depends on what the records hold. `None` if
/// an overflow is in each.
fn usual(windows: &[Window]) -> Option<&Window> {
    let mut lengths = BTreeMap::<_, Vec<&Window>>::new();
    for window in windows.iter().filter(|window| window.hit.is_none()) {
        lengths.entry(window.instructions).or_default().push(window);
    }
    let usual = lengths.into_values().max_by_key(Vec::len)?;
    usual.first().copied()
}

/// What is wrong with a round, in words; `None` if nothing is.
fn problem(
    round: &Round,
    window: &Window,
    frozen_before: FrozenBefore,
    impossible: &mut impl FnMut(&[RawRecord]) -> Option<String>,
) -> Option<String> {
    if let Some(why) = impossible(&round.snapshot) {
        return Some(format!("the snapshot is not a path: {why}"));
    }
    for (index, sample) in round.samples.iter().enumerate() {
        if let Some(why) = impossible(&sample.0) {
            return Some(format!("sample {index} is not a path: {why}"));
        }
    }
    if round.disturbed {
        return None;
    }
    let [first, next @ ..] = &round.samples[..] else {
        return Some("no sample".to_owned());
    };
    // A single sample may be empty: the driver discards the records at a task switch, and the
    // overflow may come right after it.
    if next.iter().all(|sample| sample.0.is_empty()) {
        return Some(format!("no record in the {} next samples", next.len()));
    }
    match window.hit {
        None if round.snapshot.is_empty() => Some("the snapshot has no record".to_owned()),
        Some(Hit::Interrupted(_)) if first.0.is_empty() => {
            Some("the sample of the overflow has no record".to_owned())
        }
        Some(Hit::Pending | Hit::Masked(_)) if window.is_frozen_before() => match frozen_before {
            FrozenBefore::Shared if !round.snapshot.is_empty() => not_shared(round),
            _ => not_left(round),
        },
        // BRBE was frozen by the time that the records had been read: they were left to the
        // handler as they are.
        Some(Hit::Masked(position)) => match window.read_by {
            Some(by) if position.index <= by => not_shared(round),
            Some(_) => None,
            None => Some("the snapshot did not read the records".to_owned()),
        },
        _ => None,
    }
}

impl Window {
    /// Whether BRBE was frozen before the snapshot found out whether it is paused.
    fn is_frozen_before(&self) -> bool {
        match self.hit {
            Some(Hit::Pending) => true,
            Some(Hit::Masked(position)) => self
                .sampled
                .is_some_and(|sampled| position.index <= sampled),
            _ => false,
        }
    }
}

/// What is wrong with a round in which BRBE was frozen before the snapshot sampled
/// `BRBFCR_EL1`; `None` if nothing is. The records are the handler's then, and the snapshot
/// has to leave them alone.
fn not_left(round: &Round) -> Option<String> {
    let records = round.snapshot.len();
    if records > 0 {
        return Some(format!(
            "BRBE was frozen before the snapshot, which has {records} records of the handler's"
        ));
    }
    let first = round.samples.first()?;
    let lost = first.0.is_empty();
    lost.then(|| "BRBE was frozen before the snapshot, and the handler has no record".to_owned())
}

/// What is wrong with a round in which BRBE was frozen while the snapshot read the records;
/// `None` if nothing is. The records are the handler's, too: one of the samples has to have
/// the same records.
fn not_shared(round: &Round) -> Option<String> {
    let mut samples = round.samples.iter();
    let handlers = samples.any(|sample| sample.0 == round.snapshot);
    let records = round.snapshot.len();
    (!handlers).then(|| {
        format!("BRBE was frozen, but no sample has the {records} records of the snapshot")
    })
}

/// Says in words where an overflow was.
struct HitPlace(Option<Hit>);

impl Display for HitPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, position) = match self.0 {
            None => return f.write_str("no overflow in the snapshot"),
            Some(Hit::Pending) => return f.write_str("overflow before the snapshot"),
            Some(Hit::Interrupted(position)) => ("interrupt", position),
            Some(Hit::Masked(position)) => ("overflow", position),
        };
        let Position { index, address } = position;
        write!(f, "{what} at instruction {index}, {address:#x}")
    }
}

#[cfg(test)]
mod tests {
    use branch_records::sweep::SweepSample;

    use super::*;

    fn records(count: usize) -> Vec<RawRecord> {
        let record = |n| RawRecord {
            from: 4 * n as u64 + 4,
            ..RawRecord::default()
        };
        (0..count).map(record).collect()
    }

    fn round(snapshot: usize, samples: &[usize]) -> Round {
        Round {
            offset: 1,
            disturbed: false,
            snapshot: records(snapshot),
            samples: samples.iter().map(|n| SweepSample(records(*n))).collect(),
        }
    }

    fn window(hit: Option<Hit>) -> Window {
        Window {
            instructions: 4,
            hit,
            sampled: Some(1),
            read_by: Some(2),
            stopped: None,
        }
    }

    fn masked(index: u64) -> Option<Hit> {
        let address = 0x1000 + 4 * index;
        Some(Hit::Masked(Position { index, address }))
    }

    fn judge(rounds: Vec<Round>, hits: &[Option<Hit>]) -> SweepFindings {
        let windows: Vec<_> = hits.iter().copied().map(window).collect();
        let sweep = Sweep::new(0, Vec::new(), rounds);
        super::judge(&sweep, &windows, FrozenBefore::LeftAlone, |_| None).unwrap()
    }

    #[test]
    fn what_no_overflow_hit_is_reported() {
        let rounds = vec![round(2, &[2, 2]), round(0, &[2, 2]), round(2, &[2, 2])];
        let rounds = [rounds, vec![round(2, &[2, 2])]].concat();
        let findings = judge(rounds, &[None, masked(0), masked(2), masked(3)]);
        assert_eq!(findings.missed(), [1]);
        assert_eq!(findings.offsets_around_missed(5), Some(-4..6));
        assert_eq!((findings.wrong, findings.instructions), (0, 4));
        let other = judge(
            vec![round(2, &[2, 2]), round(0, &[2, 2])],
            &[None, masked(1)],
        );
        let mut both = findings.clone();
        both.add(other);
        assert!(both.missed().is_empty());
        assert_eq!(both.offsets_around_missed(5), None);
        assert_eq!((findings.masked, both.masked, both.rounds), (3, 4, 6));
    }

    #[test]
    fn the_offset_of_a_disturbed_round_leads_elsewhere() {
        let of = |offset, disturbed| Round {
            offset,
            disturbed,
            ..round(2, &[2, 2])
        };
        let rounds = vec![of(1, false), of(7, false), of(9, true), of(11, false)];
        let findings = judge(rounds, &[None, masked(0), masked(0), masked(2)]);
        assert_eq!(findings.missed(), [1, 3]);
        // Nothing is behind the last.
        assert_eq!(findings.offsets_around_missed(5), Some(2..12));
        let without_first = SweepFindings {
            hit: [(2, 11), (3, 9)].into(),
            ..findings.clone()
        };
        assert_eq!(without_first.missed(), [0, 1]);
        assert_eq!(without_first.offsets_around_missed(5), Some(6..16));
        let none = SweepFindings {
            hit: BTreeMap::new(),
            ..findings.clone()
        };
        assert_eq!(none.offsets_around_missed(5), None);
        let with_last = SweepFindings {
            instructions: 3,
            ..findings
        };
        assert_eq!(with_last.offsets_around_missed(0), Some(7..11));
    }

    /// What is wrong with a round that an overflow hits. Of a round that is disturbed, too,
    /// nothing may be wrong.
    fn said(hit: Option<Hit>, hit_round: Round) -> Option<String> {
        let disturbed = Round {
            disturbed: true,
            ..hit_round.clone()
        };
        let rounds = |round| vec![self::round(2, &[2, 2]), round];
        // The first sample may be that of another overflow.
        assert_eq!(judge(rounds(disturbed), &[None, hit]).wrong, 0);
        let findings = judge(rounds(hit_round), &[None, hit]);
        assert_eq!(findings.wrong, findings.examples.len());
        findings.examples.into_iter().next()
    }

    #[test]
    fn what_was_frozen_before_the_snapshot_is_the_handlers_alone() {
        for hit in [Some(Hit::Pending), masked(0), masked(1)] {
            assert_eq!(said(hit, round(0, &[2, 2])), None, "{hit:?}");
            let taken = said(hit, round(2, &[2, 2])).unwrap();
            assert!(taken.contains("has 2 records of the handler's"), "{taken}");
            let lost = said(hit, round(0, &[0, 2])).unwrap();
            assert!(lost.contains("the handler has no record"), "{lost}");
        }
    }

    #[test]
    fn what_was_frozen_during_the_snapshot_is_the_handlers_too() {
        assert_eq!(said(masked(2), round(2, &[2, 3])), None);
        let lost = said(masked(2), round(2, &[0, 3])).unwrap();
        assert!(lost.contains("no sample has the 2 records"), "{lost}");
        assert_eq!(said(masked(3), round(2, &[0, 3])), None);
    }

    #[test]
    fn another_implementation_may_share_what_was_frozen_before() {
        let shared = |second| {
            let sweep = Sweep::new(0, Vec::new(), vec![round(2, &[2, 2]), second]);
            let windows = [window(None), window(Some(Hit::Pending))];
            super::judge(&sweep, &windows, FrozenBefore::Shared, |_| None).unwrap()
        };
        let findings = shared(round(2, &[2, 3]));
        assert_eq!((findings.wrong, findings.taken_frozen), (0, 1));
        let findings = shared(round(0, &[2, 3]));
        assert_eq!((findings.wrong, findings.taken_frozen), (0, 0));
        for lost in [round(2, &[0, 3]), round(0, &[0, 3]), round(2, &[3, 3])] {
            assert_eq!(shared(lost).wrong, 1);
        }
    }

    #[test]
    fn what_no_overflow_can_hit_is_not_missed() {
        let stopped = Window {
            stopped: Some(1..3),
            ..window(None)
        };
        let sweep = Sweep::new(0, Vec::new(), vec![round(2, &[2, 2]); 2]);
        let windows = [stopped, window(masked(3))];
        let frozen_before = FrozenBefore::LeftAlone;
        let findings = super::judge(&sweep, &windows, frozen_before, |_| None).unwrap();
        assert_eq!(findings.missed(), [0]);
    }

    #[test]
    fn a_snapshot_that_did_not_look_is_wrong() {
        let blind = Window {
            read_by: None,
            ..window(masked(2))
        };
        let sweep = Sweep::new(0, Vec::new(), vec![round(2, &[2, 2]); 2]);
        let findings = super::judge(
            &sweep,
            &[window(None), blind],
            FrozenBefore::LeftAlone,
            |_| None,
        )
        .unwrap();
        assert_eq!(findings.wrong, 1);
    }

    #[test]
    fn what_is_empty_or_missing_is_wrong() {
        let position = Position {
            index: 0,
            address: 0x1000,
        };
        let interrupted = Some(Hit::Interrupted(position));
        for (bad, hit) in [
            (round(0, &[2, 2]), None),
            (round(2, &[0, 2]), interrupted),
            (round(2, &[2, 0, 0]), None),
            (round(2, &[2]), None),
            (round(2, &[]), None),
        ] {
            let findings = judge(vec![round(2, &[2, 2]), bad], &[None, hit]);
            assert_eq!(findings.wrong, 1);
        }
        assert_eq!(judge(vec![round(2, &[2, 0, 2])], &[None]).wrong, 0);
    }

    #[test]
    fn impossible_records_are_wrong() {
        let sweep = Sweep::new(0, Vec::new(), vec![round(2, &[1, 1])]);
        let impossible = |records: &[RawRecord]| (records.len() == 1).then(|| "no".to_owned());
        let findings =
            super::judge(&sweep, &[window(None)], FrozenBefore::LeftAlone, impossible).unwrap();
        assert_eq!(findings.wrong, 1);
        assert!(findings.examples[0].contains("sample 0 is not a path: no"));
    }

    #[test]
    fn a_snapshot_that_is_missing_is_an_error() {
        let sweep = Sweep::new(1, Vec::new(), vec![round(2, &[2, 2])]);
        let frozen_before = FrozenBefore::LeftAlone;
        assert!(super::judge(&sweep, &[window(None)], frozen_before, |_| None).is_err());
    }
}
