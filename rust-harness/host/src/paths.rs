//! Paths in the checkout, and in the directory of the caches (`BRBE_HOME`).

use std::env;
use std::path::{self, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The directory that `./brbe` makes anew for each run: what is below it was made by the run.
const OF_RUN: &str = "/run";
/// The directories that are those of the tools.
const OF_TOOLS: [&str; 2] = ["/usr", "/etc"];

/// Checks that a path which somebody has named leads where it leads outside of `./brbe`: what is
/// written to such a path otherwise goes with this run, and what is read is not what was meant.
///
/// # Errors
///
/// When the path is hidden by a directory that the tools have for themselves.
pub fn ensure_not_hidden(path: &Path) -> Result<()> {
    let whole = path::absolute(path).context("a path that was given")?;
    // What is to be made is where the last directory is that is there.
    let real = whole
        .ancestors()
        .find_map(|there| there.canonicalize().ok());
    let is_hidden = real.is_some_and(|real| {
        real == Path::new(OF_RUN) || OF_TOOLS.iter().any(|dir| real.starts_with(dir))
    });
    ensure!(
        !is_hidden,
        "{} is hidden by the /run, /usr and /etc of the tools: choose another",
        path.display()
    );
    Ok(())
}

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

    /// The path `below`, relative to the checkout. `""` stands for the checkout itself.
    pub fn repo(&self, below: impl AsRef<Path>) -> PathBuf {
        joined(&self.repo, below.as_ref())
    }

    /// The path `below`, relative to the directory of the caches. `""` stands for that directory
    /// itself.
    pub fn home(&self, below: impl AsRef<Path>) -> PathBuf {
        joined(&self.home, below.as_ref())
    }

    /// Path of the log `name` in the directory of the caches: `logs/NAME.log`.
    pub fn log(&self, name: &str) -> PathBuf {
        self.home.join("logs").join(format!("{name}.log"))
    }
}

/// `below` in `dir`, and `dir` as it is for `""`: [`Path::join`] adds a slash, with which a directory
/// has a second name. cargo, for one, builds anew what it knows by the first.
fn joined(dir: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        dir.to_owned()
    } else {
        dir.join(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_name() {
        let paths = Paths::at(Path::new("/checkout"), Path::new("/caches"));
        assert_eq!(paths.repo("").as_os_str(), "/checkout");
        assert_eq!(paths.home("").as_os_str(), "/caches");
        assert_eq!(paths.home("cache/x").as_os_str(), "/caches/cache/x");
    }

    #[test]
    fn what_the_tools_hide_is_no_path_to_choose() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/usr", &link).unwrap();
        let [usr, etc, run] = ["/usr/local/src", "/etc", "/run/nobody/copy"].map(PathBuf::from);
        for hidden in [usr, etc, run, link.join("no-such")] {
            let error = ensure_not_hidden(&hidden).unwrap_err().to_string();
            let said = format!("{} is hidden by ", hidden.display());
            assert!(error.starts_with(&said), "{error}");
        }
        // What this run itself has made below /run, as tests do.
        for seen in [dir.path(), &dir.path().join("a/b"), Path::new("copy")] {
            ensure_not_hidden(seen).unwrap();
        }
    }
}
