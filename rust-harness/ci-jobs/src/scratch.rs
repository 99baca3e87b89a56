//! A repository that an engine runs a definition in.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::definitions::Definition;
use host::files::{self, Scratch};
use host::git::Git;
use host::logs::Log;
use host::paths::Paths;
use host::process;

/// The directory of the repository.
const REPOSITORY: &str = "repository";

/// A repository with the files of this checkout. In place of `brbe` it has a link to that of this
/// checkout: jobs run what is tested here, and need not build it in each of their directories.
#[derive(Debug)]
pub(crate) struct Repository {
    /// Everything is below this directory.
    dir: Scratch,
    git: Git,
}

impl Repository {
    /// Makes the repository. The log `log` gets what rsync says.
    ///
    /// # Errors
    ///
    /// When files cannot be copied or committed.
    pub(crate) fn new(paths: &Paths, log: &str) -> Result<Self> {
        let dir = files::scratch(paths, "ci-")?;
        let git = Git::new(&dir.path().join(REPOSITORY));
        let this = Self { dir, git };
        let log = Log::fresh(paths.log(log))?;
        let mut rsync = Command::new("rsync");
        rsync.args(["--archive", "--no-owner", "--no-group"]);
        rsync.args(["--exclude=/.git", "--exclude=/target"]);
        // Engines have the caches in the checkout.
        if let Ok(home) = paths.home("").strip_prefix(paths.repo("")) {
            rsync.arg(format!("--exclude=/{}", home.display()));
        }
        // With a slash at its end, what is in it.
        rsync.arg(paths.repo("").join("")).arg(this.path(""));
        process::logged("copying this checkout", &log, &mut rsync)?;
        let program = this.path("brbe");
        fs::remove_file(&program).context("removing the copy of brbe")?;
        symlink(paths.repo("brbe"), &program).context("linking to this checkout's brbe")?;
        this.git.run(&["init", "--quiet"])?;
        this.commit("This checkout")?;
        Ok(this)
    }

    /// The path `below`, relative to the repository.
    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(REPOSITORY).join(below)
    }

    /// The path `below`, beside the repository.
    pub(crate) fn beside(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Everything: the repository and what is beside it.
    pub(crate) fn all(&self) -> &Path {
        self.dir.path()
    }

    /// Commits a definition, and removes what an engine has left.
    pub(crate) fn put(&self, definition: &Definition) -> Result<()> {
        self.git.run(&["clean", "-ffdxq"])?;
        definition.write_below(&self.path(""))?;
        self.commit("A definition")
    }

    /// Commits a line more in a file.
    pub(crate) fn add_line(&self, below: &str) -> Result<()> {
        let path = self.path(below);
        let opened = File::options().append(true).open(&path);
        let written = opened.and_then(|mut file| file.write_all(b"# one line more\n"));
        written.with_context(|| format!("writing {}", path.display()))?;
        self.commit("A line more")
    }

    fn commit(&self, message: &str) -> Result<()> {
        self.git.run(&["add", "--all"])?;
        let commit = ["commit", "--quiet", "--allow-empty", "--message", message];
        self.git.run(&commit)
    }
}

/// The files below `dir` whose name is one that `wanted` takes, sorted by path.
///
/// # Errors
///
/// When a directory cannot be read.
pub(crate) fn files_below(
    dir: &Path,
    wanted: impl Fn(&str) -> bool + Copy,
) -> Result<Vec<PathBuf>> {
    let reading = || format!("reading {}", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        if entry.file_type().with_context(reading)?.is_dir() {
            found.extend(files_below(&entry.path(), wanted)?);
        } else if entry.file_name().to_str().is_some_and(wanted) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
