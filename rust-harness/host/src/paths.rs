//! Paths in the checkout, and in the directory of the caches (`BRBE_HOME`).

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The two directories that every other path is found from: the checkout, and the directory
/// of the caches.
#[derive(Clone, Debug)]
pub struct Paths {
    repo: PathBuf,
    home: PathBuf,
}

impl Paths {
    /// The paths of this run, which `./brbe` determines: the checkout that this program was
    /// built from, and `BRBE_HOME`.
    pub fn from_env() -> Result<Self> {
        let home = env::var_os("BRBE_HOME").context(
            "BRBE_HOME is not set: start this program with ./brbe, which sets up its toolchain",
        )?;
        let repo = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("the checkout that this program was built from has moved")?;
        if !repo.join("kernel-patches").is_dir() {
            bail!(
                "{} is no checkout any more: build again with ./brbe",
                repo.display()
            );
        }
        Ok(Self {
            repo: repo.to_owned(),
            home: PathBuf::from(home),
        })
    }

    /// Paths in the checkout `repo` and in the directory of the caches `home`.
    pub fn at(repo: &Path, home: &Path) -> Self {
        Self {
            repo: repo.to_owned(),
            home: home.to_owned(),
        }
    }

    /// The path `below`, relative to the checkout.
    pub fn repo(&self, below: impl AsRef<Path>) -> PathBuf {
        self.repo.join(below)
    }

    /// The path `below`, relative to the directory of the caches.
    pub fn home(&self, below: impl AsRef<Path>) -> PathBuf {
        self.home.join(below)
    }

    /// Path of the log `name` in the directory of the caches: `logs/NAME.log`.
    pub fn log(&self, name: &str) -> PathBuf {
        self.home.join("logs").join(format!("{name}.log"))
    }
}
