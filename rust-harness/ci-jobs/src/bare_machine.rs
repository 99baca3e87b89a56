//! A machine that has nothing but what an engine needs: a small Debian, in namespaces of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result, ensure};

use crate::definitions::Mistake;
use crate::scratch::Repository;
use crate::tools::Tools;
use host::cache::{self, Key};
use host::paths::Paths;
use host::process;
use host::progress::Step;

/// What the engines run on a machine, beside a shell: `./brbe` installs what it needs itself.
const PACKAGES: &str = "ca-certificates,git,rsync";
/// The script that a command is started by.
const ENTER: &str = include_str!("enter.sh");

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
    log: PathBuf,
}

/// How many lines of a log an error shows.
const EXCERPT: usize = 25;

impl Ran {
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
    pub(crate) fn made(paths: &'a Paths, tools: &'a Tools) -> Result<Self> {
        let key = Key::new("ci machine 1").with(PACKAGES);
        let root = cache::entry(paths, "ci-machine", &key, |into| {
            let mirror = std::env::var("BRBE_MIRROR").context(
                "BRBE_MIRROR is not set: start this program with ./brbe, which finds apt's mirror",
            )?;
            let step = Step::start("make a machine for CI engines");
            let log = process::fresh(paths.log("ci-machine"))?;
            let mut mmdebstrap = Command::new("mmdebstrap");
            mmdebstrap.args(["--mode=root", "--variant=minbase"]);
            mmdebstrap.arg(format!("--include={PACKAGES}"));
            mmdebstrap.arg("trixie").arg(into);
            for suite in ["trixie", "trixie-updates"] {
                mmdebstrap.arg(format!("deb {mirror} {suite} main"));
            }
            process::logged("making a machine for CI engines", &log, &mut mmdebstrap)?;
            step.done();
            Ok(())
        })?;
        Ok(Self { paths, tools, root })
    }

    /// Runs `command` in a repository. What it writes goes to the log `log`.
    ///
    /// # Errors
    ///
    /// When the machine cannot be entered.
    pub(crate) fn run(&self, log: &str, repository: &Repository, command: &Command) -> Result<Ran> {
        let log = process::fresh(self.paths.log(log))?;
        let mut entered = Command::new("unshare");
        entered.args(["--mount", "--pid", "--fork", "--kill-child"]);
        entered.args(["sh", "-c", ENTER, "sh"]).arg(&self.root);
        entered.arg(repository.all()).arg(repository.path(""));
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
