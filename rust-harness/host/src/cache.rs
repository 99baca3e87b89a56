//! The cache of artefacts. An entry is a directory that is named after everything that went
//! into it. It has this name only when it is complete. An entry that no run uses any more is
//! evicted.

mod eviction;

pub use eviction::room;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::unistd::syncfs;
use sha2::{Digest, Sha256};

use crate::paths::Paths;
use crate::process;
use crate::progress::{self, Step};

/// Suffix of the name of an entry that is not complete.
const PARTIAL: &str = ".partial";

/// A hash of everything that goes into a cache entry. The order in which inputs are added
/// counts.
#[derive(Clone, Debug, Default)]
pub struct Key(Sha256);

impl Key {
    /// A key for entries of the kind `kind`, with no other input yet.
    pub fn new(kind: &str) -> Self {
        Self::default().with(kind)
    }

    /// Adds one input to the key. Lengths are hashed as well: ("ab", "c") is not ("a", "bc").
    #[must_use]
    pub fn with(mut self, input: impl AsRef<[u8]>) -> Self {
        let input = input.as_ref();
        self.0.update((input.len() as u64).to_le_bytes());
        self.0.update(input);
        self
    }

    /// Adds the contents of a file to the key.
    pub fn with_file(self, path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        Ok(self.with(text))
    }

    /// The key as it is used in an entry's name: 16 hexadecimal digits.
    pub fn name(&self) -> String {
        hex(&self.0.clone().finalize()[..8])
    }
}

/// Formats bytes as lower-case hexadecimal digits, two for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A lock that other runs of this program respect; released when dropped.
#[derive(Debug)]
pub struct Lock(File);

/// Locks on the cache entries that this process has used, by the paths of the entries. The
/// process holds them until it ends, so that no other run removes such an entry.
static IN_USE: Mutex<BTreeMap<PathBuf, Lock>> = Mutex::new(BTreeMap::new());

/// Adds `lock` to [`IN_USE`] as the lock of `entry`.
fn use_entry(entry: &Path, lock: Lock) {
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    in_use.insert(entry.to_owned(), lock);
}

/// Drops the lock of `entry` from [`IN_USE`], if the entry was removed by hand. Another thread may
/// just have made it.
fn forget_removed(entry: &Path) {
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    if !entry.is_dir() {
        in_use.remove(entry);
    }
}

impl Lock {
    /// Waits until nobody else holds the lock `name`, and takes it exclusively. A holder that
    /// wants it again at once comes after whoever has waited meanwhile.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be created or locked. [`process::Interrupted`] when the run
    /// is interrupted while it waits.
    pub fn take(paths: &Paths, name: &str) -> Result<Self> {
        let next = format!("{name}.next");
        let _next = wait_for(name, || Self::try_take(paths, &next))?;
        wait_for(name, || Self::try_take(paths, name))
    }

    /// Waits until nobody else holds the lock `name` exclusively, and takes it shared.
    /// Several runs can hold a shared lock at the same time.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be created or locked. [`process::Interrupted`] when the run
    /// is interrupted while it waits.
    pub fn share(paths: &Paths, name: &str) -> Result<Self> {
        let file = Self::open(paths, name)?;
        wait_for(name, || {
            Ok(is_locked(name, file.try_lock_shared())?.then_some(()))
        })?;
        Ok(Self(file))
    }

    /// Takes the lock `name` exclusively. Returns `None` if it is held already, by another
    /// run or by another part of this one. Does not wait.
    ///
    /// # Errors
    ///
    /// When the lock file cannot be created, or the system cannot lock it.
    pub fn try_take(paths: &Paths, name: &str) -> Result<Option<Self>> {
        let file = Self::open(paths, name)?;
        Ok(is_locked(name, file.try_lock())?.then_some(Self(file)))
    }

    /// Turns an exclusive lock into a shared one, so that others can take it shared too.
    /// `name` is its name in messages.
    fn into_shared(self, name: &str) -> Result<Self> {
        let shared = self.0.lock_shared();
        shared.with_context(|| format!("sharing the lock of {name}"))?;
        Ok(self)
    }

