//! A machine that has nothing but what an engine needs: a small Debian, in namespaces of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result, ensure};

use crate::definitions::Mistake;
use crate::tools::Tools;
use host::cache::{self, Key};
use host::logs::Log;
use host::mirror;
use host::paths::Paths;
use host::process;
use host::progress::Step;

/// The script that a command is started by.
const ENTER: &str = include_str!("enter.sh");

/// A sort of machine.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    name: &'static str,
    /// Names of packages, with commas between them.
    packages: String,
    /// The file with apt's preferences, if there is one.
    preferences: Option<PathBuf>,
    /// A package of which only one directory is wanted, and that directory.
    part: Option<(&'static str, &'static str)>,
}

impl Recipe {
    /// A machine for jobs of engines that are there already, beside a shell, git and rsync:
    /// `./brbe` installs what it needs itself.
    pub(crate) fn for_engines() -> Self {
        Self {
            name: "machine for CI engines",
            packages: "ca-certificates,git,rsync".to_owned(),
            preferences: None,
            part: None,
        }
    }

    /// A machine with LAVA's dispatcher, QEMU, and the templates that a server has for devices.
    ///
    /// # Errors
    ///
    /// When the list of packages cannot be read.
    pub(crate) fn for_lava(paths: &Paths) -> Result<Self> {
        let packages = mirror::packages(&paths.repo("vm-images/lab/packages"))?;
        Ok(Self {
            name: "machine for LAVA's dispatcher",
            packages: packages.join(","),
            preferences: Some(paths.repo("vm-images/lab/preferences.pref")),
            part: Some(("lava-server", "./usr/share/lava-server/device-types")),
        })
    }

    /// The key of the machine's entry in the cache.
    fn key(&self) -> Result<Key> {
        let mut key = Key::new("ci machine 2").with(&self.packages);
        if let Some(preferences) = &self.preferences {
            key = key.with_file(preferences)?;
        }
        Ok(key)
    }
}

/// Has apt prefer what the file `$PREFERENCES` says, below `$1`.
const PREFER: &str = r#"mkdir -p "$1/etc/apt/preferences.d" && cp "$PREFERENCES" "$1/etc/apt/preferences.d/brbe.pref""#;
/// Downloads the package `$PACKAGE` and extracts the directory `$PART` of it below `$1`.
const TAKE_PART: &str = r#"chroot "$1" sh -c "cd /tmp && apt-get download $PACKAGE" && \
    dpkg-deb --fsys-tarfile "$1"/tmp/*.deb | tar --extract --directory "$1" "$PART" && \
    rm "$1"/tmp/*.deb"#;

/// The machine. What a command writes to it is gone when the command ends, but for what it writes
/// to its own directory, to the caches and to the checkout.
#[derive(Debug)]
pub(crate) struct BareMachine<'a> {
    paths: &'a Paths,
    tools: &'a Tools,
    root: PathBuf,
}

/// What came of a command on the machine.
#[derive(Debug)]
pub(crate) struct Ran {
    status: ExitStatus,
    /// What the command wrote.
    said: String,
    /// The log that keeps what the command wrote.
    log: Log,
}

/// How many lines of a log an error shows.
const EXCERPT: usize = 25;

impl Ran {
    /// What the command printed.
    pub(crate) fn said(&self) -> &str {
        &self.said
    }

    /// The result of a look at what the command has left. An error says what the command wrote.
    pub(crate) fn explains<T>(&self, seen: Result<T>) -> Result<T> {
        seen.with_context(|| {
            let lines: Vec<_> = self.said.lines().collect();
            let last = &lines[lines.len().saturating_sub(EXCERPT)..];
            format!("{}:\n{}", self.log.display(), last.join("\n"))
        })
    }

    /// Checks that the command succeeded.
    pub(crate) fn expect_success(&self) -> Result<()> {
        let is_good = || {
            ensure!(self.status.success(), "{}", self.status);
            Ok(())
        };
        self.explains(is_good())
    }

    /// Checks that the command, which ran a definition with a mistake, failed, and that it says
    /// so in a line that `says_so` takes.
    pub(crate) fn expect_failure(
        &self,
        mistake: &Mistake,
        says_so: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let is_found = || {
            ensure!(!self.status.success(), "{mistake}, it succeeds");
            let says_so = self.said.lines().any(says_so);
            ensure!(says_so, "{mistake}, another job fails than should");
            Ok(())
        };
        self.explains(is_found())
    }
}

impl<'a> BareMachine<'a> {
    /// The machine, which is made unless the cache has it. It can run `tools`.
    ///
    /// # Errors
    ///
    /// When `BRBE_MIRROR` is not set, or a package cannot be installed.
    pub(crate) fn made(paths: &'a Paths, tools: &'a Tools, recipe: &Recipe) -> Result<Self> {
        let root = cache::entry(paths, "ci-machine", &recipe.key()?, |into| {
            let mirror = mirror::url()?;
            let step = Step::start(format!("make a {}", recipe.name));
            let log = Log::fresh(paths.log("ci-machine"))?;
            let mut mmdebstrap = Command::new("mmdebstrap");
            mmdebstrap.args(["--mode=root", "--variant=minbase"]);
            mmdebstrap.arg(format!("--include={}", recipe.packages));
            for unused in ["doc", "man", "locale"] {
                mmdebstrap.arg(format!("--dpkgopt=path-exclude=/usr/share/{unused}/*"));
            }
            if let Some(preferences) = &recipe.preferences {
                mmdebstrap.env("PREFERENCES", preferences);
                mmdebstrap.arg(format!("--setup-hook={PREFER}"));
            }
            if let Some((package, part)) = recipe.part {
                mmdebstrap.env("PACKAGE", package).env("PART", part);
                mmdebstrap.arg(format!("--customize-hook={TAKE_PART}"));
            }
            mmdebstrap.arg("trixie").arg(into);
            for suite in ["trixie", "trixie-updates", "trixie-backports"] {
                mmdebstrap.arg(format!("deb {mirror} {suite} main"));
            }
            process::logged(recipe.name, &log, &mut mmdebstrap)?;
            step.done();
            Ok(())
        })?;
        Ok(Self { paths, tools, root })
    }

    /// Runs `command` in the directory `dir`. What it prints goes to the log `log`. It may write to
    /// files below `writable`.
    ///
    /// # Errors
    ///
    /// When the machine cannot be entered.
    pub(crate) fn run(
        &self,
        log: &str,
        writable: &Path,
        dir: &Path,
        command: &Command,
    ) -> Result<Ran> {
        let log = Log::fresh(self.paths.log(log))?;
        let mut entered = Command::new("unshare");
        entered.args(["--mount", "--pid", "--fork", "--kill-child"]);
        entered.args(["sh", "-c", ENTER, "sh"]).arg(&self.root);
        entered.arg(writable).arg(dir);
        entered.arg(self.paths.home("")).arg(self.paths.repo(""));
        entered.arg(self.tools.dir());
        entered.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            entered.env(name, value.unwrap_or_default());
        }
        let status = process::run_to_status(&log, &mut entered)?;
        let text = fs::read(&log).unwrap_or_default();
        let said = String::from_utf8_lossy(&text).into_owned();
        Ok(Ran { status, said, log })
    }
}
