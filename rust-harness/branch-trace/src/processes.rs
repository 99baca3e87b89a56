//! The processes of snapshots, and which files are mapped at the addresses of their user
//! space.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use branch_records::capture::{MAX_MAPPINGS, MAX_PROCESSES, Mapping, Process, Snapshot};
use branch_records::symbol::is_kernel;
use branch_records::visible::is_visible;

use crate::build_id::BuildId;
use crate::mapped::Mapped;

/// The processes that snapshots were taken in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes(HashMap<u32, Process>);

/// Which processes were looked up in vain: some code is in no file, as that of a JIT compiler.
#[derive(Debug, Default)]
pub(crate) struct Lookups(HashMap<u32, InVain>);

/// Lookups of one process.
#[derive(Debug, Default)]
struct InVain {
    count: u32,
    /// The time of the snapshot for which the last one was made, in nanoseconds.
    last: u64,
}

/// How often a process is looked up in vain before it is looked up less often.
const OFTEN: u32 = 16;
/// The least time between two lookups from then on, in nanoseconds.
const PAUSE: u64 = 100_000_000;

impl Lookups {
    /// Whether the process of a snapshot is to be looked up, of which something is not known.
    fn are_worth_it(&self, snapshot: &Snapshot) -> bool {
        let in_vain = self.0.get(&snapshot.pid);
        in_vain.is_none_or(|in_vain| {
            in_vain.count < OFTEN || snapshot.time.saturating_sub(in_vain.last) >= PAUSE
        })
    }

    /// Notes whether the lookup for a snapshot has told something new.
    fn note(&mut self, snapshot: &Snapshot, is_new: bool) {
        if is_new {
            self.0.remove(&snapshot.pid);
            return;
        }
        if self.0.len() >= MAX_PROCESSES {
            self.0.clear();
        }
        let in_vain = self.0.entry(snapshot.pid).or_default();
        in_vain.count = in_vain.count.saturating_add(1);
        in_vain.last = snapshot.time;
    }
}

impl Processes {
    /// Looks up the process of a snapshot, unless all of the snapshot's addresses in user
    /// space are known already, or that was often in vain. `mapped` has what processes mapped since
    /// the trace began.
    pub(crate) fn see(
        &mut self,
        snapshot: &Snapshot,
        lookups: &mut Lookups,
        mapped: Option<&mut Mapped>,
    ) {
        let addresses = snapshot.addresses();
        let users = addresses.filter(|address| *address != 0 && !is_kernel(*address));
        let users: Vec<_> = users.collect();
        let known = |process: &Process| {
            let known = users.iter().filter(|it| process.file_at(**it).is_some());
            known.count()
        };
        let before = self.0.get(&snapshot.pid).map_or(0, known);
        if before == users.len() || !lookups.are_worth_it(snapshot) {
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
        lookups.note(snapshot, best.is_some());
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

    /// The processes, sorted by PID. If there are more than a capture may have, those of which there
    /// are most `snapshots`.
    pub(crate) fn of_most(self, snapshots: &[Snapshot]) -> Vec<Process> {
        let mut counts = HashMap::<u32, usize>::new();
        for snapshot in snapshots {
            *counts.entry(snapshot.pid).or_default() += 1;
        }
        let count = |process: &Process| counts.get(&process.pid).copied().unwrap_or(0);
        let mut most: Vec<_> = self.0.into_values().collect();
        most.sort_by_key(|process| (Reverse(count(process)), process.pid));
        most.truncate(MAX_PROCESSES);
        most.sort_by_key(|process| process.pid);
        most
    }
}

/// Adds the build IDs of the files that processes map.
pub(crate) fn add_build_ids(processes: &mut [Process]) {
    let mut known = HashMap::new();
    for mapping in processes
        .iter_mut()
        .flat_map(|process| &mut process.mappings)
    {
        let id = known.entry(mapping.path.clone()).or_insert_with(|| {
            let id = BuildId::of_file(Path::new(&mapping.path));
            id.ok().flatten().map(|id| id.to_string())
        });
        mapping.build_id.clone_from(id);
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
        // What is at the path of a file that was deleted is another one: it keeps its mark.
        path: path.to_owned(),
        build_id: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::parse;
    use crate::event::tests::{event, place};

    fn snapshot(pid: u32, time: u64) -> Snapshot {
        let mut snapshot = parse(&event(0, 0), &[place()]).unwrap();
        (snapshot.pid, snapshot.time) = (pid, time);
        snapshot
    }

    #[test]
    fn what_is_in_no_file_is_looked_up_less_often() {
        let mut lookups = Lookups::default();
        let mut count = 0;
        for time in (0..1000).map(|millisecond| millisecond * 1_000_000) {
            let snapshot = snapshot(7, time);
            if lookups.are_worth_it(&snapshot) {
                lookups.note(&snapshot, false);
                count += 1;
            }
        }
        assert_eq!(count, OFTEN + 9);
        assert!(lookups.are_worth_it(&snapshot(8, 0)));
        lookups.note(&snapshot(7, 0), true);
        assert!(lookups.are_worth_it(&snapshot(7, 1)));
    }

    #[test]
    fn a_capture_has_room_for_the_processes_of_most_snapshots() {
        let pids = 1..=MAX_PROCESSES as u32 + 2;
        let process = |pid| {
            let mappings = Vec::new();
            (pid, Process { pid, mappings })
        };
        let processes = Processes(pids.clone().map(process).collect());
        let others = pids.filter(|pid| ![3, 5].contains(pid));
        let snapshots: Vec<_> = others.map(|pid| snapshot(pid, 0)).collect();
        let most = processes.of_most(&snapshots);
        assert_eq!(most.len(), MAX_PROCESSES);
        assert!(most.is_sorted_by_key(|process| process.pid));
        assert!(most.iter().all(|process| ![3, 5].contains(&process.pid)));
    }

    #[test]
    fn code_of_files_is_found() {
        let line = "aaaad0f20000-aaaad0f30000 r-xp 00001000 00:13 5963   /usr/bin/my prog";
        let expected = Mapping {
            start: 0xaaaa_d0f2_0000,
            end: 0xaaaa_d0f3_0000,
            offset: 0x1000,
            path: "/usr/bin/my prog".to_owned(),
            build_id: None,
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
