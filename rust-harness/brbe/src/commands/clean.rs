//! `brbe clean`: what the caches hold, and removing it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use host::cache::{self, Lock, RUNS};
use host::paths::Paths;

/// Say what the caches hold; remove it with --yes
///
/// The toolchain root that this command runs in stays. With --yes no other run may be under
/// way.
#[derive(Args, Debug)]
pub struct Clean {
    /// Remove it all, with the mails that `brbe submit` wrote without --output, edited or not, and the
    /// verdicts that cover letters quote
    #[arg(long)]
    yes: bool,
}

/// The directories below BRBE_HOME that may be removed, each with what it holds.
const PARTS: [(&str, &str); 9] = [
    ("cache", "sources, kernels, the guest's root"),
    ("build", "build directories of kernels and selftests"),
    ("ccache", "objects of kernels"),
    ("target", "cargo's output"),
    ("cargo", "downloaded crates"),
    ("logs", "logs"),
    ("tested", "what tests have seen of each series"),
    ("submit", "mails of series"),
    ("run", "what killed runs left"),
];

impl Clean {
    /// Runs the command.
    pub fn run(&self, paths: &Paths) -> Result<()> {
        let alone = if self.yes {
            Lock::try_take(paths, RUNS)?
        } else {
            None
        };
        ensure!(
            alone.is_some() || !self.yes,
            "another ./brbe is at work with these caches, or a ./brbe shell is open: end it or wait \
             for it"
        );
        let mut total = 0;
        for (part, what) in PARTS {
            let dir = paths.home(part);
            // What an earlier `brbe clean` has not come to remove.
            let partial = paths.home(format!("{part}.partial"));
            let dir = if dir.exists() { dir } else { partial };
            if !dir.exists() {
                continue;
            }
            let bytes = size(&dir).with_context(|| format!("measuring {}", dir.display()))?;
            total += bytes;
            self.take(bytes, &dir, what)?;
        }
        for root in old_roots(paths)? {
            let bytes = size(&root)?;
            total += bytes;
            self.take(bytes, &root, "a toolchain root not in use")?;
        }
        let verb = if self.yes {
            "removed"
        } else {
            "would be freed by ./brbe clean --yes"
        };
        super::print_text(&format!("{:>9}  {verb}", human(total)))
    }

    /// Removes a directory, if that is wanted, and says so.
    fn take(&self, bytes: u64, dir: &Path, what: &str) -> Result<()> {
        if self.yes {
            cache::discard(dir)?;
        }
        super::print_text(&format!("{:>9}  {}  ({what})", human(bytes), dir.display()))
    }
}

/// Toolchain roots other than the one that this program runs in.
fn old_roots(paths: &Paths) -> Result<Vec<PathBuf>> {
    let current = std::env::var_os("BRBE_ROOT").map(PathBuf::from);
    let home = paths.home("");
    let mut roots = Vec::new();
    for file in fs::read_dir(&home).with_context(|| format!("reading {}", home.display()))? {
        let path = file.context("reading the caches")?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("toolchain-") && path.is_dir() && Some(&path) != current.as_ref() {
            roots.push(path);
        }
    }
    Ok(roots)
}

/// Disk space below a directory; hard links count once. What another run removes meanwhile does not
/// count.
fn size(dir: &Path) -> io::Result<u64> {
    let mut seen = std::collections::HashSet::new();
    let mut pending = vec![dir.to_owned()];
    let mut bytes = 0;
    while let Some(dir) = pending.pop() {
        let Some(files) = unless_gone(fs::read_dir(&dir))? else {
            continue;
        };
        for file in files {
            let file = file?;
            let Some(meta) = unless_gone(file.metadata())? else {
                continue;
            };
            if meta.is_dir() {
                pending.push(file.path());
            }
            if meta.nlink() < 2 || seen.insert((meta.dev(), meta.ino())) {
                bytes += meta.blocks() * 512;
            }
        }
    }
    Ok(bytes)
}

/// What was found, unless it is not there any more.
fn unless_gone<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn human(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_links_count_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), vec![1; 100_000]).unwrap();
        let one = size(dir.path()).unwrap();
        assert!(one >= 100_000);
        fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert_eq!(size(dir.path()).unwrap(), one);
        assert_eq!(size(&dir.path().join("gone")).unwrap(), 0);
    }

    #[test]
    fn nothing_is_removed_while_another_run_may_need_it() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::at(dir.path(), dir.path());
        for made in ["cache/kernel-a", "build.partial/half", "mine"] {
            fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        let clean = Clean { yes: true };
        let run = Lock::share(&paths, RUNS).unwrap();
        let refused = clean.run(&paths).unwrap_err().to_string();
        assert!(
            refused.starts_with("another ./brbe is at work"),
            "{refused}"
        );
        Clean { yes: false }.run(&paths).unwrap();
        assert!(dir.path().join("cache/kernel-a").is_dir());
        drop(run);
        clean.run(&paths).unwrap();
        let left = |name: &str| dir.path().join(name).exists();
        assert_eq!(
            ["cache", "cache.partial", "build.partial", "mine"].map(left),
            [false, false, false, true]
        );
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(human(0), "0 kB");
        assert_eq!(human(1_500_000), "1 MB");
        assert_eq!(human(2_900_000_000), "2.9 GB");
    }
}
