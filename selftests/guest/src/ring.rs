//! The samples of one event, read from the memory it shares with the kernel.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use perf_event_open_sys::bindings as sys;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The number of data pages. One more page says how far they are filled.
const DATA_PAGES: usize = 64;
/// The size of `struct perf_event_header` in bytes: type (4), misc (2), size (2).
const HEADER: usize = 8;

/// An event's buffer. The kernel stops writing when it is full.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    page: usize,
}

impl Ring {
    /// Maps the buffer of `event`.
    pub(crate) fn map(event: &OwnedFd) -> Result<Self> {
        let page = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice replaces
        // nothing.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                page * (1 + DATA_PAGES),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event,
                0,
            )
        }
        .context("cannot map the buffer of a perf event")?;
        let base = NonNull::new(base.cast()).context("a buffer at address 0")?;
        Ok(Self { base, page })
    }

    /// The branches of each sample since the last call. The room of the samples is given
    /// back to the kernel.
    pub(crate) fn take_samples(&mut self) -> Result<Vec<Vec<RawRecord>>> {
        // Acquire and Release pair with the kernel's barriers between the data
        // and these fields.
        let head = self.position(std::mem::offset_of!(sys::perf_event_mmap_page, data_head));
        let tail = self.position(std::mem::offset_of!(sys::perf_event_mmap_page, data_tail));
        let (filled, read) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let size = self.page * DATA_PAGES;
        let len = usize::try_from(filled.wrapping_sub(read))?;
        ensure!(len <= size, "a perf buffer of {size} bytes holds {len}");
        // SAFETY: the data pages follow the first one.
        let data = unsafe { self.base.add(self.page) };
        // SAFETY: the data pages are mapped while `self` lives. The kernel changes none
        // of the `len` bytes read below before it is given them back.
        let data = unsafe { std::slice::from_raw_parts(data.as_ptr(), size) };
        let start = usize::try_from(read % size as u64)?;
        let (end, wrapped) = ((start + len).min(size), (start + len).saturating_sub(size));
        let samples = parse(&[&data[start..end], &data[..wrapped]].concat())?;
        tail.store(filled, Ordering::Release);
        Ok(samples)
    }

    /// The field at `offset` in the first page, a field that counts bytes.
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is a `perf_event_mmap_page`, and it is mapped
        // while `self` lives.
        let field = unsafe { self.base.add(offset) }.cast::<AtomicU64>();
        // SAFETY: the first page is a `perf_event_mmap_page`, and it is mapped while
        // `self` lives; the field is 8 bytes, aligned, and changes under us as an atomic
        // may.
        unsafe { field.as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no slice of it outlives `self`. It can
        // only fail for a range that was never mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.page * (1 + DATA_PAGES)) };
    }
}

/// Parses the records that perf writes, and returns the branches of each sample. The last
/// record may be cut off.
fn parse(mut data: &[u8]) -> Result<Vec<Vec<RawRecord>>> {
    let mut samples = Vec::new();
    while let Some((header, _)) = data.split_first_chunk::<HEADER>() {
        let [t0, t1, t2, t3, _, _, s0, s1] = *header;
        let kind = u32::from_ne_bytes([t0, t1, t2, t3]);
        let size = usize::from(u16::from_ne_bytes([s0, s1]));
        ensure!(size >= HEADER, "a record of {size} bytes in a perf buffer");
        let Some((record, rest)) = data.split_at_checked(size) else {
            break;
        };
        if kind == sys::PERF_RECORD_SAMPLE {
            samples.push(parse_sample(&record[HEADER..])?);
        }
        data = rest;
    }
    Ok(samples)
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
        let mut bytes = sys::PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(((HEADER + 8 + words.len() * 8) as u16).to_ne_bytes());
        bytes.extend(count.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn samples_are_taken_apart() {
        let mut data = sample(1, &[1, 2, 3]);
        // A PERF_RECORD_LOST, of no interest.
        data.extend(sys::PERF_RECORD_LOST.to_ne_bytes());
        data.extend([0, 0]);
        data.extend(8_u16.to_ne_bytes());
        data.extend(sample(0, &[]));
        // Cut off by the end of the buffer.
        data.extend(&sample(1, &[1, 2, 3])[..20]);
        let one = RawRecord {
            from: 1,
            to: 2,
            flags: 3,
        };
        assert_eq!(parse(&data).unwrap(), [vec![one], vec![]]);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(parse(&sample(2, &[1, 2, 3])).is_err());
        assert!(parse(&[0; 8]).is_err());
    }
}
