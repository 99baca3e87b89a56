//! Logs, each of which one run writes to.

use std::fs::{self, File, TryLockError};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The path of a log that no other run makes its own for as long as this value is there: what is
/// read in it, this run has written.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    lock: File,
}

impl Log {
    /// Creates the log `path` as an empty file, with the directories above it. The contents of an
    /// older log are lost. `None` if another run, or another part of this one, has the log.
    ///
    /// # Errors
    ///
    /// When the file cannot be created or locked.
    pub fn if_free(path: PathBuf) -> Result<Option<Self>> {
        let creating = || format!("creating {}", path.display());
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).with_context(creating)?;
        }
        let file = File::options().create(true).append(true).open(&path);
        let file = file.with_context(creating)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).with_context(creating)?;
                Ok(Some(Self { path, lock: file }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).with_context(creating),
        }
    }

    /// Creates the log `path` as an empty file, or, while another run has that, a log beside it:
    /// `x-1.log` for `x.log`.
    ///
    /// # Errors
    ///
    /// When the file cannot be created or locked.
    pub fn fresh(path: PathBuf) -> Result<Self> {
        let mut next = path.clone();
        let mut others: u32 = 0;
        loop {
            if let Some(log) = Self::if_free(next)? {
                return Ok(log);
            }
            others += 1;
            let mut name = path.file_stem().unwrap_or_default().to_owned();
            name.push(format!("-{others}"));
            next = path.with_file_name(name);
            if let Some(extension) = path.extension() {
                next.as_mut_os_string().push(".");
                next.as_mut_os_string().push(extension);
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A child that another thread has just started has a copy of the file until it executes its
        // program. Where unlocking fails, the log is free when the last copy is closed.
        let _ = self.lock.unlock();
    }
}

impl Deref for Log {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Log {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_write_two_logs() {
        let dir = tempfile::tempdir().unwrap();
        let log = || Log::fresh(dir.path().join("logs/7.3.x.log")).unwrap();
        let one = log();
        fs::write(&one, "one").unwrap();
        let other = log();
        assert_eq!(*other, *dir.path().join("logs/7.3.x-1.log"));
        assert_eq!(fs::read_to_string(&one).unwrap(), "one");
        drop(one);
        let again = log();
        assert_eq!(*again, *dir.path().join("logs/7.3.x.log"));
        assert_eq!(fs::read_to_string(&again).unwrap(), "", "an older log goes");
    }
}
