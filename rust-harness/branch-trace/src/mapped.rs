//! Which files processes map while they are traced. A process may have ended when its first snapshot
//! arrives, and `/proc` does not know it any more.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use anyhow::Result;
use branch_records::capture::{MAX_MAPPINGS, Mapping};
use branch_records::visible::is_visible;
use guest_support::ring::{PerfRecord, PerfRing};
use guest_support::{cpus, perf};
use perf_event_open_sys::bindings as sys;

/// The most processes that are remembered.
const MAX_PROCESSES: usize = 10_000;
/// The most changes that wait for a snapshot.
const MAX_WAITING: usize = 100_000;
/// The bit of a mapping's protection that says that it holds code: `PROT_EXEC`.
const EXECUTABLE: u32 = 4;

/// The mappings of all processes since this began to watch.
pub(crate) struct Mapped {
    rings: Vec<(OwnedFd, PerfRing)>,
    /// Changes with their times that are not among `processes` yet.
    waiting: Vec<(u64, Change)>,
    processes: HashMap<u32, Rc<Vec<Mapping>>>,
}

/// Something that changes what is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// A process maps code.
    Map { pid: u32, mapping: Mapping },
    /// A process begins another program.
    Exec { pid: u32 },
    /// A process begins as a copy of another.
    Fork { pid: u32, parent: u32 },
}

impl Mapped {
    /// Watches all CPUs.
    ///
    /// # Errors
    ///
    /// When that is not allowed, or not possible.
    pub(crate) fn watch() -> Result<Self> {
        let open = |cpu: u32| {
            let event = perf::open_mappings(cpu)?;
            let ring = PerfRing::map(&event)?;
            Ok((event, ring))
        };
        let rings = cpus::online()?.into_iter().map(open);
        Ok(Self {
            rings: rings.collect::<Result<_>>()?,
            waiting: Vec::new(),
            processes: HashMap::new(),
        })
    }

    /// Takes in what has happened since the last call.
    ///
    /// # Errors
    ///
    /// When the kernel's records are not what perf writes.
    pub(crate) fn update(&mut self) -> Result<()> {
        for (_, ring) in &mut self.rings {
            self.waiting.extend(ring.take()?.iter().filter_map(change));
        }
        if self.waiting.len() > MAX_WAITING {
            self.apply_until(u64::MAX);
        }
        Ok(())
    }

    /// Goes on to a time, in nanoseconds of `CLOCK_MONOTONIC`.
    fn apply_until(&mut self, time: u64) {
        // A process may have run on several CPUs. The sort is stable.
        self.waiting.sort_by_key(|(time, _)| *time);
        let count = self.waiting.partition_point(|(its, _)| *its <= time);
        let due: Vec<_> = self.waiting.drain(..count).collect();
        for (_, change) in due {
            self.apply(change);
        }
    }

    /// What a process had mapped at a time, as far as it was mapped since this began to watch.
    ///
    /// # Errors
    ///
    /// When the kernel's records are not what perf writes.
    pub(crate) fn at(&mut self, time: u64, pid: u32) -> Result<Option<Vec<Mapping>>> {
        self.update()?;
        self.apply_until(time);
        Ok(self.of(pid).map(<[_]>::to_vec))
    }

    /// What a process has mapped, sorted by address.
    fn of(&self, pid: u32) -> Option<&[Mapping]> {
        self.processes.get(&pid).map(|mappings| &mappings[..])
    }

    fn apply(&mut self, change: Change) {
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.clear();
        }
        match change {
            Change::Exec { pid } => {
                self.processes.insert(pid, Rc::default());
            }
            Change::Fork { pid, parent } => {
                // A process that had this number before has ended.
                match self.processes.get(&parent).cloned() {
                    Some(mappings) => self.processes.insert(pid, mappings),
                    None => self.processes.remove(&pid),
                };
            }
            Change::Map { pid, mapping } => {
                let mappings = Rc::make_mut(self.processes.entry(pid).or_default());
                // What was mapped there is no more, but for what is before and behind it.
                let first = mappings.partition_point(|old| old.end <= mapping.start);
                let end = mappings.partition_point(|old| old.start < mapping.end);
                let covered = &mappings[first..end];
                let left: Vec<_> = covered
                    .iter()
                    .flat_map(|old| old.without(&mapping))
                    .collect();
                mappings.splice(first..end, left);
                mappings.truncate(MAX_MAPPINGS);
                if mappings.len() < MAX_MAPPINGS {
                    let after = mappings.partition_point(|old| old.start < mapping.start);
                    mappings.insert(after, mapping);
                }
            }
        }
    }
}

