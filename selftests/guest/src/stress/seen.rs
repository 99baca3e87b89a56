//! What the stress test has seen, and what is wrong with it.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use branch_records::path::Findings;
use branch_records::record::RawRecord;
use rustix::io::Errno;

use super::Watched;
use crate::contract::{Answer, MAX_RECORDS};
use crate::path::{self, NoPath, Steady};

/// The kinds of programs that take snapshots, in the order of the BPF programs'
/// `enum sort`.
const KINDS: [&str; 7] = [
    "fentry",
    "fexit",
    "kprobe",
    "tracepoint",
    "raw tracepoint",
    "perf event",
    "nested",
];
/// Kinds of programs that run while records are read: an overflow there, or the end of
/// the event, may have left no records.
const MAY_HAVE_NONE: [&str; 2] = ["perf event", "nested"];
/// What the test has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// For each kind of program in [`KINDS`], the number of snapshots with records and
    /// without.
    snapshots: [(u64, u64); KINDS.len()],
    /// The number of records in snapshots and samples.
    records: u64,
    /// The number of steps and sources of those records that are possible.
    possible: u64,
    samples: u64,
    pub(super) hotplugs: u64,
    pub(super) events: u64,
    pub(super) processes: u64,
    /// The first thing that is wrong.
    pub(super) problem: Option<String>,
}

impl Seen {
    pub(super) fn snapshots(&mut self, bytes: &[u8], code: &Steady) {
        let (kind, cpu, answers) = match parse(bytes) {
            Ok(parsed) => parsed,
            Err(error) => return self.note(Some(format!("{error:#}"))),
        };
        for (answer, which) in answers.iter().zip(["first", "second"]) {
            let (with, without) = &mut self.snapshots[kind];
            *if answer.records().is_empty() {
                without
            } else {
                with
            } += 1;
            let records = answer.records();
            let problem = wrong(answer).or_else(|| self.records(records, code.check(records)));
            self.note(problem.map(|problem| {
                let kind = KINDS[kind];
                format!("the {which} {kind} snapshot on CPU {cpu}: {problem}")
            }));
        }
    }

    pub(super) fn samples(&mut self, watched: &mut Watched, code: &Steady) -> Result<()> {
        for records in watched.samples.take_samples()? {
            self.samples += 1;
            let checked = code.check_sample(&records);
            let problem = illegal(&records).or_else(|| self.records(&records, checked));
            self.note(problem.map(|problem| format!("a sample of CPU {}: {problem}", watched.cpu)));
        }
        Ok(())
    }

