//! Cache entries: directories named after all that went into them, there under
//! their name only when they are complete. What no run uses any more goes.

mod eviction;

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::places::Places;

/// The end of the name of what is not complete.
const PARTIAL: &str = ".partial";

/// What goes into an entry. The order of the calls counts.
#[derive(Clone, Debug, Default)]
pub struct Key(Sha256);

impl Key {
    /// An empty key for entries of this kind.
    pub fn new(kind: &str) -> Self {
        Self::default().with(kind)
    }

    /// Adds one input. Lengths are hashed as well: ("ab", "c") is not ("a", "bc").
    #[must_use]
    pub fn with(mut self, input: impl AsRef<[u8]>) -> Self {
        let input = input.as_ref();
        self.0.update((input.len() as u64).to_le_bytes());
        self.0.update(input);
        self
    }

    /// Adds the contents of a file.
    pub fn with_file(self, path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        Ok(self.with(text))
    }

    /// 16 hexadecimal digits.
    pub fn name(&self) -> String {
        hex(&self.0.clone().finalize()[..8])
    }
}

/// Lower case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A lock that other runs of this program respect; released when dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held for its lock")] File);

impl Lock {
    /// Waits for the lock of this name.
    pub fn take(places: &Places, name: &str) -> Result<Self> {
        let file = Self::open(places, name)?;
        file.lock().with_context(|| format!("locking {name}"))?;
        Ok(Self(file))
    }

    /// The lock of this name, unless another run has it.
    pub fn try_take(places: &Places, name: &str) -> Result<Option<Self>> {
        let file = Self::open(places, name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("locking {name}"))
            }
        }
    }

    fn open(places: &Places, name: &str) -> Result<File> {
        let dir = places.home("locks");
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let path = dir.join(name);
        File::create(&path).with_context(|| format!("creating {}", path.display()))
    }
}

/// Where the entry `kind-key` is, or will be.
pub fn place(places: &Places, kind: &str, key: &Key) -> PathBuf {
    places.home("cache").join(format!("{kind}-{}", key.name()))
}

/// The entry `kind-key`, made by `fill` in an empty directory unless it exists.
///
/// A run that is killed leaves a `.partial` directory, which the next one that
/// needs the entry removes. One that has been used within the last hours stays.
pub fn entry(
    places: &Places,
    kind: &str,
    key: &Key,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let name = format!("{kind}-{}", key.name());
    let done = place(places, kind, key);
    let _lock = Lock::take(places, &name)?; // another run may be making it, or removing it
    if done.is_dir() {
        eviction::used(&done)?;
        return Ok(done);
    }
    eviction::make_room(places)?;
    let partial = places.home("cache").join(format!("{name}{PARTIAL}"));
    remove(&partial)?;
    fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
    match fill(&partial) {
        Ok(()) => {
            fs::rename(&partial, &done).with_context(|| format!("naming {}", done.display()))?;
            Ok(done)
        }
        Err(error) => {
            remove(&partial)?;
            Err(error)
        }
    }
}

/// Removes a directory if it is there.
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
    let dir = path.parent().context("a file has a directory")?;
    let mut file = tempfile::NamedTempFile::new_in(dir)
        .with_context(|| format!("creating a file in {}", dir.display()))?;
    file.write_all(contents)
        .with_context(|| format!("writing {}", path.display()))?;
    file.persist(path)
        .with_context(|| format!("naming {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn places(dir: &tempfile::TempDir) -> Places {
        Places::at(dir.path(), dir.path())
    }

    #[test]
    fn keys_tell_the_borders_of_inputs() {
        assert_ne!(
            Key::new("k").with("ab").with("c").name(),
            Key::new("k").with("a").with("bc").name()
        );
        assert_eq!(
            Key::new("k").with("a").name(),
            Key::new("k").with("a").name()
        );
        assert_eq!(Key::new("k").name().len(), 16);
    }

    #[test]
    fn an_entry_is_filled_once() {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::new("test");
        let made = entry(&places(&dir), "test", &key, |into| {
            Ok(fs::write(into.join("x"), "1")?)
        })
        .unwrap();
        let again = entry(&places(&dir), "test", &key, |_| bail!("filled twice")).unwrap();
        assert_eq!(made, again);
        assert_eq!(fs::read_to_string(again.join("x")).unwrap(), "1");
    }

    #[test]
    fn a_failure_leaves_nothing_and_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::new("test");
        let failed = entry(&places(&dir), "test", &key, |into| {
            fs::write(into.join("half"), "")?;
            bail!("no space")
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(dir.path().join("cache")).unwrap().count(), 0);
        let made = entry(&places(&dir), "test", &key, |_| Ok(())).unwrap();
        assert_eq!(fs::read_dir(made).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_run_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::new("test");
        let left = dir
            .path()
            .join("cache")
            .join(format!("test-{}.partial", key.name()));
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("half"), "").unwrap();
        let made = entry(&places(&dir), "test", &key, |_| Ok(())).unwrap();
        assert_eq!(fs::read_dir(made).unwrap().count(), 0);
    }
}
