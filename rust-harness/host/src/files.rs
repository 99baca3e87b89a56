//! Files that are copied, and directories for a while.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::paths::Paths;

/// A directory below the caches, where another program sees it under its own name. It is removed
/// when the value is dropped. What killed runs leave, `./brbe` removes after a day or two: it leaves
/// those alone that are locked, as this one is, however long a run takes.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
    _lock: File,
}

impl Scratch {
    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Creates an empty directory whose name begins with `prefix`.
///
/// # Errors
///
/// When it cannot be created or locked.
pub fn scratch(paths: &Paths, prefix: &str) -> Result<Scratch> {
    let dir = paths.home("run");
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let make = || {
        let made = tempfile::Builder::new().prefix(prefix).tempdir_in(&dir)?;
        let lock = File::open(made.path())?;
        lock.lock_shared()?;
        Ok::<_, io::Error>(Scratch {
            dir: made,
            _lock: lock,
        })
    };
    make().with_context(|| format!("creating a directory in {}", dir.display()))
}

/// The paths of what is in a directory, sorted.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn sorted(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = || {
        let entries = fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok::<_, io::Error>(paths)
    };
    read().with_context(|| format!("reading {}", dir.display()))
}

/// Copies a file into a directory, where it has the same name.
///
/// # Errors
///
/// When the file has no name, or cannot be read or written.
pub fn copy_into(file: &Path, dir: &Path) -> Result<()> {
    let name = file.file_name().context("a file has a name")?;
    fs::copy(file, dir.join(name)).with_context(|| format!("copying {}", file.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_a_run_uses_is_locked_and_goes_with_it() {
        let home = tempfile::tempdir().unwrap();
        let scratch = scratch(&Paths::at(home.path(), home.path()), "share-").unwrap();
        let path = scratch.path().to_owned();
        // As ./brbe does.
        let remove = || {
            let mut flock = Command::new("flock");
            flock.args(["--nonblock", "--exclusive"]).arg(&path);
            flock.args(["rm", "-rf"]).arg(&path);
            flock.status().unwrap().success()
        };
        assert!(!remove() && path.is_dir());
        drop(scratch);
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        assert!(remove() && !path.exists(), "nobody has it");
    }
}