    fn open(paths: &Paths, name: &str) -> Result<File> {
        let dir = paths.home("locks");
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let path = dir.join(name);
        File::create(&path).with_context(|| format!("creating {}", path.display()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that another thread has just started has a copy of the file until it executes its
        // program. Where unlocking fails, the lock is free when the last copy is closed.
        let _ = self.0.unlock();
    }
}

/// Name of the lock that every run holds shared. A run that holds it exclusively may clear
/// the caches.
pub const RUNS: &str = "runs";

/// Interval at which a run that waits for a lock tries to take it. It does not use a call
/// that blocks: such a call goes on when the run is interrupted, and reports nothing.
const POLL: Duration = Duration::from_millis(50);
/// A run that waits for a lock for longer than this reports what it waits for.
const SILENT: Duration = Duration::from_secs(1);

/// Calls `get` every [`POLL`] until it returns `Some`, and returns that value. Reports that
/// the run waits for `name` when that takes longer than [`SILENT`]. Fails with
/// [`process::Interrupted`] when the run is interrupted.
fn wait_for<T>(name: &str, mut get: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    let mut step: Option<Step> = None;
    loop {
        if let Some(got) = get()? {
            if let Some(step) = step {
                step.done();
            }
            return Ok(got);
        }
        if process::interrupted() {
            return Err(process::Interrupted.into());
        }
        if step.is_none() && start.elapsed() > SILENT {
            step = Some(Step::start(format!(
                "wait for {name}, which another task or another ./brbe uses"
            )));
        }
        thread::sleep(POLL);
    }
}

fn is_locked(name: &str, tried: Result<(), TryLockError>) -> Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {name}")),
    }
}

/// Path of the cache entry `kind-key`, whether it exists or not.
pub fn place(paths: &Paths, kind: &str, key: &Key) -> PathBuf {
    paths.home("cache").join(format!("{kind}-{}", key.name()))
}

/// Path of the cache entry `kind-key`. If the entry does not exist, `fill` makes it in an
/// empty directory, whose path it is given.
///
/// A run that is killed leaves a `.partial` directory, which the next run that needs the
/// entry removes. While this process runs, no other run removes an entry that this function
/// has returned.
pub fn entry(
    paths: &Paths,
    kind: &str,
    key: &Key,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let name = format!("{kind}-{}", key.name());
    let done = place(paths, kind, key);
    // An entry that is missing now may be made a moment later, by another run or by another
    // thread of this process, which keeps its lock from then on. So each attempt to take the
    // lock looks for the entry first.
    let lock = wait_for(&name, || {
        if use_if_there(paths, &name, &done)? {
            return Ok(Some(None));
        }
        forget_removed(&done);
        Ok(Lock::try_take(paths, &name)?.map(Some))
    })?;
    if let Some(lock) = lock {
        if !done.is_dir() {
            eviction::make_room(paths);
            make(paths, &name, &done, fill)?;
        }
        use_entry(&done, lock.into_shared(&name)?);
    }
    Ok(done)
}

/// Locks an entry so that no other run removes it, if the entry exists. Returns whether it
/// exists.
fn use_if_there(paths: &Paths, name: &str, entry: &Path) -> Result<bool> {
    // An entry that exists may be removed before its lock is taken, so its existence is
    // checked again below. An entry that is being made does not exist yet, and is not waited
    // for here.
    if !entry.is_dir() {
        return Ok(false);
    }
    let lock = Lock::share(paths, name)?;
    let is_there = entry.is_dir();
    if is_there {
        eviction::mark_used(entry);
        use_entry(entry, lock);
    }
    Ok(is_there)
}

fn make(
    paths: &Paths,
    name: &str,
    done: &Path,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let partial = paths.home("cache").join(format!("{name}{PARTIAL}"));
    remove(&partial)?;
    fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
    match fill(&partial).and_then(|()| make_durable(&partial)) {
        Ok(()) => fs::rename(&partial, done).with_context(|| format!("naming {}", done.display())),
        Err(error) => {
            if let Err(left) = remove(&partial) {
                progress::say(&format!(
                    "brbe: what a failed step left cannot be removed now, and the next run tries \
                     again: {left:#}"
                ));
            }
            Err(error)
        }
    }
}

/// Writes what a directory has to the disk. Without that, an entry whose name is on the disk already
/// could be without its contents after a crash of the machine.
fn make_durable(dir: &Path) -> Result<()> {
    let write = || syncfs(File::open(dir)?).map_err(io::Error::from);
    write().with_context(|| format!("writing {} to the disk", dir.display()))
}

/// Removes a directory if it exists. It is first renamed to a `.partial` name, so that under
/// its own name it is there as a whole or not at all.
///
/// # Errors
///
/// When the file system refuses to rename or to remove the directory, or to remove an older
/// one of the `.partial` name.
pub fn discard(dir: &Path) -> Result<()> {
    let partial = dir.with_extension(&PARTIAL[1..]);
    if partial != dir && dir.exists() {
        remove(&partial)?;
        fs::rename(dir, &partial).with_context(|| format!("renaming {}", dir.display()))?;
    }
    remove(&partial)
}

/// Removes a directory and everything in it, if it exists.
pub fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Writes a file so that it is either there as a whole or not at all.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let mut file = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o644))
            .tempfile_in(folder)?;
        file.write_all(contents)?;
        // Else it may be there and empty after a power cut.
        file.as_file().sync_data()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests;
