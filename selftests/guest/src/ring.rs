//! The samples of one event, read from the memory it shares with the kernel.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use guest_support::ring::PerfRing;
use perf_event_open_sys::bindings as sys;

/// The buffer of an event that samples branches.
#[derive(Debug)]
pub(crate) struct Ring(PerfRing);

impl Ring {
    /// Maps the buffer of `event`.
    pub(crate) fn map(event: &OwnedFd) -> Result<Self> {
        PerfRing::map(event).map(Self)
    }

    /// The branches of each sample since the last call. The room of the samples is given
    /// back to the kernel.
    pub(crate) fn take_samples(&mut self) -> Result<Vec<Vec<RawRecord>>> {
        let records = self.0.take()?.into_iter();
        let samples = records.filter(|record| record.kind == sys::PERF_RECORD_SAMPLE);
        samples.map(|sample| parse_sample(&sample.body)).collect()
    }
}

/// Parses a sample of `PERF_SAMPLE_BRANCH_STACK` alone: a count and that many entries.
fn parse_sample(body: &[u8]) -> Result<Vec<RawRecord>> {
    let (count, entries) = body
        .split_first_chunk::<8>()
        .context("a sample without a branch count")?;
    let count = u64::from_ne_bytes(*count);
    let (entries, rest) = entries.as_chunks::<{ RawRecord::SIZE }>();
    ensure!(
        entries.len() as u64 == count && rest.is_empty(),
        "a sample of {count} branches has room for {}",
        entries.len()
    );
    Ok(entries.iter().map(RawRecord::from_ne_bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u64, words: &[u64]) -> Vec<u8> {
        let words = [count].into_iter().chain(words.iter().copied());
        words.flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn samples_are_taken_apart() {
        let one = RawRecord {
            from: 1,
            to: 2,
            flags: 3,
        };
        assert_eq!(parse_sample(&sample(1, &[1, 2, 3])).unwrap(), [one]);
        assert_eq!(parse_sample(&sample(0, &[])).unwrap(), []);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(parse_sample(&sample(2, &[1, 2, 3])).is_err());
        assert!(parse_sample(&[0; 7]).is_err());
    }
}
