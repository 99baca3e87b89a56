//! The events that the BPF programs hand over: `struct event`.

use std::mem::offset_of;

use anyhow::{Context as _, Result, ensure};
use branch_records::capture::Snapshot;
use branch_records::record::RawRecord;
use branch_records::visible::visible;

use crate::jobs::Place;
use crate::parameters::ReadData;
use crate::skeleton::trace::types::event;

/// The number of bytes before the records of an event.
const HEAD: usize = offset_of!(event, records);
/// The number of bytes before what follows the records.
const RECORDS_END: usize = offset_of!(event, kernel_size);
/// The most records that a program asks for.
const ASKED: usize = (RECORDS_END - HEAD) / RawRecord::SIZE;

/// Makes a snapshot of the bytes of an event. The event holds the index of its place in
/// `places`.
pub(crate) fn parse(bytes: &[u8], places: &[Place]) -> Result<Snapshot> {
    ensure!(
        bytes.len() >= HEAD,
        "an event of {} bytes from a BPF program",
        bytes.len()
    );
    let mut whole = [0; size_of::<event>()];
    let length = bytes.len().min(whole.len());
    whole[..length].copy_from_slice(&bytes[..length]);
    // SAFETY: `whole` has as many bytes as an `event` has, and every bit pattern is an
    // `event`: it has integers alone.
    let event = unsafe { whole.as_ptr().cast::<event>().read_unaligned() };
    let taken = usize::try_from(event.taken).unwrap_or(0) / RawRecord::SIZE;
    let there = (length.min(RECORDS_END) - HEAD) / RawRecord::SIZE;
    ensure!(taken <= there, "{taken} records in an event with {there}");
    let place = usize::try_from(event.target).ok();
    let place = place.and_then(|index| places.get(index));
    let place = place.with_context(|| format!("an event of target {}", event.target))?;
    Ok(Snapshot {
        function: place.name.clone(),
        moment: place.moment,
        returned: place.returns.value(event.returned),
        cpu: event.cpu,
        pid: event.pid,
        tid: event.tid,
        comm: comm(event.comm),
        time: event.time,
        duration: (event.duration != 0).then_some(event.duration),
        asked: ASKED as u32,
        errno: (event.taken < 0)
            .then(|| u32::try_from(event.taken.unsigned_abs()))
            .transpose()
            .context("an impossible error from the helper")?,
        records: event.records[..taken].iter().map(RawRecord::from).collect(),
        stack: stack(&event),
        arguments: match &place.parameters {
            Some(parameters) if length == whole.len() => parameters.arguments(&ReadData {
                bytes: &whole[offset_of!(event, data)..],
                unread: event.unread,
            }),
            _ => Vec::new(),
        },
    })
}

/// The kernel's stack, and then that of user space. An error of the helper leaves none: a thread of
/// the kernel has no user space.
fn stack(event: &event) -> Vec<u64> {
    let frames = |stack: &[u64], size: i32| {
        let count = usize::try_from(size).unwrap_or(0) / size_of::<u64>();
        stack[..count.min(stack.len())].to_vec()
    };
    let mut all = frames(&event.kernel_stack, event.kernel_size);
    all.extend(frames(&event.user_stack, event.user_size));
    all
}

/// A thread's name as a text. What a terminal would interpret becomes `?`.
fn comm(words: [u64; 2]) -> String {
    let bytes = words.map(u64::to_ne_bytes).concat();
    let bytes: Vec<_> = bytes.into_iter().take_while(|byte| *byte != 0).collect();
    visible(&String::from_utf8_lossy(&bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::returns::Returns;
    use branch_records::capture::{Moment, Returned};

    pub(crate) fn place() -> Place {
        Place {
            name: "demo".to_owned(),
            moment: Moment::Return,
            returns: Returns::Signed(32),
            parameters: None,
        }
    }

    pub(crate) fn event(taken: i64, records: usize) -> Vec<u8> {
        let mut bytes = taken.to_ne_bytes().to_vec();
        for word in [1_000_000, 250, -22_i64 as u64] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [0_u32, 3, 42, 43] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(b"load\x1b\0\0\0\0\0\0\0\0\0\0\0");
        for word in 0..records as u64 * 3 {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn an_event_is_taken_apart() {
        let snapshot = parse(&event(48, 2), &[place()]).unwrap();
        assert_eq!(snapshot.function, "demo");
        assert_eq!(snapshot.returned, Some(Returned::Signed(-22)));
        assert_eq!((snapshot.cpu, snapshot.pid, snapshot.tid), (3, 42, 43));
        assert_eq!((&*snapshot.comm, snapshot.time), ("load?", 1_000_000));
        assert_eq!((snapshot.duration, snapshot.asked), (Some(250), 64));
        let expected =
            [[0, 1, 2], [3, 4, 5]].map(|[from, to, flags]| RawRecord { from, to, flags });
        assert_eq!(snapshot.records, expected);
        // The event has room for 64 records, of which one was taken.
        assert_eq!(parse(&event(24, 64), &[place()]).unwrap().records.len(), 1);
    }

    #[test]
    fn stacks_follow_the_records() {
        let mut bytes = event(24, 64);
        assert!(parse(&bytes, &[place()]).unwrap().stack.is_empty());
        for size in [16_i32, -14] {
            bytes.extend(size.to_ne_bytes());
        }
        bytes.extend((1..=128_u64).flat_map(u64::to_ne_bytes));
        bytes.resize(size_of::<super::event>(), 0);
        assert_eq!(parse(&bytes, &[place()]).unwrap().stack, [1, 2]);
        // 8 bytes more than there is room for, and the first of user space.
        let sizes = [520_i32, 8].map(i32::to_ne_bytes).concat();
        bytes[RECORDS_END..RECORDS_END + 8].copy_from_slice(&sizes);
        let stack = parse(&bytes, &[place()]).unwrap().stack;
        assert_eq!(stack, (1..=65).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_event_is_refused() {
        assert_eq!(parse(&event(-2, 0), &[place()]).unwrap().errno, Some(2));
        assert!(parse(&event(48, 1), &[place()]).is_err());
        assert!(parse(&event(0, 0), &[]).is_err());
        assert!(parse(&event(0, 0)[..20], &[place()]).is_err());
    }
}
