//! Eviction of cache entries: an entry that no run has used for two weeks is removed, and
//! where the disk is nearly full also kernels, the least recently used first.
//!
//! A series that is worked on leaves a kernel of 200 MB for each of its states and for each
//! mutant of those: some 10 GB for a change of one patch that is proven. The modification
//! time of an entry is the time at which it was last used. An entry that a run uses is
//! locked, and stays.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};

use super::{Lock, PARTIAL, discard};
use crate::files;
use crate::paths::Paths;
use crate::progress;

/// An entry that was not used for this long is evicted.
const KEPT: Duration = Duration::from_hours(14 * 24);
/// Prefix of the names of kernels in the cache. Only kernels are evicted for lack of space:
/// other entries take little space, or hold much that is needed for each kernel.
const KERNEL: &str = "kernel-";
/// Free space, in bytes, that is kept on the disk: what is being built may need it. A kernel's
/// build directory takes 2 GB.
const FLOOR: u64 = 6 << 30;

/// Marks an entry as used now, by its modification time. That fails for an entry of another
/// user, which is then evicted a little early.
pub(super) fn mark_used(entry: &Path) {
    let _ = File::open(entry).and_then(|entry| entry.set_modified(SystemTime::now()));
}

/// Evicts entries before a new one is made, unless another run is evicting. An error is
/// printed and otherwise ignored: an entry that cannot be removed is no reason not to go on.
pub(super) fn make_room(paths: &Paths) {
    let cache = paths.home("cache");
    let make = || {
        fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
        match Lock::try_take(paths, "eviction")? {
            Some(_lock) => evict(paths, SystemTime::now(), || space(&cache)),
            None => Ok(()),
        }
    };
    if let Err(error) = make() {
        let why = format!(
            "brbe: old entries of the cache cannot be removed, and the run goes on: {error:#}"
        );
        progress::say(&why);
    }
}

/// Free space below the caches, in bytes, that this user can use.
///
/// # Errors
///
/// When the system does not tell.
pub fn room(paths: &Paths) -> Result<u64> {
    space(&paths.home(""))
}

/// Free space, in bytes, that this user can use on the file system of `dir`.
fn space(dir: &Path) -> Result<u64> {
    let system = nix::sys::statvfs::statvfs(dir)
        .with_context(|| format!("asking for the space of {}", dir.display()))?;
    Ok(system.blocks_available() * system.fragment_size())
}

fn evict(paths: &Paths, now: SystemTime, space: impl Fn() -> Result<u64>) -> Result<()> {
    let mut unused = Vec::new();
    for entry in files::sorted(&paths.home("cache"))? {
        unused.push((unused_since(&entry, now)?, entry));
    }
    unused.sort_unstable();
    // One that cannot be removed keeps no other.
    let mut removed = Ok(());
    while let Some((since, entry)) = unused.pop() {
        // Entries have names of ASCII: this is something else.
        let Some(name) = entry.file_name().and_then(OsStr::to_str) else {
            continue;
        };
        let is_needed_space = name.starts_with(KERNEL) && space()? < FLOOR;
        if since <= KEPT && !is_needed_space {
            continue;
        }
        // A process that holds this lock makes the entry, or uses it.
        let Some(_lock) = Lock::try_take(paths, name.trim_end_matches(PARTIAL))? else {
            continue;
        };
        if entry.is_dir() && unused_since(&entry, now)? >= since {
            removed = removed.and(discard(&entry));
        }
    }
    removed
}

/// How long an entry has not been used at the time `now`. Zero if another run has just
/// removed it.
fn unused_since(entry: &Path, now: SystemTime) -> Result<Duration> {
    let used = match fs::metadata(entry).and_then(|data| data.modified()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Duration::ZERO),
        used => used.with_context(|| format!("looking at {}", entry.display()))?,
    };
    Ok(now.duration_since(used).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    struct Cache {
        dir: tempfile::TempDir,
        now: SystemTime,
    }

    impl Cache {
        /// A cache with entries of the given names, each last used the given number of hours
        /// ago.
        fn new(used: &[(&str, u32)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let now = SystemTime::now();
            for (name, hours) in used {
                let entry = dir.path().join("cache").join(name);
                fs::create_dir_all(&entry).unwrap();
                fs::write(entry.join("Image"), "kernel").unwrap();
                let entry = File::open(entry).unwrap();
                entry.set_modified(now - *hours * HOUR).unwrap();
            }
            Self { dir, now }
        }

        fn paths(&self) -> Paths {
            Paths::at(self.dir.path(), self.dir.path())
        }

        /// Evicts where the disk has too little space until only so many entries are left.
        /// Returns the names of those.
        fn evict(&self, room_with: usize) -> Vec<String> {
            let space = || {
                Ok(if self.left().len() > room_with {
                    FLOOR - 1
                } else {
                    FLOOR
                })
            };
            evict(&self.paths(), self.now, space).unwrap();
            self.left()
        }

        fn left(&self) -> Vec<String> {
            let entries = files::sorted(&self.dir.path().join("cache")).unwrap();
            let names = entries.iter().map(|entry| entry.file_name().unwrap());
            let mut names: Vec<_> = names
                .map(|name| name.to_str().unwrap().to_owned())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn what_is_not_used_for_two_weeks_goes() {
        let cache = Cache::new(&[("kernel-a", 14 * 24 + 1), ("kernel-b", 14 * 24 - 1)]);
        assert_eq!(cache.evict(usize::MAX), ["kernel-b"]);
    }

    #[test]
    fn on_a_nearly_full_disk_the_longest_unused_go_until_there_is_room() {
        let cache = Cache::new(&[("kernel-a", 20), ("kernel-b", 40), ("kernel-c", 30)]);
        assert_eq!(cache.evict(2), ["kernel-a", "kernel-c"]);
        assert_eq!(cache.evict(1), ["kernel-a"]);
    }

    #[test]
    fn what_is_no_kernel_stays_on_a_nearly_full_disk() {
        let cache = Cache::new(&[("kernel-a", 1), ("source-b", 20)]);
        assert_eq!(cache.evict(0), ["source-b"]);
    }

    #[test]
    fn what_another_run_has_locked_stays() {
        let cache = Cache::new(&[("kernel-a", 400), ("kernel-b.partial", 400)]);
        let held = ["kernel-a", "kernel-b"].map(|name| Lock::take(&cache.paths(), name).unwrap());
        assert_eq!(cache.evict(0).len(), 2);
        drop(held);
        assert!(cache.evict(0).is_empty());
    }

    #[test]
    fn an_entry_that_is_used_stays() {
        let cache = Cache::new(&[("kernel-a", 400), ("kernel-b", 400)]);
        mark_used(&cache.dir.path().join("cache/kernel-a"));
        assert_eq!(cache.evict(usize::MAX), ["kernel-a"]);
    }

    #[test]
    fn a_disk_has_space() {
        assert!(space(&std::env::temp_dir()).unwrap() > 0);
    }
}