    /// Counts records, and returns how they are no path, if they are none.
    fn records(
        &mut self,
        records: &[RawRecord],
        checked: Result<Findings, NoPath>,
    ) -> Option<String> {
        self.records += records.len() as u64;
        match checked {
            Ok(findings) => {
                self.possible += findings.possible as u64;
                None
            }
            // Only the records of the first problem are listed: reading the symbols takes
            // seconds.
            Err(error) if self.problem.is_none() => {
                let listed = path::list(records);
                Some(listed.map_or_else(|why| format!("{error}; {why:#}"), |()| error.to_string()))
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Something that has to be seen and was not, if there is any.
    pub(super) fn missing(&self) -> Option<String> {
        let kind = KINDS
            .iter()
            .zip(self.snapshots)
            .find(|(kind, (with, _))| *with == 0 && !MAY_HAVE_NONE.contains(kind));
        match kind {
            Some((kind, _)) => Some(format!("no {kind} program had records")),
            None => (self.samples == 0).then(|| "no overflow".to_owned()),
        }
    }

    pub(super) fn has_samples(&self) -> bool {
        self.samples > 0
    }

    pub(super) fn note(&mut self, problem: Option<String>) {
        if self.problem.is_none() {
            self.problem = problem;
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("snapshots with records and without: ")?;
        for (kind, (with, without)) in KINDS.iter().zip(self.snapshots) {
            write!(f, "{kind} {with} and {without}, ")?;
        }
        let Self {
            records,
            possible,
            samples,
            hotplugs,
            events,
            processes,
            ..
        } = self;
        write!(
            f,
            "{samples} overflows; {records} records, {possible} steps possible; {hotplugs} hotplugs, {events} events, {processes} processes"
        )
    }
}

/// Parses the BPF programs' `struct event`: the kind of program as an index into
/// [`KINDS`], the CPU, and of each snapshot what the helper returned, and the memory that
/// it was given.
fn parse(bytes: &[u8]) -> Result<(usize, u32, [Answer; 2])> {
    let cut_off = || format!("an event of {} bytes from a BPF program", bytes.len());
    let (kind, rest) = bytes.split_first_chunk().with_context(cut_off)?;
    let (cpu, rest) = rest.split_first_chunk().with_context(cut_off)?;
    let kind = u32::from_ne_bytes(*kind) as usize;
    ensure!(kind < KINDS.len(), "snapshots of kind {kind}");
    let (first, rest) = split_snapshot(rest).with_context(cut_off)?;
    let (second, _) = split_snapshot(rest).with_context(cut_off)?;
    Ok((kind, u32::from_ne_bytes(*cpu), [first, second]))
}

/// Parses the BPF programs' `struct snapshot`, and returns it with the bytes that follow
/// it.
fn split_snapshot(bytes: &[u8]) -> Option<(Answer, &[u8])> {
    let (taken, rest) = bytes.split_first_chunk()?;
    let (memory, rest) = rest.split_at_checked((MAX_RECORDS + 1) * RawRecord::SIZE)?;
    let memory = memory.as_chunks().0.iter().map(RawRecord::from_ne_bytes);
    let answer = Answer::new(i64::from_ne_bytes(*taken), memory.collect());
    Some((answer, rest))
}

/// How an answer of the helper is wrong, if it is.
fn wrong(answer: &Answer) -> Option<String> {
    let returned = answer.returned;
    let whole = returned > 0 && returned % RawRecord::SIZE as i64 == 0;
    if returned != -i64::from(Errno::NOENT.raw_os_error()) && !whole {
        return Some(format!("the helper returned {returned}"));
    }
    answer
        .written_behind()
        .or_else(|| illegal(answer.records()))
}

fn illegal(records: &[RawRecord]) -> Option<String> {
    records.iter().enumerate().find_map(|(index, record)| {
        let problem = record.decode().illegal_field()?;
        Some(format!("record {index}: {problem}: {record:x?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u32, taken: i64, written: usize) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(3_u32.to_ne_bytes());
        bytes.extend(snapshot(-2, 0));
        bytes.extend(snapshot(taken, written));
        bytes
    }

    fn snapshot(taken: i64, written: usize) -> Vec<u8> {
        let mut bytes = taken.to_ne_bytes().to_vec();
        for record in 0..65 {
            // A conditional branch in the kernel.
            let words = if record < written {
                [1 << 63, 1 << 63, 1 << 20]
            } else {
                [u64::MAX; 3]
            };
            bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }
        bytes
    }

    fn found(kind: usize, taken: i64, written: usize) -> Option<String> {
        let event = event(kind as u32, taken, written);
        let (parsed, cpu, [first, second]) = parse(&event).unwrap();
        assert_eq!((parsed, cpu), (kind, 3));
        assert_eq!(wrong(&first), None);
        wrong(&second)
    }

    #[test]
    fn answers_are_checked() {
        assert_eq!(found(0, 48, 2), None);
        assert_eq!(found(6, -2, 0), None);
        assert_eq!(found(1, -95, 0).unwrap(), "the helper returned -95");
        assert_eq!(found(1, 0, 0).unwrap(), "the helper returned 0");
        assert_eq!(found(1, 25, 2).unwrap(), "the helper returned 25");
        assert_eq!(
            found(1, 24, 2).unwrap(),
            "the helper returned 24 and wrote record 1"
        );
        assert!(found(1, 72, 2).unwrap().starts_with("record 2: "));
        assert!(parse(&event(7, 48, 2)).is_err());
        let event = event(0, 48, 2);
        assert!(parse(&event[..event.len() - 1]).is_err());
    }

    #[test]
    fn a_kind_without_records_fails() {
        let mut seen = Seen {
            snapshots: [(1, 0); KINDS.len()],
            samples: 1,
            ..Seen::default()
        };
        seen.snapshots[6] = (0, 1);
        let text = seen.to_string();
        assert!(
            text.contains(" perf event 1 and 0, nested 0 and 1, 1 overflows; "),
            "{text}"
        );
        seen.snapshots[1] = (0, 1);
        assert_eq!(
            seen.missing().as_deref(),
            Some("no fexit program had records")
        );
    }
}
