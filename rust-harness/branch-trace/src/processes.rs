//! The processes of snapshots, and which files are mapped at the addresses of their user
//! space.

use std::collections::{HashMap, HashSet};
use std::fs;

use branch_records::capture::{MAX_MAPPINGS, Mapping, Process, Snapshot};
use branch_records::symbol::is_kernel;
use branch_records::visible::is_visible;

use crate::mapped::Mapped;

/// The processes that snapshots were taken in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes(HashMap<u32, Process>);

impl Processes {
    /// Looks up the process of a snapshot, unless all of the snapshot's addresses in user
    /// space are known already. `mapped` has what processes mapped since the trace began.
    pub(crate) fn see(&mut self, snapshot: &Snapshot, mapped: Option<&mut Mapped>) {
        let addresses = snapshot.addresses();
        let users = addresses.filter(|address| *address != 0 && !is_kernel(*address));
        let users: Vec<_> = users.collect();
        let known = |process: &Process| {
            let known = users.iter().filter(|it| process.file_at(**it).is_some());
            known.count()
        };
        let before = self.0.get(&snapshot.pid).map_or(0, known);
        if before == users.len() {
            return;
        }
        let watched = mapped.and_then(|mapped| mapped.at(snapshot.time, snapshot.pid).ok()?);
        let watched = watched.map(|mappings| Process {
            pid: snapshot.pid,
            mappings,
        });
        // What was mapped before the trace began, /proc alone knows, and nothing of a process that
        // has ended.
        let found = [watched, read(snapshot.pid)].into_iter().flatten();
        let best = found.max_by_key(known).filter(|best| known(best) > before);
        if let Some(process) = best {
            self.0.insert(snapshot.pid, process);
        }
    }

    /// Adds the processes that `later` has, as they were when it looked them up.
    pub(crate) fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// Forgets all processes but those of `snapshots`.
    pub(crate) fn keep_those_of(&mut self, snapshots: &[Snapshot]) {
        let pids: HashSet<_> = snapshots.iter().map(|snapshot| snapshot.pid).collect();
        self.0.retain(|pid, _| pids.contains(pid));
    }

    /// All processes, sorted by PID.
    pub(crate) fn into_all(self) -> Vec<Process> {
        let mut all: Vec<_> = self.0.into_values().collect();
        all.sort_by_key(|process| process.pid);
        all
    }
}

/// Reads the mappings of a process. `None` if the process is gone.
fn read(pid: u32) -> Option<Process> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mappings = maps
        .lines()
        .filter_map(mapping)
        .take(MAX_MAPPINGS)
        .collect();
    Some(Process { pid, mappings })
}

/// Parses a line of /proc/PID/maps: `start-end perms offset dev inode   path`. `None`
/// unless it is a mapping of a file's code.
fn mapping(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let path = rest.splitn(3, ' ').nth(2)?.trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let is_code = permissions.contains('x') && path.starts_with('/');
    (is_code && is_visible(path)).then_some(Mapping {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found() {
        let line = "aaaad0f20000-aaaad0f30000 r-xp 00001000 00:13 5963   /usr/bin/my prog";
        let expected = Mapping {
            start: 0xaaaa_d0f2_0000,
            end: 0xaaaa_d0f3_0000,
            offset: 0x1000,
            path: "/usr/bin/my prog".to_owned(),
        };
        assert_eq!(mapping(line), Some(expected));
        for line in [
            "aaaad0f40000-aaaad0f50000 r--p 00010000 00:13 5963   /usr/bin/true",
            "ffff9e1b0000-ffff9e1b2000 r-xp 00000000 00:00 0      [vdso]",
            "ffff9e1b0000-ffff9e1b2000 r-xp 00000000 00:00 0 ",
            "nonsense",
        ] {
            assert_eq!(mapping(line), None, "{line}");
        }
    }
}