/// The time of a record, and what it changes (include/uapi/linux/perf_event.h).
fn change(record: &PerfRecord) -> Option<(u64, Change)> {
    let (body, time) = record.body.split_last_chunk::<8>()?;
    let word = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u64::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    let pid = word(0)?;
    let change = match record.kind {
        sys::PERF_RECORD_COMM if u32::from(record.misc) & sys::PERF_RECORD_MISC_COMM_EXEC != 0 => {
            Change::Exec { pid }
        }
        // A new thread of a process is no new process.
        sys::PERF_RECORD_FORK if word(4)? != pid => Change::Fork {
            pid,
            parent: word(4)?,
        },
        sys::PERF_RECORD_MMAP2 => {
            let (start, length, offset) = (long(8)?, long(16)?, long(24)?);
            let is_code = word(56)? & EXECUTABLE != 0;
            let path = body.get(64..)?.split(|byte| *byte == 0).next()?;
            let path = std::str::from_utf8(path).ok()?;
            // `//anon` is no file.
            let is_file = path.starts_with('/') && !path.starts_with("//");
            let is_shown = is_file && is_visible(path);
            let end = start.checked_add(length).filter(|end| *end > start)?;
            (is_code && is_shown).then(|| Change::Map {
                pid,
                mapping: Mapping {
                    start,
                    end,
                    offset,
                    path: path.to_owned(),
                    build_id: None,
                },
            })?
        }
        _ => return None,
    };
    Some((u64::from_ne_bytes(*time), change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, path: &str) -> Mapping {
        Mapping {
            start,
            end,
            offset: 0x1000,
            path: path.to_owned(),
            build_id: None,
        }
    }

    fn record(kind: u32, misc: u32, body: &[u8]) -> PerfRecord {
        PerfRecord {
            kind,
            misc: misc as u16,
            body: [body, &7_u64.to_ne_bytes()].concat(),
        }
    }

    /// The body of a PERF_RECORD_MMAP2.
    fn mmap2(protection: u32, path: &str) -> Vec<u8> {
        let mut body = [42_u32, 43].map(u32::to_ne_bytes).concat();
        let words = [0x40_0000_u64, 0x2000, 0x1000, 0, 0, 0];
        body.extend(words.into_iter().flat_map(u64::to_ne_bytes));
        body.extend([protection, 2].into_iter().flat_map(u32::to_ne_bytes));
        body.extend(path.as_bytes());
        body.resize(body.len().next_multiple_of(8) + 8, 0);
        body
    }

    #[test]
    fn records_are_changes() {
        let expected = Change::Map {
            pid: 42,
            mapping: mapping(0x40_0000, 0x40_2000, "/bin/true"),
        };
        let map = |protection, path| change(&record(10, 0, &mmap2(protection, path)));
        assert_eq!(map(5, "/bin/true"), Some((7, expected)));
        assert_eq!(map(1, "/bin/true"), None);
        assert_eq!(map(5, "[vdso]"), None);
        assert_eq!(map(5, "//anon"), None);
        let pids = |words: [u32; 4]| words.map(u32::to_ne_bytes).concat();
        let exec = sys::PERF_RECORD_MISC_COMM_EXEC;
        let comm = |misc| change(&record(3, misc, &pids([42, 42, 0, 0])));
        assert_eq!(comm(exec), Some((7, Change::Exec { pid: 42 })));
        assert_eq!(comm(0), None);
        let fork = |parent| change(&record(7, 0, &pids([42, parent, 42, parent])));
        assert_eq!(fork(1), Some((7, Change::Fork { pid: 42, parent: 1 })));
        assert_eq!(fork(42), None);
        assert_eq!(change(&record(10, 0, &mmap2(5, "/bin/true")[..60])), None);
    }

    #[test]
    fn a_process_has_what_it_mapped_last() {
        let mut mapped = Mapped {
            rings: Vec::new(),
            waiting: Vec::new(),
            processes: HashMap::new(),
        };
        let map = |start, end, path: &str| Change::Map {
            pid: 1,
            mapping: mapping(start, end, path),
        };
        for change in [
            map(0x1000, 0x2000, "/old"),
            Change::Exec { pid: 1 },
            map(0x8000, 0x9000, "/lib/b"),
            map(0x1000, 0x4000, "/bin/a"),
            Change::Fork { pid: 2, parent: 1 },
            map(0x2000, 0x3000, "/lib/c"),
            Change::Fork { pid: 3, parent: 9 },
        ] {
            mapped.apply(change);
        }
        let paths = |pid| {
            let mappings = mapped.of(pid)?.iter();
            Some(mappings.map(|it| &*it.path).collect::<Vec<_>>())
        };
        assert_eq!(paths(1).unwrap(), ["/bin/a", "/lib/c", "/bin/a", "/lib/b"]);
        let behind = Mapping {
            offset: 0x3000,
            ..mapping(0x3000, 0x4000, "/bin/a")
        };
        assert_eq!(mapped.of(1).unwrap()[2], behind);
        assert_eq!(paths(2).unwrap(), ["/bin/a", "/lib/b"]);
        assert_eq!(paths(3), None);
        // The number of a process that has ended is used again.
        mapped.apply(Change::Fork { pid: 2, parent: 9 });
        assert!(mapped.of(2).is_none());
    }

    #[test]
    fn what_came_later_is_not_there_yet() {
        let map = |start, path: &str| Change::Map {
            pid: 1,
            mapping: mapping(start, start + 0x1000, path),
        };
        let mut mapped = Mapped {
            rings: Vec::new(),
            waiting: vec![
                (30, Change::Exec { pid: 1 }),
                (20, map(0x2000, "/lib/b")),
                (10, map(0x1000, "/bin/a")),
            ],
            processes: HashMap::new(),
        };
        let mut count = |time| mapped.at(time, 1).unwrap().map(|all| all.len());
        let counts = [5, 10, 25, 30].map(&mut count);
        assert_eq!(counts, [None, Some(1), Some(2), Some(0)]);
    }
}
