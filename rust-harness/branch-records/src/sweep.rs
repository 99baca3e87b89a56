//! The sweep: the document in which a guest hands over a snapshot and the samples next to
//! it, for each moment at which a counter overflowed.
//!
//! The document is JSON. A reader must not trust it: [`Sweep::from_reader`] bounds what
//! it reads.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::capture::{CaptureError, CodeRange, MAX_RECORDS, check_code, document, raw_records};
use crate::record::RawRecord;

/// The value of [`Sweep::format`] in every sweep.
pub const FORMAT: &str = "branch-sweep";
/// The version of the document that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 2;
/// The most bytes of a document. A longer document is refused.
pub const MAX_BYTES: u64 = 256 << 20;
/// The most rounds of a sweep. A sweep with more is refused.
pub const MAX_ROUNDS: usize = 100_000;
/// The most samples of a round. A sweep with more is refused.
pub const MAX_SAMPLES: usize = 16;

/// A sweep: rounds in each of which a counter overflowed while a snapshot was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// The number of snapshots that were taken before the first round.
    pub measured: u32,
    /// The code around the records, as in
    /// [`Capture::code`](crate::capture::Capture::code).
    pub code: Vec<CodeRange>,
    /// The rounds, in the order in which they were made.
    pub rounds: Vec<Round>,
}

/// One round. A counter is started, and overflows after a number of events and again after each
/// that many more; a snapshot is taken meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// The number of events from the moment right before the snapshot to the counter's first
    /// overflow. Negative: the overflow was before that moment.
    pub offset: i64,
    /// Whether the timer ticked during the round, or another task ran. If so, the overflow that
    /// was meant may not be the first, and may not hit what it hits otherwise.
    pub disturbed: bool,
    /// The records of the snapshot, newest first. None means that the helper returned
    /// `-ENOENT`.
    #[serde(with = "raw_records")]
    pub snapshot: Vec<RawRecord>,
    /// The records of the first samples that were made, oldest sample first.
    pub samples: Vec<SweepSample>,
}

/// The records of one sample, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SweepSample(#[serde(with = "raw_records")] pub Vec<RawRecord>);

impl Round {
    /// All records of the round: a list for the snapshot, then one for each sample.
    pub fn recorded(&self) -> impl Iterator<Item = &[RawRecord]> {
        let samples = self.samples.iter().map(|sample| &sample.0[..]);
        std::iter::once(&self.snapshot[..]).chain(samples)
    }
}

impl Sweep {
    /// A sweep of these rounds.
    pub fn new(measured: u32, code: Vec<CodeRange>, rounds: Vec<Round>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            measured,
            code,
            rounds,
        }
    }

    /// Reads a sweep and checks it.
    ///
    /// # Errors
    ///
    /// When `reader` fails, when the document is longer than [`MAX_BYTES`], when it is no
    /// sweep of version [`VERSION`], and when a list in it is too long or its code is
    /// invalid: see [`CaptureError`].
    pub fn from_reader(mut reader: impl Read) -> Result<Self, CaptureError> {
        Self::read(&mut reader)
    }

    /// [`Sweep::from_reader`], compiled here: other crates need not be optimised for it.
    fn read(reader: &mut dyn Read) -> Result<Self, CaptureError> {
        let sweep: Self = document::read(reader, MAX_BYTES)?;
        sweep.validate()?;
        Ok(sweep)
    }

    /// Writes the sweep as one line of JSON.
    ///
    /// # Errors
    ///
    /// When [`Sweep::from_reader`] would refuse the document, and when `writer` fails.
    pub fn to_writer(&self, writer: impl Write) -> Result<(), CaptureError> {
        self.validate()?;
        document::write(self, writer, MAX_BYTES)
    }

    fn validate(&self) -> Result<(), CaptureError> {
        if self.format != FORMAT {
            return Err(CaptureError::Format(self.format.clone()));
        }
        if self.version != VERSION {
            return Err(CaptureError::Version(self.version));
        }
        check_code(&self.code)?;
        let invalid = |field: String, problem: &str| {
            Err(CaptureError::Invalid {
                field,
                problem: problem.to_owned(),
            })
        };
        if self.rounds.len() > MAX_ROUNDS {
            return invalid("rounds".to_owned(), "too many");
        }
        for (index, round) in self.rounds.iter().enumerate() {
            if round.samples.len() > MAX_SAMPLES {
                return invalid(format!("rounds[{index}].samples"), "too many");
            }
            let mut all = round.samples.iter().map(|sample| sample.0.len());
            if round.snapshot.len() > MAX_RECORDS || all.any(|records| records > MAX_RECORDS) {
                return invalid(format!("rounds[{index}]"), "too many records");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(samples: usize) -> Sweep {
        let records = vec![RawRecord {
            from: 0xffff_8000_8001_0000,
            to: 0xffff_8000_8001_0040,
            flags: 0x8010_0000,
        }];
        let round = Round {
            offset: 5000,
            disturbed: false,
            snapshot: records.clone(),
            samples: vec![SweepSample(records); samples],
        };
        Sweep::new(1, Vec::new(), vec![round])
    }

    #[test]
    fn a_document_comes_back() {
        let mut text = Vec::new();
        sweep(2).to_writer(&mut text).unwrap();
        assert_eq!(Sweep::from_reader(&text[..]).unwrap(), sweep(2));
    }

    #[test]
    fn a_round_has_the_records_of_its_snapshot_and_of_its_samples() {
        let mut round = sweep(2).rounds.remove(0);
        round.samples[0].0.clear();
        let counts = round.recorded().map(<[RawRecord]>::len);
        assert_eq!(counts.collect::<Vec<_>>(), [1, 0, 1]);
    }

    #[test]
    fn lists_are_as_long_as_is_promised_and_no_longer() {
        let is_valid = |sweep: &Sweep| sweep.validate().is_ok();
        assert!(is_valid(&sweep(MAX_SAMPLES)));
        let rounds = |count| Sweep {
            rounds: vec![sweep(0).rounds.remove(0); count],
            ..sweep(0)
        };
        assert!(is_valid(&rounds(MAX_ROUNDS)) && !is_valid(&rounds(MAX_ROUNDS + 1)));
        for (snapshot, sample, expected) in [
            (MAX_RECORDS, MAX_RECORDS, true),
            (MAX_RECORDS + 1, 1, false),
            (1, MAX_RECORDS + 1, false),
        ] {
            let mut sweep = sweep(1);
            let round = &mut sweep.rounds[0];
            round.snapshot.resize(snapshot, RawRecord::default());
            round.samples[0].0.resize(sample, RawRecord::default());
            assert_eq!(is_valid(&sweep), expected, "{snapshot}, {sample}");
        }
    }

    #[test]
    fn what_breaks_a_promise_is_refused() {
        assert!(matches!(
            sweep(MAX_SAMPLES + 1).to_writer(Vec::new()),
            Err(CaptureError::Invalid { .. })
        ));
        let other = Sweep {
            version: VERSION + 1,
            ..sweep(1)
        };
        assert!(matches!(
            other.to_writer(Vec::new()),
            Err(CaptureError::Version(version)) if version == VERSION + 1
        ));
        let other = Sweep {
            format: "branch-capture".to_owned(),
            ..sweep(1)
        };
        assert!(matches!(
            other.to_writer(Vec::new()),
            Err(CaptureError::Format(_))
        ));
    }
}
