//! Where things are: the checkout, and the caches beside it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The two directories that everything else is found from.
#[derive(Clone, Debug)]
pub struct Paths {
    repo: PathBuf,
    home: PathBuf,
}

impl Paths {
    /// As the front door (`./brbe`) sets them: the checkout that this program
    /// was built from, and `BRBE_HOME`.
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

    /// Both given.
    pub fn at(repo: &Path, home: &Path) -> Self {
        Self {
            repo: repo.to_owned(),
            home: home.to_owned(),
        }
    }

    /// A path in the checkout.
    pub fn repo(&self, below: impl AsRef<Path>) -> PathBuf {
        self.repo.join(below)
    }

    /// A path below the caches.
    pub fn home(&self, below: impl AsRef<Path>) -> PathBuf {
        self.home.join(below)
    }

    /// The log of a step.
    pub fn log(&self, name: &str) -> PathBuf {
        self.home.join("logs").join(format!("{name}.log"))
    }
}
