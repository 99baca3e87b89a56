//! What perf records of one event, read from the memory that it shares with the kernel.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use perf_event_open_sys::bindings as sys;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The number of data pages. One more page says how far they are filled.
const DATA_PAGES: usize = 64;
/// The size of `struct perf_event_header` in bytes: type (4), misc (2), size (2).
const HEADER: usize = 8;

/// A record of perf: `struct perf_event_header`, and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfRecord {
    /// The type: `PERF_RECORD_*`.
    pub kind: u32,
    /// The field `misc`: `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// The buffer of an event. The kernel stops writing when it is full.
#[derive(Debug)]
pub struct PerfRing {
    base: NonNull<u8>,
    page: usize,
}

impl PerfRing {
    /// Maps the buffer of `event`.
    ///
    /// # Errors
    ///
    /// When the kernel does not map it: the event has one already, or there is no memory left that
    /// may be locked.
    pub fn map(event: &OwnedFd) -> Result<Self> {
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

    /// The records since the last call. Their room is given back to the kernel.
    ///
    /// # Errors
    ///
    /// When the buffer does not hold what perf writes.
    pub fn take(&mut self) -> Result<Vec<PerfRecord>> {
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
        let records = parse(&[&data[start..end], &data[..wrapped]].concat())?;
        tail.store(filled, Ordering::Release);
        Ok(records)
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

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no slice of it outlives `self`. It can
        // only fail for a range that was never mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.page * (1 + DATA_PAGES)) };
    }
}

/// Parses the records that perf writes. The last record may be cut off.
fn parse(mut data: &[u8]) -> Result<Vec<PerfRecord>> {
    let mut records = Vec::new();
    while let Some((header, _)) = data.split_first_chunk::<HEADER>() {
        let [t0, t1, t2, t3, m0, m1, s0, s1] = *header;
        let size = usize::from(u16::from_ne_bytes([s0, s1]));
        ensure!(size >= HEADER, "a record of {size} bytes in a perf buffer");
        let Some((record, rest)) = data.split_at_checked(size) else {
            break;
        };
        records.push(PerfRecord {
            kind: u32::from_ne_bytes([t0, t1, t2, t3]),
            misc: u16::from_ne_bytes([m0, m1]),
            body: record[HEADER..].to_vec(),
        });
        data = rest;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(((HEADER + body.len()) as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn records_are_taken_apart() {
        let mut data = bytes(9, 2, &[1, 2, 3]);
        data.extend(bytes(2, 0, &[]));
        // Cut off by the end of the buffer.
        data.extend(&bytes(9, 2, &[1, 2, 3])[..10]);
        let record = |kind, misc, body: &[u8]| PerfRecord {
            kind,
            misc,
            body: body.to_vec(),
        };
        let expected = [record(9, 2, &[1, 2, 3]), record(2, 0, &[])];
        assert_eq!(parse(&data).unwrap(), expected);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(parse(&[0; 8]).is_err());
    }
}
